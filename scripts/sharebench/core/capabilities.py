"""What each kind of node can do at all, known without looking at a device.

What a particular device cannot do (too few cores, MIG switched off) is a measured outcome and not found here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharebench.core.files import REPOSITORY
from sharebench.core.strategies import MECHANISMS

Layers = tuple[str, str]

# Layers that make sense, outer first: only MIG cuts a device into parts that can be shared again.
KNOWN_LAYERS: frozenset[Layers] = frozenset({("mig", "time-slicing"), ("mig", "mps")})


@dataclass(frozen=True)
class Capability:
    """What one kind of node can do."""

    mechanisms: frozenset[str]
    layers: frozenset[Layers]
    limits: bool
    # A share other than the even one of 100/N is out of reach.
    only_even_limits: bool = False
    # What only a resource claim can say: the length of a time slice, and which instances belong together.
    claims: bool = False


CAPABILITIES: Mapping[str, Capability] = {
    # A stand-in shares cores by affinity: nothing caps a share of threads or memory, there are no streams.
    "cpu": Capability(frozenset(MECHANISMS) - {"streams"}, KNOWN_LAYERS, limits=False),
    "nvidia": Capability(frozenset(MECHANISMS), KNOWN_LAYERS, limits=True),
    "simulated": Capability(frozenset(MECHANISMS), KNOWN_LAYERS, limits=True),
}
# What a cluster can do depends on how tenants reach the GPU.
OF_ACCESS: Mapping[str, Capability] = {
    # Its MPS always caps a tenant at its even share, and is refused on MIG instances, with that as the cell's reason.
    "device-plugin": Capability(
        frozenset({"exclusive", "time-slicing", "mps", "mig"}), KNOWN_LAYERS, limits=True, only_even_limits=True
    ),
    # Whatever another scheduler does with a GPU; the strategy's entry says what that is.
    "static": Capability(frozenset({"exclusive", "time-slicing", "mps", "mig"}), KNOWN_LAYERS, limits=True),
    # What of it the driver has, and which gates are off, is found on the cluster.
    "dra": Capability(frozenset({"exclusive", "time-slicing", "mps", "mig"}), KNOWN_LAYERS, limits=True, claims=True),
}
BUILT_KINDS: tuple[str, ...] = (*CAPABILITIES, "kubernetes")

GPU_DEVICE_FILE = Path("/dev/nvidia0")
GPU_PROC_FOLDER = Path("/proc/driver/nvidia/gpus")
ELSEWHERE = "…/"
"""What paths that lead out of a checkout begin with once they are published."""
# Made by `make gpu-env`.
GPU_ENVIRONMENT = REPOSITORY / ".venv-gpu" / "bin" / "python"


def can(kind: str, entry: Mapping[str, Any], access: str | None) -> str | None:
    """Why a built kind of node can never do the strategy of a normalised catalogue entry; None if it can.

    `access` is how tenants reach the GPU in a cluster where the entry does not say so itself.
    """
    own = entry.get("access")
    if kind == "kubernetes":
        way = str(own or access)
        if way not in OF_ACCESS:
            return f"access {way} is not built yet"
        capability = OF_ACCESS[way]
        if way == "static" and entry.get("pod") is None and entry["mechanism"] != ["exclusive"]:
            return "under access static the entry says what its pods ask for (pod), and this one does not"
        if way != "static" and entry.get("pod") is not None:
            return f"pod has no effect under access {way}, only under static"
    elif own is not None:
        return f"access {own} is a way to the GPU of a cluster"
    else:
        capability = CAPABILITIES[kind]
    mechanisms = tuple(entry["mechanism"])
    missing = [name for name in mechanisms if name not in capability.mechanisms]
    if missing:
        return f"it has no {missing[0]}"
    if len(mechanisms) > 1 and mechanisms not in capability.layers:
        return f"it cannot layer {mechanisms[1]} on {mechanisms[0]}"
    if entry.get("interval") is not None and not capability.claims:
        return "nothing sets the length of a time slice there but access: dra"
    if entry.get("claim_per") is not None and not capability.claims:
        return "nothing claims its instances there but access: dra"
    limits = [key for key in ("thread_percent", "memory_percent") if entry[key] is not None]
    if limits and not capability.limits:
        return f"it cannot enforce {' and '.join(limits)}"
    if capability.only_even_limits and any(entry[key] != "100/N" for key in limits):
        return f"its device plugin caps every tenant at 100/N, no other {' or '.join(limits)}"
    return None


def kinds_that_can(entry: Mapping[str, Any], access: str | None) -> list[str]:
    """The built kinds of node that can do the strategy of a normalised catalogue entry; `access` as in `can`."""
    return [kind for kind in BUILT_KINDS if can(kind, entry, access) is None]


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
