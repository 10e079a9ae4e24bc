"""What each kind of node can do at all, known without looking at a device.

What a particular device cannot do (too few cores, MIG switched off) is a measured outcome and not found here.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharebench.core.files import REPOSITORY
from sharebench.core.strategies import MECHANISMS, Strategy

# Layers that make sense, outer first: only MIG partitions a device into parts that can be shared again.
KNOWN_LAYERS = {("mig", "time-slicing"), ("mig", "mps")}


@dataclass(frozen=True)
class Capability:
    """What one kind of node can do, or one way to the GPU of a cluster."""

    mechanisms: Set[str] = frozenset(MECHANISMS)
    limits: bool = True
    only_even_limits: bool = False
    """A share other than the even one of 100/N is out of reach."""
    claims: bool = False
    """What only a resource claim can ask for: the length of a time slice, and which instances belong together."""


CAPABILITIES: Mapping[str, Capability] = {
    # A stand-in shares cores by affinity: nothing caps a share of threads or memory, there are no streams.
    "cpu": Capability(mechanisms=frozenset(MECHANISMS) - {"streams"}, limits=False),
    "nvidia": Capability(),
    "simulated": Capability(),
}
IN_PODS = frozenset(MECHANISMS) - {"streams", "sequential"}
# What a cluster can do depends on how tenants reach the GPU.
OF_ACCESS: Mapping[str, Capability] = {
    # Its MPS always caps a tenant at its even share, and is refused on MIG instances, with that as the cell's reason.
    "device-plugin": Capability(mechanisms=IN_PODS, only_even_limits=True),
    # Whatever another scheduler does with a GPU, as the strategy's entry has it.
    "static": Capability(mechanisms=IN_PODS),
    # What of it the driver has, and which gates are off, is found on the cluster.
    "dra": Capability(mechanisms=IN_PODS, claims=True),
}
BUILT_KINDS: tuple[str, ...] = (*CAPABILITIES, "kubernetes")

GPU_DEVICE_FILE = Path("/dev/nvidia0")
GPU_PROC_FOLDER = Path("/proc/driver/nvidia/gpus")
ELSEWHERE = "…/"
"""What paths that lead out of a checkout begin with once they are published."""
# Made by `make gpu-env`.
GPU_ENVIRONMENT = REPOSITORY / ".venv-gpu" / "bin" / "python"


def can(kind: str, strategy: Strategy, access: str | None) -> str | None:
    """Why a built kind of node can never do a strategy of the catalogue; None if it can.

    `access` is how tenants reach the GPU in a cluster where the strategy does not have its own.
    """
    if kind == "kubernetes":
        way = str(strategy.access or access)
        if way not in OF_ACCESS:
            return f"access {way} is not built yet"
        capability = OF_ACCESS[way]
        if way == "static" and strategy.pod is None and strategy.mechanisms != ("exclusive",):
            return "under access static the entry says what its pods ask for (pod), and this one does not"
        if way != "static" and strategy.pod is not None:
            return f"pod has no effect under access {way}, only under static"
    elif strategy.access is not None:
        return f"access {strategy.access} is a way to the GPU of a cluster"
    else:
        capability = CAPABILITIES[kind]
    missing = [name for name in strategy.mechanisms if name not in capability.mechanisms]
    if missing:
        return f"it has no {missing[0]}"
    if strategy.is_layered and strategy.mechanisms not in KNOWN_LAYERS:
        return f"it cannot layer {strategy.mechanisms[1]} on {strategy.mechanisms[0]}"
    if strategy.interval is not None and not capability.claims:
        return "nothing sets the length of a time slice there but access: dra"
    if strategy.claim_per is not None and not capability.claims:
        return "nothing claims its instances there but access: dra"
    limits = {
        key: limit for key in ("thread_percent", "memory_percent") if (limit := getattr(strategy, key)) is not None
    }
    if limits and not capability.limits:
        return f"it cannot enforce {' and '.join(limits)}"
    if capability.only_even_limits and any(limit != "100/N" for limit in limits.values()):
        return f"its device plugin caps every tenant at 100/N, no other {' or '.join(limits)}"
    return None


def kinds_that_can(strategy: Strategy, access: str | None) -> list[str]:
    """The built kinds of node that can do a strategy of the catalogue; `access` as in `can`."""
    return [kind for kind in BUILT_KINDS if can(kind, strategy, access) is None]


def has_nvidia_gpu() -> bool:
    """Whether this host shows an NVIDIA GPU, by its device files alone (no driver library is loaded)."""
    return GPU_DEVICE_FILE.exists() or (GPU_PROC_FOLDER.is_dir() and any(GPU_PROC_FOLDER.iterdir()))


def resolve_node(config: Mapping[str, Any]) -> str:
    """Kind of node of a normalised config: `auto` is an NVIDIA GPU if there is one, else the CPU stand-in."""
    kind: str = config["node"]
    if kind != "auto":
        return kind
    return "nvidia" if has_nvidia_gpu() else "cpu"


def has_own_python(options: Mapping[str, Any]) -> bool:
    """Whether the config's `nvidia` section names an interpreter; one of a published config is on another host."""
    return options["python"] != "auto" and not options["python"].startswith(ELSEWHERE)


def gpu_python(options: Mapping[str, Any]) -> Path | None:
    """Interpreter of the tenants on a GPU by the config's `nvidia` section; None where `auto` finds none."""
    if has_own_python(options):
        return Path(options["python"])
    return GPU_ENVIRONMENT if GPU_ENVIRONMENT.exists() else None
