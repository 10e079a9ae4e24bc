"""Shares of the SMs under MPS with which cuBLAS is known to compute wrong half-precision matmuls."""

from sharebench.core.console import format_count
from sharebench.model.strategy import MPS_CLIENTS, Strategy
from sharebench.model.study_config import StudyConfig, tenants_of
from sharebench.model.workload_modules import module_names
from sharebench.study.study import Study

# In whole percent, from and to, with matmuls of cuBLAS 13.1 on an H100 that were wrong.
WRONG_PERCENTS = ((14, 22), (28, 40), (66, 80))
RIGHT_DTYPES = ("float32", "float64")
"""Those that were never wrong, first the default of the built-in workloads."""


def is_never_wrong(config: StudyConfig, workload: str) -> bool:
    """Whether all tenants of a workload, mix or pair compute in RIGHT_DTYPES; of a user's program that is unknown."""
    entries = [entry for name in workload.split("+") for entry in tenants_of(config, name)]
    own = module_names()
    return all(each.module in own and each.params.get("dtype", RIGHT_DTYPES[0]) in RIGHT_DTYPES for each in entries)


def wrong_percents(strategy: Strategy, replicas: int) -> list[float]:
    """The shares of such tenants, each once."""
    limit = strategy.limits(replicas)["thread_percent"] if strategy.mechanism[-1] == "mps" else None
    shares = dict.fromkeys(limit if isinstance(limit, list) else [limit])
    return [each for each in shares if each and any(low <= int(each) <= high for low, high in WRONG_PERCENTS)]


def wrong_answer(strategy: Strategy, replicas: int) -> str:
    """What goes wrong with this number of tenants, and the remedy; empty where nothing is known to."""
    if not (percents := wrong_percents(strategy, replicas)):
        return ""
    right = next((n for n in range(replicas + 1, MPS_CLIENTS + 1) if not wrong_percents(strategy, n)), None)
    remedy = "take another share"
    if right:
        plugin = f"NVIDIA's plugin: `replicas: {right}`; " if str(strategy.thread_percent).startswith("100/") else ""
        remedy = f"give each the share of {right} tenants ({plugin}measure it: --config 'replicas=[{right}]')"
    of_sms = f"{' and '.join(f'{each:.3g}' for each in percents)} % of the SMs"
    return (
        f"with {of_sms} cuBLAS 13.1 computed some half-precision matmuls wrongly on H100 and H200; in half "
        f"precision {remedy}, or check yours: config/conformance.yaml"
    )


def wrong_answer_lines(study: Study) -> list[str]:
    """A line for each strategy and number of tenants with such a share."""
    cells = [each for each in study.cells if not all(is_never_wrong(study.config, w) for w in study.components(each))]
    tried = sorted({(cell.strategy, cell.replicas) for cell in cells})
    return [
        f"{name}, {format_count(replicas, 'tenant', 'tenants')}: {text}"
        for name, replicas in tried
        if (text := wrong_answer(study.strategies[name], replicas))
    ]
