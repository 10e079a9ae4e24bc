"""When a node counts as switched: labels, allocatable values and DaemonSet pods agree, twice in a row.

No signal is trusted alone. GPU Feature Discovery writes the labels, the kubelet the values, in either order; a name
that was registered once stays in the node's status with the value 0, and capacity lags behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sharebench.nodes.kubernetes.keys import RESOURCE

Json = Mapping[str, Any]

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
# The first words of what differs.
LABEL, ALLOCATABLE = "label", "allocatable"
GPU_RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-).*")


@dataclass(frozen=True)
class Expected:
    """What a switched node must show; the config label is None where it must be absent."""

    config: str | None
    sharing: str
    replicas: int
    gpus: int
    instances: Mapping[str, int] | None = None
    """What it must offer where MIG cuts its GPUs, by resource."""
    besides: Mapping[str, str] = field(default_factory=dict)
    """Labels that MIG adds or changes."""

    @property
    def allocatable(self) -> dict[str, int]:
        """What the node must offer, by resource: the tenants that it has room for."""
        return {RESOURCE: self.gpus * self.replicas} if self.instances is None else dict(self.instances)

    @property
    def labels(self) -> dict[str, str | None]:
        """The labels that it must have, None for one that must be absent."""
        return {
            CONFIG_LABEL: self.config,
            SHARING_LABEL: self.sharing,
            REPLICAS_LABEL: str(self.replicas),
            MPS_LABEL: "true" if self.sharing == "mps" else "false",
            **self.besides,
        }


@dataclass(frozen=True)
class Daemon:
    """A DaemonSet of NVIDIA's and its pod on the node, None where there is none; `main` is the container that counts.

    Without `main` all containers must be ready.
    """

    name: str
    daemon_set: Json
    pod: Json | None
    main: str | None = None

    def unready(self) -> str | None:
        """Why it is not up to date and ready on the node; None if it is."""
        status, wanted = self.daemon_set.get("status", {}), self.daemon_set["metadata"].get("generation", 0)
        if status.get("observedGeneration", 0) < wanted:
            return f"{self.name}: its last change is not rolled out yet"
        if self.pod is None:
            return f"{self.name} has no pod on the node"
        if self.pod["metadata"].get("deletionTimestamp"):
            return f"the pod of {self.name} is ending"
        for container in self.pod.get("status", {}).get("containerStatuses") or [{"name": "it", "ready": False}]:
            if not container["ready"] and self.main in (None, container["name"]):
                return f"{self.name}: {container['name']} is not ready{_why(container)}"
        return None


def _why(container: Json) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    said = ", ".join(filter(None, [waiting.get("reason"), ended.get("reason")]))
    return f" ({said})" if said else ""


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


def unmet(node: Json, daemons: Sequence[Daemon], mps: Daemon | None, expected: Expected) -> list[str]:
    """What still differs from the expected state, in words; empty when nothing does.

    `daemons` must run in any state. `mps` is the MPS control daemon, which must run under MPS and be gone otherwise.
    """
    labels = node["metadata"].get("labels", {})
    is_mps = expected.sharing == "mps"
    found = [
        f"{LABEL} {name} is {labels.get(name, 'absent')}, not {value or 'absent'}"
        for name, value in expected.labels.items()
        if labels.get(name) != value
    ]
    values = allocatable(node)
    if values != expected.allocatable:
        found.append(f"{ALLOCATABLE} is {_listed(values) or 'nothing'}, not {_listed(expected.allocatable)}")
    found += filter(None, (daemon.unready() for daemon in daemons))
    if is_mps:
        missing = "the MPS control daemon has no DaemonSet" if mps is None else mps.unready()
        found += [missing] if missing else []
    elif mps is not None and mps.pod is not None:
        found.append("the MPS control daemon still runs")
    return found


def _listed(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))


def is_about_pods(problems: Iterable[str]) -> bool:
    """Whether one of the findings of `unmet` is about the pods of a DaemonSet, not about what the node shows."""
    return any(problem.split()[0] not in (LABEL, ALLOCATABLE) for problem in problems)


class Stability:
    """Two polls in a row, `apart_seconds` or more from the first to the last, without anything unmet."""

    def __init__(self, apart_seconds: float) -> None:
        self._apart_seconds = apart_seconds
        self.since_seconds: float | None = None
        """Since when nothing was found; None while something is."""

    def holds(self, now_seconds: float, problems: Sequence[str]) -> bool:
        """Take one poll's findings; True once nothing was found for long enough."""
        if problems:
            self.since_seconds = None
            return False
        if self.since_seconds is None:
            self.since_seconds = now_seconds
            return False
        return now_seconds - self.since_seconds >= self._apart_seconds
