"""The advice as data: for each workload what to take, its facts, the reasons, and all plans.

tables/advice.json has the answers; documents, report, terminal and closing lines only show them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from pydantic import TypeAdapter

from sharebench.core.console import format_count
from sharebench.core.files import read_json
from sharebench.read.decide.advice import (
    Choice,
    Demand,
    JudgedPart,
    Level,
    Option,
    Plan,
    TurningPoint,
    advise,
    could_gain,
    possible_plans,
    turning_points,
)
from sharebench.read.decide.cost import HOURS_PER_MONTH
from sharebench.read.grouping import group_by
from sharebench.read.quantity import format_ends, format_quantity
from sharebench.read.slo import LATENCY, PART_LABELS, format_limits, percentile_label

MAX_NAMED = 4
"""The largest number of strategies that a sentence names."""
MEASURED_ONCE = "no winner, since each cell was measured once; repeats=3 gives an answer"
ON_A_STAND_IN = "no winner, since it was not a GPU"
Kind = Literal["hazard", "gain", "scope", "tie", "devices", "no plan", "change", "certainty"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""A `hazard` of what is advised; what sharing gains, where it is nothing; a caveat of the `scope`; strategies as good
(`tie`); why not fewer `devices`; strategies with `no plan`; what would `change` the answer; and how sure it is."""


class Reason(NamedTuple):
    kind: Kind
    text: str


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
    return f"meets the SLO by its {by_what}{', not surely' if _beyond(parts) else ''}"


def _beyond(parts: Sequence[JudgedPart]) -> list[str]:
    """The parts of an SLO that the upper ends of their intervals exceed."""
    return [each.name for each in parts if (each.time.high or math.inf) > each.limit_seconds]


def answer_question(workload: str, options: Sequence[Option], demand: Demand, is_gpu: bool = True) -> Answer:
    """The strategy to take, its facts, why it and no other, what would change the answer, and how sure it is."""
    plans = advise(options, demand)
    best = plans[0] if plans and plans[0].devices is not None else None
    if best is None:
        none = f"no strategy that was measured serves {_tenants(demand.tenants)}{_conditions(demand)}"
        reasons = _no_plan_reasons(plans) or [Reason("scope", "There is no data.")]
        return Answer(workload, none, reasons, plans=[_line(each, demand) for each in plans])
    assert best.level is not None
    level, scope = best.level, []
    if best.option.has_one_load:
        text = f"Its load is that of all tenants together: any number up to {demand.tenants} was compared, on one GPU"
        enough = f"of each strategy the fewest count of which no other is surely better by {demand.margin_percent:g} %"
        scope.append(f"{text}; {enough}.")
    if best.per_device > 1 and level.gain is None:
        scope.append("No valid baseline: what sharing costs, against one tenant alone, is not known.")
    if level.replicas > best.per_device:
        few = _tenants(best.per_device)
        scope.append(f"Not measured with {few} on a GPU: the numbers are those of {level.replicas}.")
    if level.tails_of:
        text = f"what meets the SLO is the tail of {level.tails_of}, who are not faster"
        scope.append(f"Of {_tenants(level.replicas)} the tail is not known; {text}.")
    changes = (_describe_change(point, best.option.strategy) for point in turning_points(options, demand))
    more = [*(Reason("change", each) for each in changes), *_certainty(best, level, demand)]
    undecided = ""
    if best.lacks_tail:
        undecided = f"not known to keep the SLO ({level.lacking(demand)})"
    elif level.merit is not None and level.merit.low is None:
        undecided = MEASURED_ONCE
    return decided(workload, plans, demand, scope, more, undecided, _facts(best, level, demand), is_gpu)


def decided(
    workload: str,
    plans: Sequence[Plan],
    demand: Demand,
    scope: Sequence[str],
    more: Sequence[Reason],
    undecided: str,
    facts: Sequence[Fact],
    is_gpu: bool,
) -> Answer:
    """The answer whose first plan is the one to take, if there is a winner; a stand-in's names none.

    `scope` and `more` are reasons besides those that the plans give.
    """
    best, lines = plans[0], [_line(each, demand) for each in plans]
    assert best.devices is not None and best.level is not None
    gains, without = _gain_reasons(plans), _no_plan_reasons(plans)
    if not is_gpu:
        return Answer(workload, ON_A_STAND_IN, [*gains, *without], undecided=ON_A_STAND_IN, plans=lines)
    reasons = [*hazard_reasons(best), *gains, *(Reason("scope", text) for text in scope)]
    reasons += [*_tie_reasons(plans, demand), *_reasons_against_fewer(plans, demand), *without, *more]
    plan = format_choice((best.option.strategy, best.devices))
    replicas = best.option.has_one_load
    if replicas:
        plan = f"{format_count(best.per_device, 'replica', 'replicas')}: {plan}"
    elif best.devices < demand.tenants:
        plan += f" instead of {demand.tenants}"
    if best.devices > 1:
        plan += f", {f'at most {best.per_device} tenants' if best.per_device > 1 else 'one tenant'} on each"
    headline = f"take {plan}"
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
    return Answer(
        workload,
        f"{undecided}; ahead: {plan}" if undecided else headline,
        reasons,
        best.option.strategy,
        best.devices,
        best.per_device,
        best.level.replicas,
        undecided,
        [Fact(f"GPUs for {_tenants(demand.tenants)}", str(best.devices)), *facts],
        lines,
    )


def _conditions(demand: Demand) -> str:
    within = f" within {format_limits(demand.limits)}" if demand.limits else ""
    return within if demand.isolation == "none" else f"{within} with {demand.isolation} isolation"


def hazard_reasons(best: Plan) -> list[Reason]:
    """What is known to go wrong under the plan: wrong answers, and neighbours that die of a fault."""
    if best.per_device == 1 or best.level is None:
        return []
    found = [text] if (text := best.option.hazards.get(best.per_device)) else []
    fault = best.option.fault
    if fault.holds is False:
        found.append(f"a tenant that faults may end the others; {fault.basis}: {fault.text}")
    return [Reason("hazard", f"Caution: {text}.") for text in found]


def _gain_reasons(plans: Sequence[Plan]) -> list[Reason]:
    """What sharing gains, for the plans that bring nothing."""
    vain = [
        f"{each.option.strategy} × {format_quantity(each.level.gain)} with {_tenants(each.level.replicas)}"
        for each in plans
        if each.brings_nothing and each.level and each.level.gain is not None
    ]
    is_faster = any(each.option.has_one_load and each.level and each.level.inverse_latency for each in plans)
    what = "Mean latency of one alone over theirs" if is_faster else "Throughput over one tenant alone"
    return [Reason("gain", f"{what}: {', '.join(vain)}.")] if vain else []


def _tie_reasons(plans: Sequence[Plan], demand: Demand) -> list[Reason]:
    best, *others = plans
    tied = [each.option.strategy for each in others if each.is_tied and each.rank == best.rank]
    if not tied:
        return []
    more = f" and {len(tied) - MAX_NAMED} more" if len(tied) > MAX_NAMED else ""
    what = "mean latency" if best.level and best.level.inverse_latency else "throughput"
    none = f"In {what} none of {', '.join(tied[:MAX_NAMED])}{more} is surely better by {demand.margin_percent:g} %"
    why = "goes first by effort, then by replicas" if best.option.has_one_load else "is the least effort"
    return [Reason("tie", f"{none}; {best.option.strategy} {why}.")]


def _no_plan_reasons(plans: Sequence[Plan]) -> list[Reason]:
    unplanned = group_by((each for each in plans if each.devices is None), lambda each: each.reason)
    return [
        Reason("no plan", f"No plan with {', '.join(each.option.strategy for each in those)}: {reason}.")
        for reason, those in unplanned.items()
    ]


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
                note += f", {format_quantity(demand.tenants * level.throughput.value / level.gain)}/s"
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


def _over_one(best: Plan, ratio: float | None) -> str:
    return f"× {format_quantity(ratio)} of one alone" if best.per_device > 1 and ratio is not None else ""


def _line(plan: Plan, demand: Demand) -> PlanLine:
    level, name, verdict = plan.level, plan.option.strategy, verdict_text(plan, demand)
    if plan.devices is None or level is None:
        return PlanLine(name, None, plan.per_device, "", "", None, verdict)
    judged, hz = level.tightest_part(demand), level.throughput.value if level.throughput else None
    latency = f"{judged.name} {format_quantity(1e3 * judged.time.value)}" if judged.name else ""
    work = "" if hz is None else f"{format_quantity(hz)}/s" if judged.name else f"× {format_quantity(hz)}"
    price = plan.dollars_per_million(level.throughput, demand)
    dollars = "" if price is None else format_quantity(price)
    return PlanLine(name, plan.devices, plan.per_device, latency, work, hz, verdict, level.replicas, dollars)


def _reasons_against_fewer(plans: Sequence[Plan], demand: Demand) -> list[Reason]:
    """Why the best plan takes more than one device; empty if it takes one."""
    best = plans[0]
    assert best.devices is not None
    possible = (each for plan in plans for each in possible_plans(plan.option, demand))
    fewer = [each for each in possible if (each.devices or math.inf) < best.devices]
    useful = [each for each in fewer if not each.brings_nothing]
    fewest = {name: those[0] for name, those in group_by(useful or fewer, lambda each: each.option.strategy).items()}
    if useful:
        unknown = [
            f"{name} on {each.devices} ({each.level.lacking(demand)})" for name, each in fewest.items() if each.level
        ]
        return [Reason("devices", f"Fewer devices are not known to keep the SLO: {', '.join(unknown)}.")]
    if best.devices == 1 or best.per_device == 1:
        return []
    vain = ", ".join(f"{name} on {each.devices}" for name, each in fewest.items())
    what = f"Nothing {'else ' * bool(vain)}that was measured serves {_tenants(demand.tenants)} on fewer devices"
    all_on_one = best.option.level(demand.tenants)
    if all_on_one is not None and (judged := all_on_one.exceeding_part(demand)):
        latency = f"{judged.name} {format_quantity(1e3 * judged.time.value)} ms"
        what += f" ({best.option.strategy} with {all_on_one.replicas} on one GPU: {latency})"
    return [Reason("devices", f"{f'Sharing brings nothing with {vain}. ' * bool(vain)}{what}.")]


def format_choice(choice: Choice) -> str:
    name, devices = choice
    return f"{name} on {format_count(devices, 'GPU', 'GPUs')}"


def _tenants(number: int) -> str:
    return format_count(number, "tenant", "tenants")


def _describe_change(point: TurningPoint, strategy: str) -> str:
    other, what = point.demand, "there is no answer"
    if point.answer is not None:
        what = f"it is {'still ' if point.answer[0] == strategy else ''}{format_choice(point.answer)}"
    limit = format_quantity(1e3 * other.limits.get(point.part, 0.0))
    below, above = ("an SLO", "one") if point.part == LATENCY else (PART_LABELS[point.part], PART_LABELS[point.part])
    match point.what:
        case "slo below":
            return f"with {below} below {limit} ms {what}"
        case "slo above":
            return f"with {above} of {limit} ms {what}"
        case "tenants":
            return f"with {_tenants(other.tenants)} {what}"
        case _:
            return f"{'without' if other.isolation == 'none' else f'with {other.isolation}'} isolation {what}"


def _certainty(best: Plan, level: Level, demand: Demand) -> list[Reason]:
    """Whether the plan meets the SLO with its whole interval; tied plans are named elsewhere."""
    parts, p99, limit = level.slo_parts(demand), level.p99, demand.limits.get(LATENCY, math.inf)
    if best.lacks_tail:
        text = f"How sure: {level.lacking(demand)}; a longer window_seconds gives the tail."
    elif any(each.time.high is None for each in parts or [level.tightest_part(demand)]):
        text = "How sure this is cannot be said: without repeats there are no intervals."
    elif beyond := _beyond(parts):
        text = f"How sure: the 95 % interval of {' and '.join(beyond)} reaches beyond the SLO."
    elif not parts:
        return []
    elif p99 is not None and p99.value > limit:
        text = f"How sure: the p95 is within the SLO, the p99, {format_quantity(1e3 * p99.value)} ms, is not."
    else:
        text = "How sure: within the SLO with the whole 95 % interval."
    return [Reason("certainty", text)]
