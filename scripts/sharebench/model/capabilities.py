"""Capabilities of each kind of node, as far as they are known without looking at a device.

The limits of one particular device (too few cores, MIG switched off) are a measured outcome and not found here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sharebench.model.strategy import LIMIT_KEYS, MECHANISMS, Strategy
from sharebench.model.values import Kind


@dataclass(frozen=True)
class Capability:
    """Capability of a kind of node, or of one kind of access to the GPU of a cluster."""

    enforces_limits: bool = True
    only_even_limits: bool = False
    """Whether the only share that it can enforce is 100/N."""
    has_own_limits: bool = False
    """Whether each tenant may have its own limits, a memory limit may be an amount, and MPS clients have a priority."""
    makes_claims: bool = False
    """Whether it makes resource claims, which can ask for a time slice, related instances or several GPUs."""


@dataclass(frozen=True)
class NodeKind:
    """Facts of a kind of node that are known without importing its code."""

    driver: str
    """Path of its class below `sharebench.measure.nodes`."""
    first_overhead_seconds: float
    """Expected overhead of a cell before any has been measured."""
    capability: Capability | None = Capability()
    """None where it depends on the access."""
    has_gpus: bool = False
    """Whether its device may be a real GPU, with power and clocks."""
    is_slow_to_switch: bool = False
    is_virtual: bool = False
    """Whether its windows take no time and its tenants run no code."""


NODE_KINDS: Mapping[str, NodeKind] = {
    # A stand-in shares cores by affinity: nothing caps a share of threads or memory, there are no streams.
    "cpu": NodeKind("host.cpu.CpuNode", 1.5, Capability(enforces_limits=False)),
    "nvidia": NodeKind("host.nvidia.NvidiaNode", 10.0, Capability(has_own_limits=True), has_gpus=True),
    "simulated": NodeKind("simulated.node.SimulatedNode", 0.2, is_virtual=True),
    "kubernetes": NodeKind("kubernetes.node.ClusterNode", 15.0, None, has_gpus=True, is_slow_to_switch=True),
}
# In a cluster the capability depends on how tenants reach the GPU.
ACCESS_CAPABILITIES: Mapping[str, Capability] = {
    # Its MPS always caps a tenant at an even share. On MIG instances it refuses MPS, which is the cell's reason then.
    "device-plugin": Capability(only_even_limits=True),
    # Another scheduler shares the GPU, as the strategy's entry describes.
    "static": Capability(),
    # The cluster shows which of these its DRA driver has, and which feature gates are off.
    "dra": Capability(has_own_limits=True, makes_claims=True),
}
GPU_DEVICE_FILE = Path("/dev/nvidia0")
GPU_PROC_FOLDER = Path("/proc/driver/nvidia/gpus")


def unsupported_reason(kind: str, strategy: Strategy, access: str | None) -> str | None:
    """The reason why a kind of node can never do a strategy of the catalogue; None if it can.

    `access` is the cluster's way to the GPU for a strategy that does not name its own.
    """
    capability = NODE_KINDS[kind].capability
    if capability is None:
        way = str(strategy.access or access)
        capability = ACCESS_CAPABILITIES[way]
        if way == "static" and strategy.pod is None and strategy.mechanism != ("exclusive",):
            return "under access static an entry needs a pod, which asks for a share, and this one has none"
        if way != "static" and strategy.pod is not None:
            return f"pod has no effect under access {way}, only under static"
    elif strategy.access is not None:
        return f"access {strategy.access} is a way to the GPU of a cluster"
    for name in strategy.mechanism:
        if kind not in MECHANISMS[name].nodes:
            return f"it has no {name}"
    if strategy.interval is not None and not capability.makes_claims:
        return "nothing sets the length of a time slice there but access: dra"
    if not capability.makes_claims and (strategy.claim_per, strategy.gpus) != (None, None):
        return "nothing there makes claims as it wants them but access: dra"
    limits = {key: limit for key in LIMIT_KEYS if (limit := getattr(strategy, key)) is not None}
    if limits and not capability.enforces_limits:
        return f"it cannot enforce {' and '.join(limits)}"
    if capability.only_even_limits and any(limit != "100/N" for limit in limits.values()):
        return f"its device plugin caps every tenant at 100/N, no other {' or '.join(limits)}"
    if (strategy.is_unequal or strategy.memory_limit is not None) and not capability.has_own_limits:
        return "it limits all tenants alike and by shares: no list of limits, no memory_limit, no priority"
    return None


def supporting_kinds(strategy: Strategy, access: str | None) -> list[str]:
    """The kinds of node that can do a strategy of the catalogue; `access` as in `unsupported_reason`."""
    return [kind for kind in NODE_KINDS if unsupported_reason(kind, strategy, access) is None]


def has_nvidia_gpu() -> bool:
    """Whether this host shows an NVIDIA GPU, by its device files alone (no driver library is loaded)."""
    return GPU_DEVICE_FILE.exists() or (GPU_PROC_FOLDER.is_dir() and any(GPU_PROC_FOLDER.iterdir()))


def resolve_node_kind(node: Kind | Literal["auto"]) -> Kind:
    """The kind of node by the config's `node`; `auto` is an NVIDIA GPU if there is one, else the CPU stand-in."""
    if node != "auto":
        return node
    return "nvidia" if has_nvidia_gpu() else "cpu"
