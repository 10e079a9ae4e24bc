"""Shares of the SMs under MPS with which cuBLAS is known to compute wrong half-precision matmuls."""

from itertools import islice

from sharebench.core.console import format_count
from sharebench.model.strategy import MPS_CLIENTS, Strategy
from sharebench.study.study import Study

# In whole percent, from and to, with matmuls of cuBLAS 13.1 on an H100 that were wrong.
WRONG_PERCENTS = ((14, 22), (28, 40), (66, 80))
MAX_NAMED = 4
"""The largest number of other numbers of tenants that the remedy names."""


def wrong_percents(strategy: Strategy, replicas: int) -> list[float]:
    """The shares of such tenants, each once."""
    limit = strategy.limits(replicas)["thread_percent"] if strategy.mechanism[-1] == "mps" else None
    shares = dict.fromkeys(limit if isinstance(limit, list) else [limit])
    return [each for each in shares if each and any(low <= int(each) <= high for low, high in WRONG_PERCENTS)]


def wrong_answer(strategy: Strategy, replicas: int) -> str:
    """What goes wrong with this number of tenants, and the remedy; empty where nothing is known to."""
    if not (percents := wrong_percents(strategy, replicas)):
        return ""
    right = [*islice((n for n in range(2, MPS_CLIENTS + 1) if not wrong_percents(strategy, n)), MAX_NAMED)]
    *some, last = map(str, right or [0])
    remedy = f"take {', '.join(some)} or {last} tenants" if right else "take another share"
    of_sms = f"{' and '.join(f'{each:.3g}' for each in percents)} % of the SMs"
    return (
        f"with {of_sms} cuBLAS 13.1 computed some half-precision matmuls wrongly on H100 and H200; {remedy}, or check "
        "yours: config/conformance.yaml"
    )


def wrong_answer_lines(study: Study) -> list[str]:
    """A line for each strategy and number of tenants with such a share."""
    tried = sorted({(cell.strategy, cell.replicas) for cell in study.cells})
    return [
        f"{name}: {format_count(replicas, 'tenant', 'tenants')} {text}"
        for name, replicas in tried
        if (text := wrong_answer(study.strategies[name], replicas))
    ]
