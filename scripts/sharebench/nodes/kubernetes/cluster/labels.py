"""Labels and resources by which NVIDIA's stack shows a node's GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sharebench.nodes.kubernetes.cluster.api import Json

CONFIG_LABEL = "nvidia.com/device-plugin.config"
COUNT_LABEL = "nvidia.com/gpu.count"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
MPS_LABEL = "nvidia.com/mps.capable"
COMPUTE_LABELS = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
# From this compute capability on 48 clients may share an MPS server, before it 16 (MPS documentation, and the plugin).
MANY_CLIENTS_SINCE = (7, 5)
GPU_RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-).*")


def allocatable(node: Json) -> dict[str, int]:
    """GPU resources of the node that pods can ask for, by name; those that are 0 left out."""
    values = node.get("status", {}).get("allocatable", {})
    return {name: int(value) for name, value in values.items() if GPU_RESOURCES.fullmatch(name) and int(value)}


def compute_capability(labels: Mapping[str, str]) -> tuple[int, ...]:
    """Major and minor; empty where GPU Feature Discovery has not said it."""
    found = [labels.get(name, "") for name in COMPUTE_LABELS]
    return tuple(map(int, found)) if all(each.isdecimal() for each in found) else ()


def most_mps_clients(labels: Mapping[str, str]) -> int | None:
    """How many tenants the GPU takes under MPS; None where its compute capability is unknown."""
    found = compute_capability(labels)
    return (48 if found >= MANY_CLIENTS_SINCE else 16) if found else None
