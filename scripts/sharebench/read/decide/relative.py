"""Answers about mixes and jobs, by the same rule: what tenants do together, over one GPU each or a queue."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pandas as pd

from sharebench.model.strategy import Strategy
from sharebench.read.decide import documented
from sharebench.read.decide.advice import Demand, Level, Option, advise
from sharebench.read.decide.answers import MEASURED_ONCE, Answer, Fact, decided, no_plan_answer
from sharebench.read.decide.documented import MEASURED, Isolation
from sharebench.read.decide.options import MAX_ISOLATED_GROWTH, measured_level
from sharebench.read.decide.reasons import GAIN, Reason
from sharebench.read.decide.rows import SLOWDOWN, STP, SummaryRow, estimate
from sharebench.read.grouping import group_by
from sharebench.read.harm import CellKey, Harm, is_wrong
from sharebench.read.quantity import format_ends, format_quantity
from sharebench.read.slo import format_limits
from sharebench.read.statistics.intervals import Estimate

OVER_A_QUEUE = "speed over a queue"
ONE = Estimate(1.0, 1.0, 1.0)
Shared = Callable[[Strategy, Mapping[int, Level]], Option]
"""Makes the option of a strategy from its levels."""


def mix_answer(
    workload: str,
    rows: Sequence[SummaryRow],
    strategies: Mapping[str, Strategy],
    shared: Shared,
    demand: Demand,
    is_gpu: bool,
    limits: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    alone: Sequence[SummaryRow] = (),
) -> Answer | None:
    """The answer for a mix from its rows of the summary, one for each strategy, number and kind of tenants.

    Plans are ordered by `stp`: the sum of what each tenant does, over what it does alone. Under a plan each tenant
    holds its own `limits`, if any apply to its workload; `alone` are the rows of such workloads alone.
    """
    known = [row for row in rows if row.metrics.keys() >= {STP, SLOWDOWN} and row.strategy in strategies]
    wrong = [row for row in rows if is_wrong(row.harms) and row.strategy in strategies]
    if not (known or wrong):
        return None
    size = _nearest_size([row.replicas for row in known or wrong], demand)
    own = group_by((row for row in known if row.replicas == size), lambda row: row.strategy)
    kinds = {row.tenant_workload for row in known}
    late = _beyond_limits([row for row in alone if row.tenant_workload in kinds], limits, must_be_known=False)
    options, facts = [replace(_alone("exclusive", 1), beyond_limits=late)], {}
    for name, found in own.items():
        slowest = max(row.metrics[SLOWDOWN].value for row in found)
        isolation = Isolation(slowest <= MAX_ISOLATED_GROWTH, MEASURED, f"the slowest has {slowest:.3g} × its latency")
        option = shared(strategies[name], _level(size, found[0].metrics[STP], isolation, found[0].harms))
        of_tenants = [row for row in rows if (row.strategy, row.replicas) == (name, size)]
        options.append(replace(option, beyond_limits=_beyond_limits(of_tenants, limits)))
        slowdowns = {row.tenant_workload: f"× {format_quantity(row.metrics[SLOWDOWN].value)}" for row in found}
        facts[name] = [Fact(f"latency of {tenant}", text, "of one alone") for tenant, text in slowdowns.items()]

    excluded = {row.strategy: row.reason for row in wrong if row.replicas == size}
    options += [_without_plan(shared(strategies[name], {}), size, reason) for name, reason in excluded.items()]
    left_out = {row.strategy for row in known} - own.keys() - excluded.keys()
    held = {row.tenant_workload: limits[row.tenant_workload] for row in known if limits.get(row.tenant_workload)}
    asked = replace(demand, limits={}) if held else demand
    answer = _answer(workload, options, asked, (size, size), left_out, "work per GPU", facts, is_gpu)
    if not held:
        return answer
    texts = "; ".join(f"{name} {format_limits(each)}" for name, each in held.items())
    if all(each.devices is None for each in answer.plans):
        answer = replace(answer, headline=f"{answer.headline} within {texts}")
    condition = f"A plan must hold {texts}, by the percentiles that are known."
    return replace(answer, reasons=[*answer.reasons, Reason("scope", condition)])


def _beyond_limits(
    rows: Sequence[SummaryRow], limits: Mapping[str, Mapping[str, float]], must_be_known: bool = True
) -> str:
    """Why the tenants of these rows do not hold their limits; empty if they do."""
    texts = []
    for row in rows:
        demand, level = Demand(1, limits.get(row.tenant_workload, {})), measured_level(row)
        if late := level.exceeding_part(demand) if level else None:
            texts.append(f"{row.tenant_workload} has {late.name} {late.excess}")
        elif must_be_known and demand.limits and (level is None or len(level.slo_parts(demand)) < len(demand.limits)):
            texts.append(f"{row.tenant_workload}: {level.lacking(demand) if level else 'no percentile is known'}")
    return "; ".join(texts)


def jobs_answer(
    workload: str,
    rows: pd.DataFrame,
    strategies: Mapping[str, Strategy],
    queue: str,
    shared: Shared,
    demand: Demand,
    is_gpu: bool,
) -> Answer | None:
    """The answer for jobs from their rows of tables/jobs.csv. Plans are ordered by their speed over the queue's."""
    shared_rows = rows[(rows["replicas"] > 1) & rows["strategy"].isin(strategies.keys())]
    known, wrong = shared_rows[shared_rows["speedup"].notna()], shared_rows[shared_rows["harms"].map(is_wrong)]
    if known.empty and wrong.empty:
        return None
    jobs = _nearest_size((wrong if known.empty else known)["replicas"].tolist(), demand)
    queued = rows[(rows["strategy"] == queue) & (rows["replicas"] == jobs)]
    low = known.loc[known["replicas"] == jobs, "speedup_low"]
    # Where nothing else has an interval, that of the queue's 1 would make it surely as good as whatever is faster.
    one = ONE if low.empty or low.notna().any() else Estimate(ONE.value)
    options = [_alone(queue, jobs, next(iter(queued["harms"]), ()), one)]
    for row in wrong[wrong["replicas"] == jobs].to_dict("records"):
        options.append(_without_plan(shared(strategies[row["strategy"]], {}), jobs, str(row["harms"][0])))
    for row in known[known["replicas"] == jobs].to_dict("records"):
        speedup = estimate(row, "speedup")
        assert speedup is not None
        strategy = strategies[row["strategy"]]
        isolation = documented.performance_isolation(strategy)
        options.append(shared(strategy, _level(jobs, speedup, isolation, row["harms"])))
    left_out = {*known["strategy"]} - {each.strategy for each in options}
    sizes = (min(jobs, demand.tenants), jobs)
    return _answer(workload, options, demand, sizes, left_out, OVER_A_QUEUE, {}, is_gpu, OVER_A_QUEUE.capitalize())


def jobs_with_harms(table: pd.DataFrame, known: Mapping[CellKey, Sequence[Harm]]) -> pd.DataFrame:
    """tables/jobs.csv with a column `harms`; of a row with a wrong answer no speed is known."""
    keys = zip(table["strategy"], table["workload"], table["replicas"], strict=True)
    harms = pd.Series([tuple(known.get(key, ())) for key in keys], index=table.index, dtype=object)
    return table.assign(harms=harms, speedup=table["speedup"].mask(harms.map(is_wrong).astype(bool)))


def _nearest_size(sizes: Collection[int], demand: Demand) -> int:
    """The largest measured number of tenants up to the demand's, or else the smallest one."""
    return max((size for size in sizes if size <= demand.tenants), default=min(sizes))


def _level(replicas: int, work: Estimate, isolation: Isolation, harms: Sequence[Harm]) -> dict[int, Level]:
    return {replicas: Level(replicas, "", ONE, work, isolation, gain=work, harms=harms)}


def _without_plan(option: Option, tenants: int, why: str) -> Option:
    return replace(option, infeasible={tenants: why})


def _alone(strategy: str, tenants: int, harms: Sequence[Harm] = (), work: Estimate = ONE) -> Option:
    """Tenants that share nothing: each has a GPU, or they queue for one."""
    levels = {tenants: Level(tenants, "", ONE, work, documented.ALONE, harms=harms)}
    return Option(strategy, levels, documented.ALONE, 0, is_sharing=False)


def _unanswered_reasons(asked: Demand, measured: int, left_out: Collection[str]) -> list[Reason]:
    """The parts of the question, and the strategies, that the answer is not about."""
    more = [name for name, value in (("SLO", asked.limits), ("price", asked.price_per_hour)) if value]
    texts = []
    if measured != asked.tenants:
        texts.append(f"For {measured} tenants, as measured together, not for {asked.tenants}.")
    if left_out:
        texts.append(f"{_not_measured(left_out, measured)}.")
    if more:
        texts.append(f"The {' and the '.join(more)} did not enter: what runs together is compared by its work.")
    return [Reason("scope", text) for text in texts]


def _not_measured(strategies: Collection[str], tenants: int) -> str:
    have = "has" if len(strategies) == 1 else "have"
    return f"{', '.join(sorted(strategies))} {have} no valid cell with {tenants} tenants, but with other numbers"


def _answer(
    workload: str,
    options: Sequence[Option],
    demand: Demand,
    sizes: tuple[int, int],
    left_out: Collection[str],
    work: str,
    facts: Mapping[str, Sequence[Fact]],
    is_gpu: bool,
    gain: str = GAIN,
) -> Answer:
    tenants, measured = sizes
    asked, demand = demand, Demand(tenants, isolation=demand.isolation, margin_percent=demand.margin_percent)
    plans = advise(options, demand)
    best, more = plans[0], _unanswered_reasons(asked, measured, left_out)
    if best.devices is None:
        return no_plan_answer(workload, plans, demand, more)
    assert best.level is not None and best.level.throughput is not None
    together = best.level.throughput
    shared = [each for each in plans if each.option.is_sharing and each.devices is not None]
    judged = [best] if best.option.is_sharing else shared
    undecided = ""
    if judged and all(each.merit.low is None for each in judged):
        undecided = MEASURED_ONCE
    if left_out and not best.option.is_sharing:
        undecided = undecided or f"no winner, since {_not_measured(left_out, measured)}"
    found = [Fact(work, f"× {format_quantity(together.value)}", format_ends(together.low, together.high))]
    found = [*found, *facts.get(best.option.strategy, ())] if best.option.is_sharing else []
    return decided(workload, plans, demand, (), more, undecided, found, is_gpu, gain)
