"""Fills the blocks of an edition's README with the results that published/edition-two/DESIGN.md asks for.

These are primary outcomes with Holm's correction, a comparison of editions, predictions by a straight line, exclusions.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from publication import replication
from publication.findings import Entry, parse_entry
from publication.numbers import BlockKey, DataSet, MissingNumber, number_from
from publication.tables import markdown
from sharebench.read.report.words import format_number
from sharebench.read.statistics.intervals import Estimate, holm, log_interval, welch_estimate

DESIGN_FOLDER = Path("published/edition-two")
OUTCOMES_FILE = DESIGN_FOLDER / "outcomes.yaml"
PREDICTED_FROM = {2: (1, 3), 4: (3, 5), 6: (5, 7), 8: (5, 7)}
"""Number of tenants → the two numbers of tenants whose latencies predict its latency by a straight line."""
DataSets = Mapping[str, DataSet]


class OutcomeEntry(Entry):
    """A primary outcome: a ratio in a study, and the claim about it."""

    outcome: int
    study: str
    what: str
    over: dict[str, Any]
    under: dict[str, Any]
    metric: str = "latency_mean_seconds"
    edition_one: str
    claim: Literal["above", "not above", "below"]
    limit: float | None = None
    limit_of: int | None = None
    """Number of the outcome whose value is the limit, in place of `limit`."""


@dataclass(frozen=True)
class Outcome:
    entry: OutcomeEntry
    estimate: Estimate | None
    """None where the outcome is not measured yet."""
    limit: float | None
    p: float | None
    """p of the two-sided test that the estimate equals the limit."""
    p_holm: float

    @property
    def verdict(self) -> str:
        if self.estimate is None or self.limit is None:
            return "not measured yet"
        if self.p is None:
            return "no interval"
        is_on_side = (self.estimate.value < self.limit) == (self.entry.claim == "below")
        is_claim = self.entry.claim != "not above"
        expected, otherwise = ("holds", "refuted") if is_claim else ("refuted", "holds")
        if is_on_side and self.p_holm < replication.SIGNIFICANCE_LEVEL:
            return expected
        is_lost = is_on_side and self.p < replication.SIGNIFICANCE_LEVEL
        return f"{otherwise}, {expected} without the correction" if is_lost else otherwise


def read_outcomes(root: Path) -> list[OutcomeEntry]:
    """The primary outcomes of the design. Raises Contradicted where an entry is malformed."""
    entries = yaml.safe_load((root / OUTCOMES_FILE).read_text(encoding="utf-8"))
    return [parse_entry(OutcomeEntry, f"{OUTCOMES_FILE}: outcome {entry.get('outcome')}", entry) for entry in entries]


def limit_probability(estimate: Estimate, limit: float, *limit_estimate: Estimate) -> float | None:
    """p of the two-sided test against the limit, which may be an estimate too; None without an interval."""
    parts = [(each.log_variance, each.degrees_of_freedom) for each in (estimate, *limit_estimate)]
    return welch_estimate(math.log(estimate.value / limit), parts, estimate.n).probability


def decide_outcomes(entries: Sequence[OutcomeEntry], studies: DataSets) -> list[Outcome]:
    """The outcomes from the studies of an edition. Outcomes that are not measured yet count as tests for Holm too."""
    by_study = {name.split("/")[-1]: data for name, data in studies.items()}
    estimates: dict[int, Estimate] = {}
    for entry in entries:
        try:
            estimates[entry.outcome] = by_study[entry.study].estimate(entry.over, entry.under, entry.metric)
        except (KeyError, MissingNumber):
            continue
    tested = [_test_outcome(entry, estimates) for entry in entries]
    adjusted = holm([1.0 if p is None else p for _, p in tested])
    return [
        Outcome(entry, estimates.get(entry.outcome), limit, p, p_holm)
        for entry, (limit, p), p_holm in zip(entries, tested, adjusted, strict=True)
    ]


def _test_outcome(entry: OutcomeEntry, estimates: Mapping[int, Estimate]) -> tuple[float | None, float | None]:
    """The limit of an outcome, and p; None for each that is not known yet."""
    own = estimates.get(entry.outcome)
    if entry.limit_of is None:
        return entry.limit, limit_probability(own, entry.limit) if own and entry.limit else None
    other = estimates.get(entry.limit_of)
    # The two are from different studies, so they are not paired.
    return (other.value, limit_probability(own, other.value, other)) if own and other else (None, None)


def primary_outcomes_table(studies: DataSets, _: DataSets, root: Path) -> str:
    rows = []
    for each in decide_outcomes(read_outcomes(root), studies):
        limit = "" if each.limit is None else f" {format_number(each.limit)}"
        rows.append(
            {
                "": str(each.entry.outcome),
                "study": f"`{each.entry.study}`",
                "outcome": each.entry.what,
                "edition one": each.entry.edition_one,
                "now": number_from(each.estimate).formatted() if each.estimate else "",
                "claim": f"{each.entry.claim}{limit}",
                "p": "" if each.p is None else f"{each.p:.2g}",
                "Holm's p": "" if each.p is None else f"{each.p_holm:.2g}",
                "verdict": each.verdict,
            }
        )
    return markdown(rows)


def editions_table(studies: DataSets, all_studies: DataSets, _: Path) -> str:
    """Welch's test, with Holm's correction, of each slowdown that earlier editions measured on hosts too."""
    before = [data for name, data in all_studies.items() if name not in studies and data.device["kind"] == "nvidia"]
    try:
        found = replication.compare_collections(before, list(studies.values()))
    except MissingNumber as missing:
        return f"{missing}."
    return found.table


def straight_line_table(studies: DataSets, _: DataSets, __: Path) -> str:
    """Latency over its prediction by a straight line through other numbers of tenants, paired by block."""
    rows = []
    for name, data in sorted(studies.items()):
        for (strategy, workload), summary in data.table("summary").groupby(["strategy", "workload"], sort=False):
            if not set(summary["replicas"]) >= {1, 2, 3}:
                continue
            row = {"study": name.split("/")[-1], "strategy": str(strategy), "workload": f"`{workload}`"}
            for count in PREDICTED_FROM:
                row[f"{count} tenants"] = ratio_to_line(data, str(strategy), str(workload), count)
            rows.append(row)
    return markdown(rows)


def ratio_to_line(data: DataSet, strategy: str, workload: str, replicas: int) -> str:
    """Measured latency over the predicted one, with its interval; empty where one of the three points is missing."""

    def latencies(count: int) -> dict[BlockKey, float]:
        where = {"strategy": strategy, "workload": workload, "replicas": count}
        return data.values_by_block(where, "latency_mean_seconds")

    low, high = PREDICTED_FROM[replicas]
    try:
        first, last, here = map(latencies, (low, high, replicas))
    except MissingNumber:
        return ""
    keys = sorted(first.keys() & last.keys() & here.keys())
    if not keys:
        return ""
    share = (replicas - low) / (high - low)
    ratios = [here[key] / (first[key] + share * (last[key] - first[key])) for key in keys]
    devices = [key[0] for key in keys] if data.device_count > 1 else ()
    return number_from(log_interval(ratios, devices)).formatted(" ×")


def exclusions_table(studies: DataSets, _: DataSets, __: Path) -> str:
    """Numbers of cells, not tenants, that gates exclude, by gate, and that gave no measurement, by status."""
    rows = []
    for name, data in sorted(studies.items()):
        cells = data.table("cells").drop_duplicates(["strategy", "workload", "replicas", "repeat"])
        excluded = cells[~cells["valid"]].to_dict("records")
        gates = Counter(str(row["reason"]).partition(":")[0] for row in excluded if row["status"] == "ok")
        ends = Counter(str(row["status"]) for row in excluded if row["status"] != "ok")
        row = {"study": name.split("/")[-1], "cells": str(len(cells)), "valid": str(len(cells) - len(excluded))}
        rows.append(row | {"excluded by a gate": _format_counts(gates), "no measurement": _format_counts(ends)})
    return markdown(rows)


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"`{name}` {count}" for name, count in sorted(counts.items()))


BLOCKS: Mapping[str, Callable[[DataSets, DataSets, Path], str]] = {
    "primary-outcomes": primary_outcomes_table,
    "editions": editions_table,
    "straight-line": straight_line_table,
    "exclusions": exclusions_table,
}
"""Name of a block → its text from the studies of a publication, all published studies, and the checkout."""
