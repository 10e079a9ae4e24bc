"""The input of advice.py from the tables: each strategy's levels, isolation and effort."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from sharebench.model.strategy import Strategy
from sharebench.read.decide import documented
from sharebench.read.decide.advice import Level, Option
from sharebench.read.decide.device import DeviceLimits
from sharebench.read.decide.documented import MEASURED, Isolation
from sharebench.read.decide.rows import (
    MEAN,
    TOKENS,
    TOTAL,
    SummaryRow,
    common_percentile,
    known_parts,
    percentile_column,
    tenants_in_memory,
)
from sharebench.read.slo import LATENCY, PART_LABELS

# Statuses of cells for which no tenant was started.
NEVER_STARTED = ("infeasible", "not-measured")
MAX_ISOLATED_GROWTH = 1.1
"""Tenants count as isolated while their mean latency is at most this many times that of one under the strategy."""


def strategy_options(
    workload: str,
    summary: Sequence[SummaryRow],
    strategies: Mapping[str, Strategy],
    device: DeviceLimits,
    faults: Mapping[str, Isolation],
    is_open_load: bool = False,
) -> list[Option]:
    """One option per strategy of the workload, in the catalogue's order; `faults` is measured fault isolation."""
    options = []
    for name, strategy in strategies.items():
        if strategy.mechanism == ("exclusive",) and name != "exclusive":
            # Leave out other ways to get a whole device, such as a claim.
            continue
        measured = [row for row in summary if (row.strategy, row.workload) == (name, workload)]
        streams = any(part != LATENCY for part in known_parts([row for row in summary if row.workload == workload]))
        levels = {row.replicas: level for row in measured if (level := _level(row, measured, strategy, is_open_load))}
        if measured:
            sizes = range(1, max(row.replicas for row in measured) + 1)
            infeasible = {n: reason for n in sizes if (reason := device.infeasible(strategy, n))}
            options.append(
                Option(
                    strategy=name,
                    levels=levels,
                    fault=faults.get(name, documented.fault_isolation(strategy)),
                    effort=documented.effort(strategy)[0],
                    is_sharing=strategy.mechanism != ("exclusive",),
                    infeasible=infeasible | _infeasible_reasons(measured),
                    max_by_memory=tenants_in_memory(measured),
                    streams=streams,
                )
            )
    return options


def _infeasible_reasons(measured: Sequence[SummaryRow]) -> dict[int, str]:
    """Numbers of tenants without a valid cell, with the reason; includes all between two that were never started."""
    reasons = {row.replicas: row.reason or row.status for row in measured if row.n == 0}
    impossible = sorted(row.replicas for row in measured if row.status in NEVER_STARTED)
    if len(impossible) == len(measured):
        for low, high in pairwise(impossible):
            reasons |= dict.fromkeys(range(low + 1, high), reasons[low])
    return reasons


def _level(row: SummaryRow, rows: Sequence[SummaryRow], strategy: Strategy, is_open_load: bool) -> Level | None:
    percentile = common_percentile([row]) if row.n > 0 else None
    latency = row.percentile(percentile) if percentile else None
    if percentile is None or latency is None:
        return None
    alone = next((each.metrics[MEAN] for each in rows if each.replicas == 1 and MEAN in each.metrics), None)
    isolation = documented.performance_isolation(strategy)
    if alone is not None and row.replicas > 1 and MEAN in row.metrics:
        growth = row.metrics[MEAN].value / alone.value
        text = f"{row.replicas} tenants have {growth:.2f} × the latency of one with this strategy"
        isolation = Isolation(growth <= MAX_ISOLATED_GROWTH, MEASURED, text)
    mean = row.metrics.get(MEAN) if is_open_load else None
    names = {part: name for part in PART_LABELS if part != LATENCY and (name := common_percentile([row], part))}
    return Level(
        replicas=row.replicas,
        percentile=percentile,
        latency=latency,
        throughput=row.metrics.get(TOTAL),
        performance=isolation,
        inverse_latency=mean and mean.inverse_times(1),
        stream={part: (name, row.metrics[percentile_column(name, part)]) for part, name in names.items()},
        tokens=row.metrics.get(TOKENS),
    )
