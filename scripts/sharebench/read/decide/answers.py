"""The advice as data: for each workload what to take, its facts, the reasons, and all plans.

tables/advice.json has the answers; documents, report, terminal and closing lines only show them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from sharebench.core.console import format_count
from sharebench.core.files import read_json
from sharebench.read.decide.advice import (
    NO_BASELINE,
    Demand,
    Level,
    Option,
    Plan,
    advise,
    could_gain,
)
from sharebench.read.decide.cost import HOURS_PER_MONTH
from sharebench.read.decide.reasons import (
    GAIN,
    Kind,
    Reason,
    certainty,
    describe_change,
    format_choice,
    format_tenants,
    gain_reasons,
    hazard_reasons,
    no_plan_reasons,
    reasons_against_fewer,
    tie_reasons,
    unsure_parts,
)
from sharebench.read.decide.turning import turning_points
from sharebench.read.harm import brief
from sharebench.read.quantity import format_ends, format_quantity
from sharebench.read.slo import format_limits, percentile_label
from sharebench.read.statistics.intervals import Estimate

MEASURED_ONCE = "no winner, since each cell was measured once; repeats=3 gives an answer"
ON_A_STAND_IN = "no winner, since it was not a GPU"


class Fact(NamedTuple):
    """A number of the plan, such as `p95`, `38 ms`, `37.5 to 38.6`."""

    name: str
    value: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.value}{f' ({self.note})' if self.note else ''}"


class PlanLine(NamedTuple):
    """A plan in a few words; `devices` is None where there is none, and `per_gpu` where it is not known.

    `work` is what a GPU does, as text and, for bars, as a number.
    """

    strategy: str
    devices: int | None
    per_device: int
    latency: str
    work: str
    per_gpu: float | None
    verdict: str
    measured: int = 0
    """The number of tenants on one device that the numbers are of."""
    dollars: str = ""
    """The price of a million iterations or requests; empty without a price."""
    harm: str = ""
    """What happened to tenants in repeats that the numbers are not of, in brief."""


@dataclass(frozen=True)
class Answer:
    """The advice for one workload; `strategy` is empty where no plan serves the demand, and of a stand-in."""

    workload: str
    headline: str
    reasons: Sequence[Reason]
    strategy: str = ""
    devices: int = 0
    per_device: int = 0
    judged_with: int = 0
    """The measured number of tenants on one device that the facts are of."""
    undecided: str = ""
    """Why the first plan does not win; empty if it does."""
    facts: Sequence[Fact] = ()
    plans: Sequence[PlanLine] = ()
    """All plans, the best first."""
    not_measured: str = ""
    """A strategy that the asker has in place of a measured one, and that was not measured; empty if all were."""
    harm: str = ""
    """The first plan's `harm`."""

    def texts(self, *kinds: Kind) -> list[str]:
        """The reasons of these kinds, in the order of the kinds."""
        return [reason.text for kind in kinds for reason in self.reasons if reason.kind == kind]

    @property
    def sentence(self) -> str:
        facts = f": {', '.join(map(str, self.facts[1:]))}" if self.facts[1:] else ""
        return f"{self.workload}: {self.headline}{facts}."


class Decision(NamedTuple):
    """What tables/advice.json has."""

    caption: str
    margin_percent: float
    answers: list[Answer]


def read_decision(path: Path) -> Decision:
    parts = ("caption", "margin_percent", "answers")
    decided = read_json(path, *parts)
    return TypeAdapter(Decision).validate_python([decided[part] for part in parts])


def verdict_text(plan: Plan, demand: Demand) -> str:
    """Whether a plan meets the SLO, by which percentiles, and whether surely."""
    level = plan.level
    if plan.devices is None or level is None:
        return "no"
    if plan.brings_nothing:
        return "brings nothing"
    if not (parts := level.slo_parts(demand)):
        return "possible"
    if plan.lacks_tail:
        return f"not known: only {' and '.join(each.name for each in level.coarse_parts(demand))}"
    by_what = " and ".join(each.name for each in parts) + f" with {level.tails_of}" * bool(level.tails_of)
    return f"meets the SLO by its {by_what}{', not surely' if unsure_parts(parts) else ''}"


def answer_question(workload: str, options: Sequence[Option], demand: Demand, is_gpu: bool = True) -> Answer:
    """The strategy to take, its facts, why it and no other, what would change the answer, and how sure it is."""
    plans = advise(options, demand)
    best = plans[0] if plans and plans[0].devices is not None else None
    if best is None:
        return no_plan_answer(workload, plans, demand)
    assert best.level is not None
    level, scope = best.level, []
    if best.option.has_one_load:
        text = f"Its load is that of all tenants together: any number up to {demand.tenants} was compared, on one GPU"
        enough = f"of each strategy the fewest count of which no other is surely better by {demand.margin_percent:g} %"
        scope.append(f"{text}; {enough}.")
    if best.per_device > 1 and level.gain is None:
        scope.append("No valid baseline: what sharing costs, against one tenant alone, is not known.")
    if level.replicas > best.per_device:
        few = format_tenants(best.per_device)
        scope.append(f"Not measured with {few} on a GPU: the numbers are those of {level.replicas}.")
    if level.tails_of:
        text = f"what meets the SLO is the tail of {level.tails_of}, who are not faster"
        scope.append(f"Of {format_tenants(level.replicas)} the tail is not known; {text}.")
    changes = (describe_change(point, best.option.strategy) for point in turning_points(options, demand))
    more = [*(Reason("change", each) for each in changes), *certainty(best, level, demand)]
    undecided = ""
    if best.lacks_tail:
        undecided = f"not known to keep the SLO ({level.lacking(demand)})"
    elif level.merit is not None and level.merit.low is None:
        undecided = MEASURED_ONCE
    return decided(workload, plans, demand, scope, more, undecided, _facts(best, level, demand), is_gpu)


def no_plan_answer(workload: str, plans: Sequence[Plan], demand: Demand, more: Sequence[Reason] = ()) -> Answer:
    asked = f"{format_tenants(demand.tenants)}{_conditions(demand)}"
    lacks_part = any(each.level and len(each.level.slo_parts(demand)) < len(demand.limits) for each in plans)
    none = f"no strategy that was measured {'is known to serve' if lacks_part else 'serves'} {asked}"
    if any(each.reason == NO_BASELINE for each in plans):
        none = f"no answer for {asked} without a valid baseline"
    reasons = [*no_plan_reasons(plans), *more] or [Reason("scope", "There is no data.")]
    return Answer(workload, none, reasons, plans=[_line(each, demand) for each in plans])


def decided(
    workload: str,
    plans: Sequence[Plan],
    demand: Demand,
    scope: Sequence[str],
    more: Sequence[Reason],
    undecided: str,
    facts: Sequence[Fact],
    is_gpu: bool,
    gain: str = GAIN,
) -> Answer:
    """The answer whose first plan is the one to take, if there is a winner; a stand-in's names none.

    `scope` and `more` are reasons besides those that the plans give; `gain` names what gains are over.
    """
    best, lines = plans[0], [_line(each, demand) for each in plans]
    assert best.devices is not None and best.level is not None
    gains, without = gain_reasons(plans, gain), no_plan_reasons(plans)
    if not is_gpu:
        return Answer(workload, ON_A_STAND_IN, [*gains, *without], undecided=ON_A_STAND_IN, plans=lines)
    reasons = [*hazard_reasons(best), *gains, *(Reason("scope", text) for text in scope)]
    reasons += [*tie_reasons(plans, demand), *reasons_against_fewer(plans, demand), *without, *more]
    plan = format_choice((best.option.strategy, best.devices))
    replicas = best.option.has_one_load
    if replicas:
        plan = f"{format_count(best.per_device, 'replica', 'replicas')}: {plan}"
    elif best.devices < demand.tenants:
        plan += f" instead of {demand.tenants}"
    if best.devices > 1:
        plan += f", {f'at most {best.per_device} tenants' if best.per_device > 1 else 'one tenant'} on each"
    headline = f"take {plan}"
    if unsure := best.unsure_gain:
        what = "more replicas bring" if replicas else "sharing brings"
        undecided = undecided or f"not certain that {what} anything ({_times(unsure)})"
    shared = [each.brings_nothing for each in plans if each.option.is_sharing and each.devices is not None]
    if shared and all(shared) and not best.option.is_sharing:
        what = "more replicas bring" if replicas else "sharing brings"
        nothing = f"{what} nothing"
        gaining = [each for each in plans if could_gain(each.option, demand)]
        late = [each for each in gaining if each.option.beyond_limits and each.option.beyond_limits == each.reason]
        if late:
            why = f"{late[0].option.strategy}: {late[0].reason}"
            nothing = f"no sharing that holds the limits of its tenants brings anything ({why})"
        elif gaining:
            what = "no number of replicas" if replicas else "no sharing"
            nothing = f"{what}{_conditions(demand) or ' that can be had'} brings anything"
        each_or_queue = "a GPU each, or a queue" if best.per_device == 1 else "a queue"
        headline = f"{nothing}; take {plan if replicas else f'{each_or_queue}: {plan}'}"
    instead = {each.option.instead for each in plans} - {"", *(each.option.strategy for each in plans)}
    # Without neighbours it is the same as any, and it has no isolation.
    not_measured = "".join(instead) if demand.tenants > 1 and demand.isolation == "none" else ""
    headline = f"{undecided}; ahead: {plan}" if undecided else headline
    if not_measured:
        headline = f"the plugin's MPS ({not_measured}) was not measured; of what was: {headline}"
    return Answer(
        workload,
        headline,
        reasons,
        best.option.strategy,
        best.devices,
        best.per_device,
        best.level.replicas,
        undecided,
        [Fact(f"GPUs for {format_tenants(demand.tenants)}", str(best.devices)), *facts],
        lines,
        not_measured,
        lines[0].harm,
    )


def _conditions(demand: Demand) -> str:
    within = f" within {format_limits(demand.limits)}" if demand.limits else ""
    return within if demand.isolation == "none" else f"{within} with {demand.isolation} isolation"


def _facts(best: Plan, level: Level, demand: Demand) -> list[Fact]:
    """Price, latency and throughput of a plan, with what one tenant alone has."""
    assert best.devices is not None
    facts = []
    if (price := demand.price_per_hour) is not None:
        month = price * HOURS_PER_MONTH
        note = f"{HOURS_PER_MONTH} hours"
        if level.throughput:
            note += f", {format_quantity(best.total_rate(level.throughput.value, demand))}/s in all"
            note += "" if level.inverse_latency else " at full load"
        if best.devices < demand.tenants and not best.option.has_one_load:
            note += f"; a GPU each ${demand.tenants * month:,.0f}"
            if level.throughput and level.gain:
                note += f", {format_quantity(demand.tenants * level.throughput.value / level.gain.value)}/s"
        facts.append(Fact("a month", f"${best.devices * month:,.0f}", note))
    if level.mean is not None and not level.stream:
        facts.append(
            Fact("mean latency", f"{format_quantity(1e3 * level.mean.value)} ms", _over_one(best, level.slowdown))
        )
    judged = level.tightest_part(demand)
    times = {percentile_label(part, name): time for part, (name, time) in level.stream.items()} | {
        judged.name: judged.time
    }
    for name, time in times.items():
        ms = time.times(1e3)
        if name != "mean":
            facts.append(Fact(name, f"{format_quantity(ms.value)} ms", format_ends(ms.low, ms.high)))
    if level.throughput:
        # The gain of replicas is in latency, or that of their tokens if they stream.
        is_other = best.option.has_one_load and (level.inverse_latency or level.tokens)
        note = "" if is_other else _over_one(best, level.gain)
        facts.append(Fact("per GPU", f"{format_quantity(level.throughput.value)}/s", note))
    if level.tokens:
        note = "" if level.inverse_latency or not best.option.has_one_load else _over_one(best, level.gain)
        facts.append(Fact("tokens per GPU", f"{format_quantity(level.tokens.value)}/s", note))
    return facts


def _over_one(best: Plan, ratio: Estimate | None) -> str:
    if best.per_device == 1 or ratio is None:
        return ""
    return _times(ratio, " of one alone")


def _times(ratio: Estimate, what: str = "") -> str:
    ends = format_ends(ratio.low, ratio.high)
    return f"× {format_quantity(ratio.value)}{what}{f', {ends}' if ends else ''}"


def _line(plan: Plan, demand: Demand) -> PlanLine:
    level, name, verdict = plan.level, plan.option.strategy, verdict_text(plan, demand)
    if plan.devices is None or level is None:
        return PlanLine(name, None, plan.per_device, "", "", None, verdict)
    judged, hz = level.tightest_part(demand), level.throughput.value if level.throughput else None
    latency = f"{judged.name} {format_quantity(1e3 * judged.time.value)}" if judged.name else ""
    work = "" if hz is None else f"{format_quantity(hz)}/s" if judged.name else f"× {format_quantity(hz)}"
    price = plan.dollars_per_million(level.throughput, demand)
    dollars = "" if price is None else format_quantity(price)
    measured, harm = level.replicas, brief(level.harms)
    return PlanLine(name, plan.devices, plan.per_device, latency, work, hz, verdict, measured, dollars, harm)
