"""What the advice says: its table, and one paragraph with which, why, what would change it, and how sure it is."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from sharebench.analysis.decide import documented
from sharebench.analysis.decide.advice import (
    Option,
    Plan,
    Question,
    TurningPoint,
    advise,
    answer_of,
    best_of,
    turning_points,
)
from sharebench.analysis.decide.cost import HOURS_PER_MONTH, dollars_per_million
from sharebench.analysis.decide.rows import MEASURED, PERCENTILES, PREDICTED
from sharebench.core.strategies import Strategy
from sharebench.records.tables import TableRow

MOST_PERCENT = 200.0
"""Margins beyond are said as a factor."""
LEAST_SHARE = 0.005
HOLDS = {None: "unknown", True: "yes", False: "no"}
SHOWN = 4
"""The most strategies that a sentence names."""


def asked(question: Question) -> str:
    """The question as text."""
    parts = [_count(question.tenants, "tenant")]
    parts.append("no SLO" if question.slo_seconds is None else f"SLO {1e3 * question.slo_seconds:g} ms")
    parts += [] if question.isolation == "none" else [f"{question.isolation} isolation"]
    parts += [] if question.price_per_hour is None else [f"${question.price_per_hour:g} per device and hour"]
    return ", ".join(parts)


def rows(
    workload: str,
    options: Sequence[Option],
    question: Question,
    strategies: Mapping[str, Strategy],
    shares: Mapping[str, float] | None,
) -> Iterator[TableRow]:
    """Rows of tables/advice.csv for one workload, the best first; `shares` is `advice.confidence`."""
    for rank, plan in enumerate(advise(options, question), start=1):
        row = {"workload": workload, **_row(plan, question, strategies[plan.option.strategy])}
        if plan.devices is not None:
            row |= {"rank": rank, "share_of_draws": shares and shares.get(plan.option.strategy, 0.0)}
        yield row


def _row(plan: Plan, question: Question, strategy: Strategy) -> TableRow:
    level, price = plan.level, question.price_per_hour
    fault, performance = plan.option.fault, level.performance if level else documented.performance_isolation(strategy)
    if plan.per_device == 1:
        fault = performance = documented.ALONE
    row: TableRow = {
        "strategy": strategy.name,
        "devices": plan.devices,
        "tenants_per_device": plan.per_device,
        "verdict": _verdict(plan, question),
        "performance_isolation": HOLDS[performance.holds],
        "performance_isolation_basis": f"{performance.basis}: {performance.text}",
        "fault_isolation": HOLDS[fault.holds],
        "fault_isolation_basis": f"{fault.basis}: {fault.text}",
        "effort": documented.effort(strategy)[1],
        "reason": plan.reason,
        "slo_ms": None if question.slo_seconds is None else 1e3 * question.slo_seconds,
        "tenants": question.tenants,
        "isolation": question.isolation,
        "price_per_hour": price,
    }
    if level is None:
        return row
    hz, margin = level.throughput and level.throughput.value, plan.margin_percent(question.slo_seconds)
    return row | {
        "basis": MEASURED if level.is_measured else PREDICTED,
        "percentile": level.percentile,
        "judged_with_tenants": level.replicas,
        **level.latency.times(1e3).columns("latency_ms"),
        **(margin.columns("margin_percent") if margin else {}),
        "throughput_per_device_hz": hz,
        "dollars_per_million_iterations": dollars_per_million(price, hz) if price is not None and hz else None,
        "dollars_per_month": None if price is None else plan.devices and plan.devices * price * HOURS_PER_MONTH,
    }


def _verdict(plan: Plan, question: Question) -> str:
    if plan.devices is None:
        return "no"
    if question.slo_seconds is None or plan.level is None:
        return "possible"
    high, by = plan.level.latency.high, plan.level.percentile
    by_what = "" if by == PERCENTILES[0] else f" by its {by}"
    is_sure = high is not None and high <= question.slo_seconds
    return f"meets the SLO{by_what}{'' if is_sure else ', not surely'}"


def paragraph(workload: str, options: Sequence[Option], question: Question, shares: Mapping[str, float] | None) -> str:
    """Which strategy and why, what comes next, what would change the answer, and how sure it is."""
    plans = advise(options, question)
    if answer_of(plans) is None:
        reasons = "; ".join(f"{plan.option.strategy}: {plan.reason}" for plan in plans[:SHOWN]) or "there is no data"
        return f"{workload}: nothing that is known answers this. {reasons}."
    best, *others = plans
    sentences = [_which(workload, best, question), _why(best, question)]
    if alike := [each.option.strategy for each in others if each.is_alike and each.rank == best.rank]:
        more = f" and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
        what = "mean latency" if best.level and best.level.promptness else "throughput"
        sentences.append(
            f"In {what} {', '.join(alike[:SHOWN])}{more} cannot be distinguished from it; "
            f"{best.option.strategy} is the least effort."
        )
    predicted = [found for each in plans if (found := best_of(each.option, question, False))]
    smaller = [each for each in predicted if each.devices and best.devices and each.devices < best.devices]
    if smaller:
        fewer = ", ".join(f"{each.option.strategy} ({_count(each.devices, 'device')})" for each in smaller[:SHOWN])
        sentences.append(f"Predicted, not measured, to need fewer devices: {fewer}.")
    words = [_change(point, best.option.strategy) for point in turning_points(options, question)]
    sentences.append(
        f"What would change it: {'; '.join(words)}." if words else "Nothing that is known would change this."
    )
    return " ".join([*sentences, _sure(best.option.strategy, shares)])


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _which(workload: str, best: Plan, question: Question) -> str:
    assert best.devices is not None and best.level is not None
    took = f"{workload}: take {best.option.strategy} on {_count(best.devices, 'device')}"
    if best.devices > 1:
        took += f", {f'at most {best.per_device} tenants' if best.per_device > 1 else 'one tenant'} on each"
        took += f"; nothing that was measured serves {question.tenants} tenants on fewer"
        all_on_one = best.option.level(question.tenants, True)
        if all_on_one is not None and question.slo_seconds is not None:
            n, latency_ms = all_on_one.replicas, 1e3 * all_on_one.latency.value
            took += f" ({best.option.strategy} with {n} on one device: {all_on_one.percentile} {latency_ms:.4g} ms)"
    return f"{took}." if best.level.is_measured else f"{took} (predicted, not measured: measure it first)."


def _why(best: Plan, question: Question) -> str:
    assert best.level is not None and best.devices is not None
    ms = best.level.latency.times(1e3)
    text = f"Its {best.level.percentile} with {_count(best.level.replicas, 'tenant')} is {ms.value:.4g} ms"
    if ms.low is not None and ms.high is not None:
        text += f" ({ms.low:.4g} to {ms.high:.4g})"
    margin = best.margin_percent(question.slo_seconds)
    if margin is not None:
        times = f"the SLO is {1 + margin.value / 100:.3g} times that"
        text += f", {times if margin.value > MOST_PERCENT else f'{margin.value:.0f} % of margin to the SLO'}"
    if best.level.throughput:
        text += f", at {best.level.throughput.value:.4g} iterations/s per device"
    if question.price_per_hour is not None:
        month = best.devices * question.price_per_hour * HOURS_PER_MONTH
        text += f", for ${month:,.2f} a month"
    return f"{text}."


def _change(point: TurningPoint, strategy: str) -> str:
    other, what = point.question, "there is no answer"
    if point.answer is not None:
        name, number = point.answer
        what = f"it is {'still ' if name == strategy else ''}{name} on {_count(number, 'device')}"
    match point.what:
        case "slo below":
            return f"with an SLO below {1e3 * (other.slo_seconds or 0.0):.4g} ms {what}"
        case "slo above":
            return f"with one of {1e3 * (other.slo_seconds or 0.0):.4g} ms {what}"
        case "tenants":
            return f"with {_count(other.tenants, 'tenant')} {what}"
        case _:
            return f"{'without' if other.isolation == 'none' else f'with {other.isolation}'} isolation {what}"


def _sure(strategy: str, shares: Mapping[str, float] | None) -> str:
    if shares is None:
        return "How sure this is cannot be said: without repeats there are no intervals."
    rest = [
        f"{name or 'nothing'} {100 * share:.0f} %"
        for name, share in shares.items()
        if name != strategy and share >= LEAST_SHARE
    ]
    others = f"; the others: {', '.join(rest[:SHOWN])}" if rest else ""
    return f"{100 * shares.get(strategy, 0.0):.0f} % of the draws from the repeats agree{others}."


def markdown(table: pd.DataFrame, paragraphs: Sequence[str], caption: str) -> str:
    """tables/advice.md, and what the terminal shows: the answers, then the table for people."""
    known = table.astype(object).where(table.notna(), None)
    shown = pd.DataFrame([_shown(row) for row in known.to_dict("records")])
    body = "" if shown.empty else shown.map(lambda text: text.replace("|", r"\|")).to_markdown(index=False)
    return "\n".join([caption, "", *(f"- {text}" for text in paragraphs), "", body, ""])


def _shown(row: Mapping[Any, Any]) -> dict[str, str]:
    def number(name: str, pattern: str = "{:.4g}") -> str:
        value = row[name]
        return "-" if value is None else pattern.format(value)

    low, high = (number(f"margin_percent{end}", "{:.0f}") for end in ("_low", "_high"))
    return {
        "workload": row["workload"],
        "rank": number("rank", "{:.0f}"),
        "strategy": row["strategy"],
        "devices": number("devices", "{:.0f}"),
        "each with": number("tenants_per_device", "{:.0f}"),
        "verdict": row["verdict"] + ("" if row["basis"] in (MEASURED, None) else f" ({row['basis']})"),
        "latency (ms)": f"{row['percentile'] or ''} {number('latency_ms')}".strip(),
        "margin (%)": number("margin_percent", "{:.0f}") + ("" if low == "-" else f" [{low}, {high}]"),
        "iterations/s per device": number("throughput_per_device_hz"),
        "$ a month": number("dollars_per_month", "{:.2f}"),
        "$ per million": number("dollars_per_million_iterations"),
        "performance isolation": _held(row, "performance_isolation"),
        "fault isolation": _held(row, "fault_isolation"),
        "set-up": row["effort"],
        "why not": row["reason"] or "",
    }


def _held(row: Mapping[Any, Any], name: str) -> str:
    basis = row[f"{name}_basis"].partition(":")[0]
    return row[name] if row[name] == basis else f"{row[name]} ({basis})"
