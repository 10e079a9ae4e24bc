"""Why the first plan of an answer is first, why no other one is, and what would change that: sentences with a kind."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from sharebench.core.console import format_count
from sharebench.read.decide.advice import Choice, Demand, JudgedPart, Level, Plan, possible_plans
from sharebench.read.decide.rows import MAX
from sharebench.read.decide.turning import TurningPoint
from sharebench.read.grouping import group_by
from sharebench.read.harm import caution
from sharebench.read.quantity import format_quantity
from sharebench.read.slo import LATENCY, PART_LABELS

MAX_NAMED = 4
"""The largest number of strategies that a sentence names."""
GAIN = "Throughput over one tenant alone"
Kind = Literal["hazard", "gain", "scope", "tie", "devices", "no plan", "change", "certainty"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""A `hazard` of what is advised; what sharing gains, where it is nothing; a caveat of the `scope`; strategies as good
(`tie`); why not fewer `devices`; strategies with `no plan`; what would `change` the answer; and how sure it is."""


class Reason(NamedTuple):
    kind: Kind
    text: str


def hazard_reasons(best: Plan) -> list[Reason]:
    """What is known to go wrong under the plan: in its own repeats, by wrong answers, by faults."""
    if best.level is None:
        return []
    harmed = f"{best.option.strategy} with {format_tenants(best.level.replicas)}: "
    harms = [Reason("hazard", f"Caution: {harmed}{'; '.join(map(str, best.level.harms))}.")] * bool(best.level.harms)
    if best.per_device == 1:
        return harms
    found = [text] if (text := best.option.hazards.get(best.per_device)) else []
    fault = best.option.fault
    if fault.holds is False:
        found.append(f"a tenant that faults may end the others; {fault.basis}: {fault.text}")
    return harms + [Reason("hazard", f"Caution: {text}.") for text in found]


def gain_reasons(plans: Sequence[Plan], what: str = GAIN) -> list[Reason]:
    """What sharing gains, and over what, for the plans that bring nothing."""
    vain = [
        f"{each.option.strategy} × {format_quantity(each.level.gain.value)} with {format_tenants(each.level.replicas)}"
        for each in plans
        if each.brings_nothing and each.level and each.level.gain is not None
    ]
    if any(each.option.has_one_load and each.level and each.level.inverse_latency for each in plans):
        what = "Mean latency of one alone over theirs"
    return [Reason("gain", f"{what}: {', '.join(vain)}.")] if vain else []


def tie_reasons(plans: Sequence[Plan], demand: Demand) -> list[Reason]:
    best, *others = plans
    tied = [each.option.strategy for each in others if each.is_tied and each.rank == best.rank]
    if not tied:
        return []
    more = f" and {len(tied) - MAX_NAMED} more" if len(tied) > MAX_NAMED else ""
    names = f"{', '.join(tied[:MAX_NAMED])}{more}"
    is_not = f"{names} is not" if len(tied) == 1 else f"none of {names} is"
    what = "mean latency" if best.level and best.level.inverse_latency else "throughput"
    none = f"In {what} {is_not} surely better by {demand.margin_percent:g} %"
    why = "goes first by effort, then by replicas" if best.option.has_one_load else "is the least effort"
    why += " of what surely gains" if best.unsure_gain is None and any(each.unsure_gain for each in others) else ""
    return [Reason("tie", f"{none}; {best.option.strategy} {why}.")]


def no_plan_reasons(plans: Sequence[Plan]) -> list[Reason]:
    unplanned = group_by((each for each in plans if each.devices is None), lambda each: each.reason)
    return [
        Reason("no plan", f"No plan with {', '.join(each.option.strategy for each in those)}: {reason}.")
        for reason, those in unplanned.items()
    ]


def unsure_parts(parts: Sequence[JudgedPart]) -> list[str]:
    """The parts of an SLO that the upper ends of their intervals exceed."""
    return [each.name for each in parts if (each.time.high or math.inf) > each.limit_seconds]


def reasons_against_fewer(plans: Sequence[Plan], demand: Demand) -> list[Reason]:
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
    what = f"Nothing {'else ' * bool(vain)}that was measured serves {format_tenants(demand.tenants)} on fewer devices"
    all_on_one, barred = best.option.level(demand.tenants), best.option.infeasible
    if more := [n for n in barred if best.per_device < n <= demand.tenants]:
        what += f" ({best.option.strategy} with {min(more)} on one GPU: {barred[min(more)]})"
    elif all_on_one is not None and (judged := all_on_one.exceeding_part(demand)):
        latency = f"{judged.name} {format_quantity(1e3 * judged.time.value)} ms"
        what += f" ({best.option.strategy} with {all_on_one.replicas} on one GPU: {latency})"
    return [Reason("devices", f"{f'Sharing brings nothing with {vain}. ' * bool(vain)}{what}.")]


def format_choice(choice: Choice) -> str:
    name, devices = choice
    return f"{name} on {format_count(devices, 'GPU', 'GPUs')}"


def format_tenants(number: int) -> str:
    return format_count(number, "tenant", "tenants")


def describe_change(point: TurningPoint, strategy: str) -> str:
    other, what = point.demand, "there is no answer"
    if point.answer is not None:
        what = f"it is {'still ' if point.answer[0] == strategy else ''}{format_choice(point.answer)}"
        what += ("" if point.is_sure else ", not certain") + caution(point.harm)
    limit = format_quantity(1e3 * other.limits.get(point.part, 0.0))
    below, above = ("an SLO", "one") if point.part == LATENCY else (PART_LABELS[point.part], PART_LABELS[point.part])
    match point.what:
        case "slo below":
            return f"with {below} below {limit} ms {what}"
        case "slo above":
            return f"with {above} of {limit} ms {what}"
        case "tenants":
            return f"with {format_tenants(other.tenants)} {what}"
        case _:
            return f"{'without' if other.isolation == 'none' else f'with {other.isolation}'} isolation {what}"


def certainty(best: Plan, level: Level, demand: Demand) -> list[Reason]:
    """Whether the plan meets the SLO with its whole interval; tied plans are named elsewhere."""
    parts, p99, limit = level.slo_parts(demand), level.p99, demand.limits.get(LATENCY, math.inf)
    if best.lacks_tail:
        text = f"How sure: {level.lacking(demand)}; a longer window_seconds gives the tail."
    elif any(each.time.high is None for each in parts or [level.tightest_part(demand)]):
        text = "How sure this is cannot be said: without repeats there are no intervals."
    elif late := unsure_parts(parts):
        text = f"How sure: the 95 % interval of {' and '.join(late)} reaches beyond the SLO."
    elif not parts:
        return []
    elif any(each.percentile == MAX for each in parts):
        text = "How sure: within the SLO with every request that was measured."
    elif p99 is not None and p99.value > limit:
        text = f"How sure: the p95 is within the SLO, the p99, {format_quantity(1e3 * p99.value)} ms, is not."
    else:
        text = "How sure: within the SLO with the whole 95 % interval."
    return [Reason("certainty", text)]
