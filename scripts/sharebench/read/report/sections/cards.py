"""The answer for each workload as a card, from tables/advice.json and the summary."""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import pandas as pd

from sharebench.model.strategies import is_control
from sharebench.model.study_config import Sweep
from sharebench.read.alike import merge_alike
from sharebench.read.decide.answers import Answer, Fact
from sharebench.read.figures.data import Row, absence_reason, load_label
from sharebench.read.grouping import group_by
from sharebench.read.report.sections.advice import Advice
from sharebench.read.report.words import format_number
from sharebench.read.text import MS, MetricLook, known_looks

SWEEP_LOOKS = (
    MetricLook("ttft_p50_seconds", ("TTFT p50", "ms"), MS, is_optional=True),
    MetricLook("ttft_p99_seconds", ("TTFT p99", "ms"), MS, is_optional=True),
    MetricLook("tpot_p50_seconds", ("TPOT p50", "ms"), MS, is_optional=True),
    MetricLook("latency_p50_seconds", ("Latency p50", "ms"), MS, is_optional=True),
    MetricLook("latency_p99_seconds", ("Latency p99", "ms"), MS, is_optional=True),
    MetricLook("output_tokens_total_hz", ("Output", "tokens/s"), is_optional=True),
    MetricLook("throughput_total_hz", ("Answers", "requests/s"), is_optional=True),
    MetricLook("goodput_total_hz", ("Within the SLO", "requests/s"), is_optional=True),
)
"""The columns of a sweep's table."""


class SweepLoad(NamedTuple):
    """One load of a sweep: its value, the strategy to take, its row of the summary, or why there is none."""

    value: float
    strategy: str
    tenants: int
    judged: Row | None
    why: str


class Bar(NamedTuple):
    """What a GPU does under a plan, as text and in percent of the largest."""

    strategy: str
    text: str
    percent: float


class Card(NamedTuple):
    """The answer for one workload, from tables/advice.json, or why there is none. A sweep has `loads`."""

    workload: str
    headline: str
    strategy: str = ""
    """The strategy to take; empty without a winner."""
    facts: Sequence[Fact] = ()
    reasons: Mapping[str, Sequence[str]] = {}
    """The sentences of each kind of reason."""
    serving: str = ""
    bars: Sequence[Bar] = ()
    by: str = ""
    """The label of the key that a sweep varies."""
    loads: Sequence[SweepLoad] = ()
    metrics: Sequence[MetricLook] = ()


def cards(
    advised: Advice, summary: Mapping[str, list[Row]], plain: Iterable[str], sweeps: Mapping[str, Sweep]
) -> list[Card]:
    """A card for each sweep, each workload of the advice, and each other workload of `plain` that leaves no choice."""
    answered = [_answer_card(answer, summary.get(name, [])) for name, answer in advised.answers.items()]
    unanswered = (name for name in plain if name not in advised.answers)
    answered += [Card(name, why) for name in unanswered if (why := _no_choice(summary[name]))]
    in_sweeps = {workload for sweep in sweeps.values() for workload in sweep.values}
    swept = [_sweep_card(name, sweep, advised, summary) for name, sweep in sweeps.items()]
    return [*swept, *(card for card in answered if card.workload not in in_sweeps)]


def _sweep_card(name: str, sweep: Sweep, advised: Advice, summary: Mapping[str, list[Row]]) -> Card:
    loads = []
    hazards: dict[str, None] = {}
    for workload, value in sorted(sweep.values.items(), key=itemgetter(1)):
        answer, rows = advised.answers.get(workload), summary.get(workload, [])
        if answer:
            hazards |= dict.fromkeys(answer.texts("hazard"))
        if answer and answer.strategy and not answer.undecided:
            loads.append(SweepLoad(value, answer.strategy, answer.per_device, _judged_row(answer, rows), ""))
        else:
            why = _no_choice(rows) or (answer.headline if answer else "not measured")
            loads.append(SweepLoad(value, "", 0, None, why))
    metrics = known_looks(pd.DataFrame([load.judged for load in loads if load.judged]), SWEEP_LOOKS)
    return Card(name, "", reasons={"hazard": [*hazards]}, by=load_label(sweep), loads=loads, metrics=metrics)


def _answer_card(answer: Answer, summary: list[Row]) -> Card:
    planned = [each for each in answer.plans if each.per_gpu]
    most = max((each.per_gpu or 0.0 for each in planned), default=0.0)
    bars = [
        Bar(each.strategy, f"{each.work} on each of {each.devices}" if (each.devices or 0) > 1 else each.work, percent)
        for each in planned
        if (percent := round(100 * (each.per_gpu or 0.0) / most, 1))
    ]
    judged = _judged_row(answer, summary)
    return Card(
        answer.workload,
        answer.headline if answer.strategy else _no_choice(summary) or answer.headline,
        "" if answer.undecided else answer.strategy,
        answer.facts,
        {reason.kind: answer.texts(reason.kind) for reason in answer.reasons},
        serving_text(judged) if judged else "",
        bars if len(bars) > 1 else [],
    )


def _judged_row(answer: Answer, summary: list[Row]) -> Row | None:
    """The row of the summary behind an answer; None without one."""
    key = (answer.strategy, answer.judged_with)
    return next((row for row in summary if (row["strategy"], row["replicas"]) == key and row["n"] > 0), None)


def serving_text(row: Row) -> str:
    """Sentences on the performance of a streaming server, from a row of the summary; empty for other workloads."""

    def phrase(metric: str, template: str, factor: float = 1.0) -> str:
        value = factor * row.get(metric, math.nan)
        return "" if math.isnan(value) else template.format(format_number(value))

    first = phrase("ttft_p50_seconds", "First token after {} ms", 1e3) + phrase("ttft_p99_seconds", " (p99 {} ms)", 1e3)
    then = phrase("tpot_p50_seconds", "then one every {} ms", 1e3) + phrase("tpot_p99_seconds", " (p99 {} ms)", 1e3)
    rate = phrase("output_tokens_total_hz", "{} output tokens/s of all tenants")
    good = phrase("goodput_total_hz", "{} requests/s within the SLO")
    sentences = (", ".join(filter(None, (first, then))), "; ".join(filter(None, (rate, good))))
    return " ".join(f"{each}." for each in sentences if each)


def _no_choice(summary: list[Row]) -> str:
    """Why a workload's rows leave nothing to choose from, without full stop; empty if several strategies are valid."""
    rows = [row for row in summary if not is_control(row["strategy"])]
    measured = dict.fromkeys(row["strategy"] for row in rows if row["n"] > 0)
    if rows and not measured:
        whys = group_by(rows, itemgetter("strategy"))
        texts = {name: "; ".join(row["reason"] or absence_reason(row) for row in own) for name, own in whys.items()}
        return f"No valid cell. {'; '.join(f'{name}: {merge_alike(text)}' for name, text in texts.items())}"
    return (
        f"Only {next(iter(measured))} has a valid cell: there is nothing to choose from" if len(measured) == 1 else ""
    )
