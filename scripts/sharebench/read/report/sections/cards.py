"""The answer for each workload as a card, from tables/advice.csv, advice.json and the summary."""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sharebench.model.strategies import is_control
from sharebench.model.study_config import Sweep
from sharebench.read.figures.data import Row, absence_reason
from sharebench.read.figures.load_curve import load_label
from sharebench.read.report.sections.advice import Advice
from sharebench.read.report.words import format_interval, format_number

BASELINE = ("exclusive", 1, True)
"""Strategy, tenants and validity of the row with which a card compares."""
SHOWN_KINDS = ("scope", "tie", "devices")
"""Kinds of the reasons that a card gives for its answer; the table of advice covers the others."""


class SweepMetric(NamedTuple):
    """A column of the summary in a sweep's table, with its heading and unit, and the factor to that unit."""

    name: str
    heading: tuple[str, str]
    factor: float = 1.0


SWEEP_METRICS = (
    SweepMetric("ttft_p50_seconds", ("TTFT p50", "ms"), 1e3),
    SweepMetric("ttft_p99_seconds", ("TTFT p99", "ms"), 1e3),
    SweepMetric("tpot_p50_seconds", ("TPOT p50", "ms"), 1e3),
    SweepMetric("latency_p50_seconds", ("Latency p50", "ms"), 1e3),
    SweepMetric("latency_p99_seconds", ("Latency p99", "ms"), 1e3),
    SweepMetric("output_tokens_total_hz", ("Output", "tokens/s")),
    SweepMetric("throughput_total_hz", ("Answers", "requests/s")),
    SweepMetric("goodput_total_hz", ("Within the SLO", "requests/s")),
)
SERVING_METRICS = tuple(each for each in SWEEP_METRICS if not each.name.startswith(("latency_", "throughput_")))
"""The metrics that only streams or an SLO have."""


class SweepLoad(NamedTuple):
    """One load of a sweep: its value, the best row of tables/advice.csv and the summary's behind it, or why none."""

    value: float
    best: Row | None
    judged: Row | None
    why: str


class Card(NamedTuple):
    """The answer for one workload: the best row of tables/advice.csv, or why there is none. A sweep has `loads`."""

    workload: str
    best: Row | None
    why: list[str]
    changes: list[str]
    certainty: list[str]
    rivals: list[tuple[str, int, float, float]]
    """Strategies with a measured plan, the best first: devices, and throughput of one in 1/s and % of the largest."""
    by: str = ""
    """The label of the key that a sweep varies."""
    loads: Sequence[SweepLoad] = ()
    metrics: Sequence[SweepMetric] = ()


def cards(
    advised: Advice, summary: Mapping[str, list[Row]], plain: Iterable[str], sweeps: Mapping[str, Sweep]
) -> list[Card]:
    """A card for each sweep, each workload of the advice, and each other workload of `plain` that leaves no choice."""
    answered = [
        _answer_card(answer, advised.rows.get(name, []), summary.get(name, []))
        for name, answer in advised.answers.items()
    ]
    unanswered = (name for name in plain if name not in advised.answers)
    answered += [Card(name, None, [why], [], [], []) for name in unanswered if (why := _no_choice(summary[name]))]
    in_sweeps = {workload for sweep in sweeps.values() for workload in sweep.values}
    by_workload = {card.workload: card for card in answered}
    swept = [_sweep_card(name, sweep, by_workload, summary) for name, sweep in sweeps.items()]
    return [*swept, *(card for card in answered if card.workload not in in_sweeps)]


def _sweep_card(name: str, sweep: Sweep, found: Mapping[str, Card], summary: Mapping[str, list[Row]]) -> Card:
    loads = []
    for workload, value in sorted(sweep.values.items(), key=itemgetter(1)):
        card = found.get(workload, Card(workload, None, ["not measured"], [], [], []))
        judged = None if card.best is None else _judged_row(card.best, summary.get(workload, []))
        loads.append(SweepLoad(value, card.best, judged, "" if card.best else card.why[0]))
    metrics = known_metrics(load.judged for load in loads if load.judged)
    return Card(name, None, [], [], [], [], load_label(sweep), loads, metrics)


def _answer_card(answer: Mapping[str, Any], plans: list[Row], summary: list[Row]) -> Card:
    name, reasons = answer["workload"], answer["reasons"]
    if not plans or math.isnan(plans[0]["rank"]):
        sentence = _no_choice(summary) or answer["sentence"].removeprefix(f"{name}: ")
        return Card(name, None, [sentence, *(text for _, text in reasons)], [], [], [])
    certainty = [text.partition(": see ")[0].rstrip(".") + "." for kind, text in reasons if kind == "certainty"]
    best = plans[0]
    measured = [row for row in plans if row["rank"] > 0]
    judged = _judged_row(best, summary)
    why = [
        "" if judged is None else serving_text(judged),
        _against_one_alone(judged, best, summary),
        *(text for kind, text in reasons if kind in SHOWN_KINDS),
    ]
    if [row["strategy"] for row in measured] == [best["strategy"]]:
        why.append(f"Only {best['strategy']} was measured: there is nothing to compare it with.")
    changes = [each.replace(" it is ", ": ", 1).removesuffix(" on 1 device") for each in answer["changes"]]
    rates = [
        (row["strategy"], int(row["devices"]), hz) for row in measured if (hz := row["throughput_per_device_hz"]) > 0
    ]
    most = max((hz for *_, hz in rates), default=0.0)
    rivals = [(strategy, devices, hz, round(100 * hz / most, 1)) for strategy, devices, hz in rates]
    return Card(name, best, [each for each in why if each], changes, certainty, rivals if len(rivals) > 1 else [])


def known_metrics(rows: Iterable[Row], metrics: Iterable[SweepMetric] = SWEEP_METRICS) -> list[SweepMetric]:
    rows = list(rows)
    return [each for each in metrics if any(not math.isnan(row.get(each.name, math.nan)) for row in rows)]


def _judged_row(best: Row, summary: list[Row]) -> Row | None:
    """The row of the summary behind a row of the advice; None without one."""
    key = (best["strategy"], best["judged_with_tenants"])
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


def _against_one_alone(own: Row | None, best: Row, summary: list[Row]) -> str:
    """A sentence on throughput and mean latency of the best strategy over those of one exclusive tenant."""
    alone = next((row for row in summary if (row["strategy"], row["replicas"], row["n"] > 0) == BASELINE), None)
    if best["tenants_per_device"] == 1 or own is None:
        return ""
    if alone is None or math.isnan(own["slowdown"]):
        return "No valid baseline: what sharing costs, against one tenant alone, is not known."
    times = own["throughput_total_hz"] / alone["throughput_total_hz"]
    return f"Throughput × {times:.2f}, mean latency × {format_interval(own, 'slowdown').value} of one tenant alone."


def _no_choice(summary: list[Row]) -> str:
    """Why a workload's rows leave nothing to choose from; empty if several strategies have valid cells."""
    rows = [row for row in summary if not is_control(row["strategy"])]
    measured = dict.fromkeys(row["strategy"] for row in rows if row["n"] > 0)
    if rows and not measured:
        reasons = dict.fromkeys(f"{row['strategy']}: {row['reason'] or absence_reason(row)}" for row in rows)
        return f"No valid cell. {'; '.join(reasons)}."
    return (
        f"Only {next(iter(measured))} has a valid cell: there is nothing to choose from." if len(measured) == 1 else ""
    )
