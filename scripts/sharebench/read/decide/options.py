"""The input of advice.py from the tables: each strategy's levels, isolation and effort."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from sharebench.model.capabilities import unsupported_reason
from sharebench.model.question import Deployment
from sharebench.model.strategy import Access, Strategy
from sharebench.read.decide import documented
from sharebench.read.decide.advice import Level, Option
from sharebench.read.decide.device import DeviceLimits
from sharebench.read.decide.documented import MEASURED, Isolation
from sharebench.read.decide.elsewhere import Known
from sharebench.read.decide.rows import (
    AT_LEAST,
    MAX,
    MEAN,
    SLOWDOWN,
    STP,
    TOKENS,
    TOTAL,
    SummaryRow,
    known_percentiles,
    tenants_in_memory,
)
from sharebench.read.over_one import GroupKey
from sharebench.read.slo import LATENCY
from sharebench.read.statistics.intervals import Estimate
from sharebench.study.wrong_answers import wrong_answer

# Statuses of cells for which no tenant was started.
NEVER_STARTED = ("infeasible", "not-measured")
MAX_ISOLATED_GROWTH = 1.1
"""Tenants count as isolated while their mean latency is at most this many times that of one under the strategy."""


PLUGINS_MPS = "mps-limited"
"""The strategy that is called MPS by NVIDIA's device plugin."""


class Terms(NamedTuple):
    """What the asker can have, as in the question."""

    deploy: Deployment = "auto"
    one_process: bool = False


USUAL = Terms()


def strategy_options(
    workload: str,
    summary: Sequence[SummaryRow],
    strategies: Mapping[str, Strategy],
    device: DeviceLimits,
    known: Known,
    is_open_load: bool = False,
    terms: Terms = USUAL,
    never_wrong: bool = False,
    one_load: bool = False,
    over_one: Mapping[GroupKey, Estimate] = MappingProxyType({}),
) -> list[Option]:
    """One option per strategy of the workload, in the catalogue's order.

    No share of the SMs makes a workload wrong that is `never_wrong`. Under `one_load` its tenants are replicas: more
    have less load each, so that a lower latency does not mean isolation. `over_one` is `Results.over_one`.
    """
    options = []
    for name, strategy in strategies.items():
        if strategy.mechanism == ("exclusive",) and name != "exclusive":
            # Leave out other ways to get a whole device, such as a claim.
            continue
        measured = [row for row in summary if (row.strategy, row.workload) == (name, workload)]
        if not measured:
            continue
        levels = {
            row.replicas: replace(
                level,
                performance=_performance(row, () if one_load else measured, strategy),
                gain=(level.slowdown and level.slowdown.inverse_times(1))
                if one_load and is_open_load
                else _gain(row, over_one, is_open_load or one_load),
            )
            for row in measured
            if (level := measured_level(row, is_open_load))
        }
        sizes = range(1, max(row.replicas for row in measured) + 1)
        infeasible = {n: reason for n in sizes if (reason := device.infeasible(strategy, n))}
        fitting, where = known.memory.get((name, workload), (tenants_in_memory(measured), ""))
        option = known_option(strategy, levels, known, terms, never_wrong, sizes)
        # Of cells that were excluded for wrong answers a hazard has the remedy.
        texts = {n: (why, option.hazards.get(n)) for n, why in (infeasible | _infeasible_reasons(measured)).items()}
        options.append(
            replace(
                option,
                infeasible={n: "; ".join(filter(None, found)) for n, found in texts.items()},
                max_by_memory=fitting,
                memory_basis=where,
                has_one_load=one_load,
            )
        )
    return options


def known_option(
    strategy: Strategy,
    levels: Mapping[int, Level],
    known: Known,
    terms: Terms,
    never_wrong: bool,
    sizes: Sequence[int] = (),
) -> Option:
    """The option with all that does not come from rows of its workload; `sizes` has numbers of tenants without a level.

    Something may be wrong with those, and with the numbers of tenants that larger ones are judged for.
    """
    judged = () if never_wrong else range(1, max([*levels, *sizes], default=0) + 1)
    texts = {n: (known.wrong_answers.get((strategy.name, n)), wrong_answer(strategy, n)) for n in judged}
    return Option(
        strategy.name,
        levels,
        known.faults.get(strategy.name, documented.fault_isolation(strategy)),
        documented.effort(strategy)[0],
        is_sharing=strategy.mechanism != ("exclusive",),
        unavailable=_unavailable_reason(strategy, terms),
        instead=PLUGINS_MPS if _is_capped(strategy, terms) else "",
        hazards={n: "; ".join(filter(None, found)) for n, found in texts.items() if any(found)},
    )


def is_alone(row: SummaryRow) -> bool:
    return row.strategy == "exclusive" and row.replicas == 1


def _gain(row: SummaryRow, over_one: Mapping[GroupKey, Estimate], is_by_requests: bool) -> Estimate | None:
    """Throughput over one tenant alone; of a closed loop by slowdowns, of an open load and of replicas in requests.

    Replicas have each a part of the load of one alone, so that their slowdowns, and `stp`, say nothing.
    """
    if not is_by_requests and STP in row.metrics:
        return row.metrics[STP]
    return over_one.get((row.strategy, row.workload, row.replicas))


def _unavailable_reason(strategy: Strategy, terms: Terms) -> str:
    """Why the asker cannot have a strategy of a study; empty if he can."""
    if strategy.is_one_process and not terms.one_process:
        return "all tenants would be one process (one_process)"
    accesses: dict[Deployment, Access] = {"device-plugin": "device-plugin", "claims": "dra"}
    access = accesses.get(terms.deploy)
    if access is None or strategy.mechanism == ("exclusive",):
        return ""
    if strategy.access is not None:
        return "" if strategy.access == access else f"it was measured with access {strategy.access} (deploy)"
    if _is_capped(strategy, terms):
        return f"the device plugin caps every MPS tenant at 100/N, which is {PLUGINS_MPS} (deploy)"
    why = unsupported_reason("kubernetes", strategy, access)
    return f"{why} (deploy)" if why else ""


def _is_capped(strategy: Strategy, terms: Terms) -> bool:
    """Whether it is MPS without limits, and deployed by the device plugin, which sets them."""
    is_free_mps = strategy.mechanism == ("mps",) and not documented.has_limits(strategy)
    return terms.deploy == "device-plugin" and strategy.access is None and is_free_mps


def _infeasible_reasons(measured: Sequence[SummaryRow]) -> dict[int, str]:
    """Numbers of tenants without a valid cell, with the reason; includes all between two that were never started."""
    reasons = {row.replicas: row.reason or row.status for row in measured if row.n == 0}
    impossible = sorted(row.replicas for row in measured if row.status in NEVER_STARTED)
    if len(impossible) == len(measured):
        for low, high in pairwise(impossible):
            reasons |= dict.fromkeys(range(low + 1, high), reasons[low])
    return reasons


def _performance(row: SummaryRow, rows: Sequence[SummaryRow], strategy: Strategy) -> Isolation:
    alone = next((each.metrics[MEAN] for each in rows if each.replicas == 1 and MEAN in each.metrics), None)
    if alone is not None and row.replicas > 1 and MEAN in row.metrics:
        growth = row.metrics[MEAN].value / alone.value
        text = f"{row.replicas} tenants have {growth:.2f} × the latency of one with this strategy"
        return Isolation(growth <= MAX_ISOLATED_GROWTH, MEASURED, text)
    return documented.performance_isolation(strategy)


def measured_level(row: SummaryRow, is_open_load: bool = False) -> Level | None:
    """The level of a row, without its performance isolation and gain; None without a valid cell or a latency."""
    known = known_percentiles(row) if row.n > 0 else {}
    if LATENCY not in known:
        return None
    percentile, latency = known.pop(LATENCY)
    mean = row.metrics.get(MEAN) if is_open_load else None
    return Level(
        replicas=row.replicas,
        percentile=percentile,
        latency=latency,
        throughput=row.metrics.get(TOTAL),
        performance=documented.NOT_JUDGED,
        inverse_latency=mean and mean.inverse_times(1),
        p99=row.percentile("p99"),
        longest=row.percentile(MAX),
        p95_at_least=row.percentile(AT_LEAST),
        stream=known,
        tokens=row.metrics.get(TOKENS),
        mean=row.metrics.get(MEAN),
        slowdown=row.metrics.get(SLOWDOWN),
        harms=row.harms,
    )
