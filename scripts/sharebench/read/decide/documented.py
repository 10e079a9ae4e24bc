"""Documented isolation and effort of the mechanisms, each with its source; measurements take precedence."""

from collections.abc import Mapping
from dataclasses import dataclass

from sharebench.model.strategy import GREEN_CONTEXTS, HAMI_CORE, LIMIT_KEYS, Strategy

MEASURED, DOCUMENTED, UNKNOWN = "measured", "documented", "unknown"
MIG_GUIDE = "NVIDIA MIG user guide"
MPS_GUIDE = "NVIDIA MPS documentation"
CUDA_GUIDE = "CUDA driver API, green contexts"
KUBECON = "Klues and Chen, KubeCon NA 2024"


@dataclass(frozen=True)
class Isolation:
    """Whether tenants are isolated (None where unknown), how that is known, and why."""

    holds: bool | None
    basis: str
    text: str


ALONE = Isolation(True, DOCUMENTED, "no neighbour on its device")
NOT_JUDGED = Isolation(None, UNKNOWN, "not judged")
NOT_ISOLATED: Mapping[str, str] = {
    "mig": f"not between tenants of one instance ({MIG_GUIDE})",
    "time-slicing": f"every tenant waits for the turns of the others ({KUBECON})",
    HAMI_CORE: "launches are delayed to keep a share on average, and the GPU is time-sliced (HAMi-core README)",
    GREEN_CONTEXTS: f"SMs of its own, cache and bandwidth are shared ({CUDA_GUIDE})",
}
"""Why neighbours can slow a tenant down under a mechanism, for layers the outer one; others are like MPS."""


def performance_isolation(strategy: Strategy) -> Isolation:
    """Whether neighbours cannot slow a tenant down, according to documentation."""
    if strategy.mechanism == ("exclusive",):
        return ALONE
    if strategy.mechanism == ("mig",):
        return Isolation(True, DOCUMENTED, f"SMs, cache and bandwidth of its own ({MIG_GUIDE})")
    limits = f"limits on SMs are ceilings, cache and bandwidth are shared ({MPS_GUIDE})"
    otherwise = limits if has_limits(strategy) else f"all is shared ({MPS_GUIDE})"
    return Isolation(False, DOCUMENTED, NOT_ISOLATED.get(strategy.mechanism[0], otherwise))


def fault_isolation(strategy: Strategy) -> Isolation:
    """Whether a fatal fault of a tenant leaves its neighbours alive, according to documentation."""
    if strategy.mechanism == ("exclusive",):
        return ALONE
    if strategy.mechanism == ("mig",):
        return Isolation(True, DOCUMENTED, f"a fault stays in its instance ({MIG_GUIDE})")
    inner = strategy.mechanism[-1]
    if inner == "mps":
        return Isolation(False, DOCUMENTED, f"a fatal fault is reported to every client of the server ({MPS_GUIDE})")
    if strategy.is_one_process:
        return Isolation(False, DOCUMENTED, "all tenants are one process")
    return Isolation(None, UNKNOWN, "contexts of their own, but sources differ on a common fault domain; not measured")


EFFORTS: Mapping[tuple[str, ...], str] = {
    ("exclusive",): "none",
    ("time-slicing",): "none: what a GPU does by itself",
    (HAMI_CORE,): "a library built and preloaded into each tenant",
    (HAMI_CORE, "limits"): "a library built and preloaded into each tenant, and its limits to be chosen",
    ("mps",): "a daemon next to the tenants",
    ("mps", "limits"): "a daemon, and limits to be chosen per tenant",
    ("mig",): "instances made in advance, on an idle GPU",
    ("mig", "time-slicing"): "instances made in advance, tenants spread over them",
    ("mig", "mps"): "instances made in advance, and a daemon in each",
    ("streams",): "all tenants rewritten into one process",
    (GREEN_CONTEXTS, "limits"): "all tenants rewritten into one process, which divides the SMs",
}
"""Effort to set a mechanism up, from the least to the most (ease: KUBECON; the rest is our judgement)."""


def effort(strategy: Strategy) -> tuple[int, str]:
    """Rank of the effort (0 is none), and its description."""
    kind = (*strategy.mechanism, "limits") if has_limits(strategy) else strategy.mechanism
    rank = list(EFFORTS).index(kind) if kind in EFFORTS else len(EFFORTS)
    return rank, EFFORTS.get(kind, "not known")


def has_limits(strategy: Strategy) -> bool:
    """Whether the strategy caps each tenant's share of SMs or memory."""
    return any(getattr(strategy, limit) is not None for limit in LIMIT_KEYS)
