"""The strategies of a study's catalogue: their order, their A/A controls, and what an access makes of them."""

from __future__ import annotations

from sharebench.model.pod_template import WHOLE_GPU
from sharebench.model.strategy import MECHANISMS, SHARE_KEYS, Share, Strategy
from sharebench.model.study_config import StudyConfig

# The share of the SMs that NVIDIA's device plugin sets for each MPS client, whatever else is asked for.
EVEN_WHOLE_PERCENT = "100//N"
CONTROL_SUFFIX = "-again"


def control_name(strategy: str) -> str:
    """Name of a strategy's A/A control: the same strategy, set up and measured a second time."""
    return f"{strategy}{CONTROL_SUFFIX}"


def is_control(strategy: str) -> bool:
    """Whether the strategy is an A/A control; the config refuses any other strategy with such a name."""
    return strategy.endswith(CONTROL_SUFFIX)


def _round_down(share: Share | None) -> Share | None:
    """The share rounded down to whole percent, such as 100//N for 100/N."""
    if isinstance(share, tuple):
        return tuple(float(int(own)) for own in share)
    if isinstance(share, str):
        return share if "//" in share else share.replace("/", "//")
    return None if share is None else float(int(share))


def _reading_order(strategy: Strategy) -> tuple[bool, int, list[int], str]:
    """Sort key: plain mechanisms before layers, mechanisms before their limited variants, cluster entries last."""
    ranks = [list(MECHANISMS).index(name) for name in strategy.mechanism]
    return strategy.access is not None, len(ranks), ranks, strategy.name


def effective_strategy(strategy: Strategy) -> Strategy:
    """The strategy as its access enforces it: most kinds of access know whole percent only.

    NVIDIA's device plugin caps every MPS client at an even share. Under `static`, a bare `exclusive` is one whole GPU.
    """
    whole = {name: _round_down(getattr(strategy, name)) for name in SHARE_KEYS}
    match strategy.access, strategy.mechanism:
        case "device-plugin", ("mps",):
            return strategy.changed(thread_percent=EVEN_WHOLE_PERCENT, memory_percent="100/N")
        case "static", ("exclusive",) if strategy.pod is None:
            return strategy.changed(**whole, pod=WHOLE_GPU)
        case "static", _:
            return strategy.changed(**whole)
        case ("dra", _) | (None, ("hami-core",)):
            return strategy.changed(thread_percent=whole["thread_percent"])
    return strategy


def all_strategies(config: StudyConfig) -> dict[str, Strategy]:
    """All strategies of a normalised config (`sharebench.model.config.load.load`) by name, in the order of tables.

    The strategies are sorted because the order of a mapping's keys does not survive Snakemake's merging.
    """
    return {strategy.name: strategy for strategy in sorted(config["strategy_catalogue"].values(), key=_reading_order)}


def node_strategies(config: StudyConfig, kind: str) -> dict[str, Strategy]:
    """All strategies of a normalised config, as this kind of node enforces them."""
    strategies = all_strategies(config)
    if kind == "kubernetes":
        default = config["kubernetes"]["access"]
        strategies = {name: each.changed(access=each.access or default) for name, each in strategies.items()}
    return {name: effective_strategy(strategy) for name, strategy in strategies.items()}
