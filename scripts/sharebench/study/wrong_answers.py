"""Shares of the SMs under MPS with which cuBLAS is known to compute wrong half-precision products."""

from sharebench.core.console import format_count
from sharebench.study.study import Study

# In whole percent, from and to, with products of cuBLAS 13.1 on an H100 that were wrong.
WRONG_PERCENTS = ((14, 22), (28, 40), (66, 80))


def wrong_answer_lines(study: Study) -> list[str]:
    """A line for each strategy and number of tenants with such a share."""
    affected: dict[tuple[str, int], float] = {}
    for cell in study.cells:
        entry = study.strategies[cell.strategy]
        limit = entry.limits(cell.replicas)["thread_percent"] if entry.mechanism[-1] == "mps" else None
        for percent in limit if isinstance(limit, list) else [limit]:
            if percent is not None and any(low <= int(percent) <= high for low, high in WRONG_PERCENTS):
                affected[cell.strategy, cell.replicas] = percent
    return [
        f"{name}: {format_count(replicas, 'tenant', 'tenants')} with {percent:.3g} % of the SMs: cuBLAS 13.1 computed "
        "wrong half-precision products on H100 and H200; take 2, 4, 8 or 9 tenants, or check yours: "
        "config/conformance.yaml"
        for (name, replicas), percent in sorted(affected.items())
    ]
