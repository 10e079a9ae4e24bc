"""The advice as text: for each workload the strategy, a table of all, the reasons, the turning points, the certainty.

tables/advice.csv has all columns; the terminal shows five, in 100 characters.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd

from sharebench.core.console import wrap_text
from sharebench.model.strategy import Strategy
from sharebench.read.cells.rows import group_by
from sharebench.read.columns import TableRow
from sharebench.read.decide import documented
from sharebench.read.decide.advice import (
    TAIL_PERCENTILES,
    Demand,
    Option,
    Plan,
    TurningPoint,
    advise,
    first_choice,
    turning_points,
)
from sharebench.read.decide.cost import HOURS_PER_MONTH
from sharebench.read.decide.rows import PERCENTILES
from sharebench.read.slo import LATENCY, PART_LABELS, dollars_per_million, format_limits

UNCERTAIN_SUFFIX = ", not surely"
HOLDS_LABELS = {None: "unknown", True: "yes", False: "no"}
MAX_NAMED = 4
"""The largest number of strategies that a sentence names."""
NO_ADVICE = (
    "none: no workload by itself was run under a strategy that shares (jobs, pairs and mixes have tables of their own)"
)


class Reason(NamedTuple):
    """A sentence and its kind: a caveat of the `scope`, or `no plan` with a strategy, which the table says too."""

    kind: Literal["scope", "tie", "devices", "no plan", "change", "certainty"]
    text: str


class Answer(NamedTuple):
    """The advice for one workload: a sentence, the reasons, and what would change it."""

    workload: str
    sentence: str
    reasons: Sequence[Reason]
    changes: Sequence[str] = ()


def describe_question(demand: Demand) -> str:
    parts = [_count(demand.tenants, "tenant")]
    parts.append(f"SLO {format_limits(demand.limits)}" if demand.limits else "no SLO")
    parts += [] if demand.isolation == "none" else [f"{demand.isolation} isolation"]
    parts += [] if demand.price_per_hour is None else [f"${demand.price_per_hour:g} per device and hour"]
    return ", ".join(parts)


def advice_rows(
    workload: str, options: Sequence[Option], demand: Demand, strategies: Mapping[str, Strategy]
) -> Iterator[TableRow]:
    """Rows of tables/advice.csv for one workload, the best first."""
    for rank, plan in enumerate(advise(options, demand), start=1):
        row = {"workload": workload, **_row(plan, demand, strategies[plan.option.strategy])}
        if plan.devices is not None:
            row["rank"] = rank
        yield row


def _row(plan: Plan, demand: Demand, strategy: Strategy) -> TableRow:
    level, price = plan.level, demand.price_per_hour
    fault, performance = plan.option.fault, level.performance if level else documented.performance_isolation(strategy)
    if plan.per_device == 1:
        fault = performance = documented.ALONE
    row: TableRow = {
        "strategy": strategy.name,
        "devices": plan.devices,
        "tenants_per_device": plan.per_device,
        "verdict": _verdict(plan, demand),
        "performance_isolation": HOLDS_LABELS[performance.holds],
        "performance_isolation_basis": f"{performance.basis}: {performance.text}",
        "fault_isolation": HOLDS_LABELS[fault.holds],
        "fault_isolation_basis": f"{fault.basis}: {fault.text}",
        "effort": documented.effort(strategy)[1],
        "reason": plan.reason,
        "slo_ms": 1e3 * demand.limits[LATENCY] if LATENCY in demand.limits else None,
        "slo": format_limits(demand.limits),
        "tenants": demand.tenants,
        "isolation": demand.isolation,
        "price_per_hour": price,
    }
    if level is None:
        return row
    hz, margin = level.throughput and level.throughput.value, plan.margin_percent(demand)
    judged, tokens = level.tightest_part(demand), level.tokens and level.tokens.value
    return row | {
        "percentile": judged.name,
        "judged_with_tenants": level.replicas,
        **judged.time.times(1e3).columns("latency_ms"),
        **(margin.columns("margin_percent") if margin else {}),
        "throughput_per_device_hz": hz,
        "output_tokens_per_device_hz": tokens,
        "dollars_per_million_tokens": dollars_per_million(price, tokens) if price is not None and tokens else None,
        "dollars_per_million_iterations": dollars_per_million(price, hz) if price is not None and hz else None,
        "dollars_per_month": None if price is None else plan.devices and plan.devices * price * HOURS_PER_MONTH,
    }


def _verdict(plan: Plan, demand: Demand) -> str:
    if plan.devices is None:
        return "no"
    parts = plan.level.slo_parts(demand) if plan.level else []
    if plan.level is None or not parts:
        return "possible"
    coarse = [each.name for each in parts if each.percentile != PERCENTILES[0]]
    by_what = f" by its {' and '.join(coarse)}" if coarse else ""
    is_sure = all((each.time.high or math.inf) <= (each.limit_seconds or math.inf) for each in parts)
    return f"meets the SLO{by_what}{'' if is_sure else UNCERTAIN_SUFFIX}"


def answer_question(workload: str, options: Sequence[Option], demand: Demand) -> Answer:
    """The strategy to take, why it and no other, what would change the answer, and how sure it is."""
    plans = advise(options, demand)
    unplanned = group_by((each for each in plans if each.devices is None), lambda each: each.reason)
    no_plan = [
        Reason("no plan", f"No plan with {', '.join(each.option.strategy for each in those)}: {reason}.")
        for reason, those in unplanned.items()
    ]
    if first_choice(plans) is None:
        within = f" within {format_limits(demand.limits)}" if demand.limits else ""
        isolation = "" if demand.isolation == "none" else f" with {demand.isolation} isolation"
        serves = f"serves {_count(demand.tenants, 'tenant')}{within}{isolation}"
        sentence = f"{workload}: no strategy that was measured {serves}."
        return Answer(workload, sentence, no_plan or [Reason("scope", "There is no data.")])
    best, *others = plans
    reasons: list[Reason] = []
    if best.lacks_tail and best.level:
        coarse = [each.name for each in best.level.slo_parts(demand) if each.percentile not in TAIL_PERCENTILES]
        known = f"the {' and the '.join(coarse)} {'is' if len(coarse) == 1 else 'are'}"
        reasons.append(Reason("scope", f"Of what meets the SLO, only {known} known: the sample has no tail."))
    if tied := [each.option.strategy for each in others if each.is_tied and each.rank == best.rank]:
        more = f" and {len(tied) - MAX_NAMED} more" if len(tied) > MAX_NAMED else ""
        what = "mean latency" if best.level and best.level.inverse_latency else "throughput"
        text = f"In {what} {', '.join(tied[:MAX_NAMED])}{more} cannot be distinguished from it; "
        reasons.append(Reason("tie", f"{text}{best.option.strategy} is the least effort."))
    reasons += _reasons_against_fewer(best, demand) + no_plan
    changes = [_describe_change(point, best.option.strategy) for point in turning_points(options, demand)]
    listed = f"What would change it: {'; '.join(changes)}." if changes else "Nothing that is known would change this."
    reasons += [Reason("change", listed), *(Reason("certainty", text) for text in _certainty(best, demand))]
    return Answer(workload, _recommendation(workload, best, demand), reasons, changes)


def _reasons_against_fewer(best: Plan, demand: Demand) -> list[Reason]:
    """Why the best plan takes more than one device; empty if it takes one."""
    assert best.devices is not None
    if best.devices == 1:
        return []
    what = f"Nothing that was measured serves {_count(demand.tenants, 'tenant')} on fewer devices"
    all_on_one = best.option.level(demand.tenants)
    if all_on_one is not None and demand.limits:
        judged = all_on_one.tightest_part(demand)
        latency = f"{judged.name} {format_quantity(1e3 * judged.time.value)} ms"
        what += f" ({best.option.strategy} with {all_on_one.replicas} on one device: {latency})"
    return [Reason("devices", f"{what}.")]


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def format_quantity(value: float) -> str:
    """A number with three or four significant digits and without exponent: `0.0253`, `36.7`, `485,700`."""
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def _recommendation(workload: str, best: Plan, demand: Demand) -> str:
    assert best.devices is not None and best.level is not None
    level, judged = best.level, best.level.tightest_part(demand)
    ms = judged.time.times(1e3)
    text = f"{workload}: take {best.option.strategy} on {_count(best.devices, 'device')}"
    if best.devices > 1:
        text += f", {f'at most {best.per_device} tenants' if best.per_device > 1 else 'one tenant'} on each"
    text += f": {judged.name} {format_quantity(ms.value)} ms"
    if ms.low is not None and ms.high is not None:
        text += f" ({format_quantity(ms.low)} to {format_quantity(ms.high)})"
    text += f" with {_count(level.replicas, 'tenant')}"
    if level.throughput:
        text += f", {format_quantity(level.throughput.value)}/s per device"
    if level.tokens:
        text += f", {format_quantity(level.tokens.value)} tokens/s"
    if demand.price_per_hour is not None:
        text += f", ${best.devices * demand.price_per_hour * HOURS_PER_MONTH:,.2f} a month"
    return f"{text}."


def _describe_change(point: TurningPoint, strategy: str) -> str:
    other, what = point.demand, "there is no answer"
    if point.answer is not None:
        name, number = point.answer
        what = f"it is {'still ' if name == strategy else ''}{name} on {_count(number, 'device')}"
    limit = format_quantity(1e3 * other.limits.get(point.part, 0.0))
    below, above = ("an SLO", "one") if point.part == LATENCY else (PART_LABELS[point.part], PART_LABELS[point.part])
    match point.what:
        case "slo below":
            return f"with {below} below {limit} ms {what}"
        case "slo above":
            return f"with {above} of {limit} ms {what}"
        case "tenants":
            return f"with {_count(other.tenants, 'tenant')} {what}"
        case _:
            return f"{'without' if other.isolation == 'none' else f'with {other.isolation}'} isolation {what}"


def _certainty(best: Plan, demand: Demand) -> list[str]:
    """Whether the plan meets the SLO with its whole interval; tied plans are named elsewhere."""
    assert best.level is not None
    parts = best.level.slo_parts(demand)
    if any(each.time.high is None for each in parts or [best.level.tightest_part(demand)]):
        return ["How sure this is cannot be said: without repeats there are no intervals."]
    beyond = [each.name for each in parts if each.limit_seconds and (each.time.high or math.inf) > each.limit_seconds]
    if beyond:
        return [f"How sure: the 95 % interval of {' and '.join(beyond)} reaches beyond the SLO."]
    return ["How sure: within the SLO with the whole 95 % interval."] if parts else []


def advice_markdown(table: pd.DataFrame, answers: Sequence[Answer], caption: str) -> str:
    """tables/advice.md: an item for each workload with one for each reason, then the tables of strategies."""
    items = ["\n  - ".join([f"- {each.sentence}", *(reason.text for reason in each.reasons)]) for each in answers]
    tables = [line for each in answers for line in ("", f"{each.workload}:", "", _table(table, each.workload, "pipe"))]
    return "\n".join([caption, "", *(items or [f"- {NO_ADVICE}"]), *tables, ""])


def advice_for_terminal(table: pd.DataFrame, answers: Sequence[Answer], caption: str) -> str:
    """The advice for a terminal: a sentence for each workload, then its strategies with the reasons."""
    lines = [*wrap_text(caption), ""]
    lines += [line for each in answers for line in wrap_text(each.sentence)] or wrap_text(NO_ADVICE)
    for each in answers:
        lines += ["", each.workload, "", _table(table, each.workload, "simple"), ""]
        lines += [line for reason in each.reasons for line in wrap_text(reason.text, "- ")]
    return "\n".join(lines)


def _table(table: pd.DataFrame, workload: str, style: str) -> str:
    rows = table[table["workload"] == workload].astype(object)
    shown = pd.DataFrame([_short_row(row) for row in rows.where(rows.notna(), None).to_dict("records")])
    return "" if shown.empty else shown.to_markdown(index=False, tablefmt=style, disable_numparse=True)


def _short_row(row: Mapping[Any, Any]) -> dict[str, str]:
    is_plan, latency, hz = row["devices"] is not None, row["latency_ms"], row["throughput_per_device_hz"]
    month = "" if row["dollars_per_month"] is None else f", ${row['dollars_per_month']:,.0f}"
    devices = f"{row['devices']:.0f}, {row['tenants_per_device']:.0f} on each{month}" if is_plan else "-"
    return {
        "strategy": row["strategy"],
        "devices, tenants" + (", $ a month" if row["price_per_hour"] is not None else ""): devices,
        "latency (ms)": "-" if latency is None else f"{row['percentile']} {format_quantity(latency)}",
        "per device": "-" if hz is None else f"{format_quantity(hz)}/s",
        "verdict": _short_verdict(row) if is_plan else "no",
    }


def _short_verdict(row: Mapping[Any, Any]) -> str:
    slo = row.get("slo") or ("" if row["slo_ms"] is None else f"{row['slo_ms']:g} ms")
    if not slo:
        return documented.MEASURED
    # An SLO of several parts is too long; the caption has it.
    slo = slo if slo[0].isdigit() else "the SLO"
    judged = row["percentile"]
    of_what = "" if judged.split()[-1] in TAIL_PERCENTILES else f"only its {judged} "
    return f"{of_what}{'may meet' if row['verdict'].endswith(UNCERTAIN_SUFFIX) else 'meets'} {slo}"
