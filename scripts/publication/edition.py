"""Fills the blocks of an edition's README with the results that published/edition-two/DESIGN.md asks for.

These are primary outcomes with Holm's correction, a comparison of editions, exclusions.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from publication import replication
from publication.findings import Entry, parse_entry
from publication.numbers import BlockKey, DataSet, MissingNumber, number_from
from publication.tables import markdown
from sharebench.read.report.words import format_number
from sharebench.read.statistics.intervals import Estimate, holm, welch_estimate

DESIGN_FOLDER = Path("published/edition-two")
OUTCOMES_FILE = DESIGN_FOLDER / "outcomes.yaml"
UNITS_FOR_OWN_VARIANCE = 4
"""With fewer units the variance is pooled over the rows of the workload."""
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
    claim: Literal["above", "not above", "below", "within"]
    limit: float | None = None
    limit_of: str | None = None
    """Published data set whose ratio of the same groups is the limit, in place of `limit`."""
    within_percent: float = 0
    """Largest ratio to the limit, and of the limit, that is `within`."""


@dataclass(frozen=True)
class Outcome:
    entry: OutcomeEntry
    estimate: Estimate | None
    """None where the outcome is not measured yet."""
    limit: float | None
    p: float | None
    """p of the two-sided test that the estimate equals the limit; for `within`, of two one-sided tests."""
    p_holm: float

    @property
    def verdict(self) -> str:
        if self.estimate is None or self.limit is None:
            return "not measured yet"
        if self.p is None:
            return "no interval"
        is_on_side = self._is_on_side(self.estimate.value / self.limit)
        is_claim = self.entry.claim != "not above"
        expected, otherwise = ("holds", "refuted") if is_claim else ("refuted", "holds")
        if is_on_side and self.p_holm < replication.SIGNIFICANCE_LEVEL:
            return expected
        is_lost = is_on_side and self.p < replication.SIGNIFICANCE_LEVEL
        return f"{otherwise}, {expected} without the correction" if is_lost else otherwise

    def _is_on_side(self, ratio: float) -> bool:
        """Whether a ratio to the limit is on the side that a small p shows."""
        if self.entry.claim == "within":
            return abs(math.log(ratio)) < math.log1p(self.entry.within_percent / 100)
        return (ratio < 1) == (self.entry.claim == "below")


def read_outcomes(root: Path) -> list[OutcomeEntry]:
    """The primary outcomes of the design. Raises Contradicted where an entry is malformed."""
    entries = yaml.safe_load((root / OUTCOMES_FILE).read_text(encoding="utf-8"))
    return [parse_entry(OutcomeEntry, f"{OUTCOMES_FILE}: outcome {entry.get('outcome')}", entry) for entry in entries]


def limit_probability(estimate: Estimate, limit: float, *limit_estimate: Estimate) -> float | None:
    """p of the two-sided test against the limit, which may be an estimate too; None without an interval."""
    parts = [(each.log_variance, each.degrees_of_freedom) for each in (estimate, *limit_estimate)]
    return welch_estimate(math.log(estimate.value / limit), parts, estimate.n).probability


def within_probability(estimate: Estimate, limit: Estimate, percent: float) -> float | None:
    """p of two one-sided tests (Schuirmann, J. of Pharmacokinetics 15, 1987) that the ratio is within the margin."""
    margin, ratio = math.log1p(percent / 100), math.log(estimate.value / limit.value)
    found = []
    for end in (-margin, margin):
        p = limit_probability(estimate, limit.value * math.exp(end), limit)
        if p is None:
            return None
        found.append(p / 2 if (ratio > end) == (end < 0) else 1 - p / 2)
    return max(found)


def pooled_estimate(data: DataSet, entry: OutcomeEntry) -> Estimate:
    """The ratio of an outcome with the variance pooled over all rows of its workload in the study.

    Row and unit (device and block) are additive effects on the logs; what is left is the variance of one value.
    Raises MissingNumber where a row lacks a unit.
    """
    where = {"tenant_workload": entry.over.get("tenant_workload", entry.over["workload"])}
    keys = ["strategy", "workload", "replicas"]
    points = data.valid_cells(where)[keys].drop_duplicates().itertuples(index=False, name=None)

    def values(*point: object) -> dict[BlockKey, float]:
        return data.values_by_block(where | dict(zip(keys, point, strict=True)), entry.metric, "device")

    rows = [values(*point) for point in points]
    units = sorted(set.intersection(*map(set, rows)))
    over, under = (values(*(side[key] for key in keys)) for side in (entry.over, entry.under))
    if len(units) < 2 or len(rows) < 2:
        return data.estimate(entry.over, entry.under, entry.metric)
    logs = np.log([[row[unit] for unit in units] for row in rows])
    residuals = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    degrees = (len(rows) - 1) * (len(units) - 1)
    variance = float((residuals**2).sum()) / degrees * 2 / len(units)
    mean = sum(math.log(over[unit] / under[unit]) for unit in units) / len(units)
    return welch_estimate(mean, [(variance, degrees)], len(units))


def estimate_outcome(data: DataSet, entry: OutcomeEntry) -> Estimate:
    """The ratio of an outcome, with its own variance where there are at least UNITS_FOR_OWN_VARIANCE units."""
    estimate = data.estimate(entry.over, entry.under, entry.metric)
    return estimate if estimate.n >= UNITS_FOR_OWN_VARIANCE else pooled_estimate(data, entry)


def decide_outcomes(entries: Sequence[OutcomeEntry], studies: DataSets, all_studies: DataSets) -> list[Outcome]:
    """The outcomes from the studies of an edition. Outcomes that are not measured yet count as tests for Holm too."""
    by_study = {name.split("/")[-1]: data for name, data in studies.items()}
    tested = [_test_outcome(entry, by_study.get(entry.study), all_studies) for entry in entries]
    adjusted = holm([1.0 if p is None else p for _, _, p in tested])
    return [Outcome(entry, *found, p_holm) for entry, found, p_holm in zip(entries, tested, adjusted, strict=True)]


def _test_outcome(
    entry: OutcomeEntry, data: DataSet | None, all_studies: DataSets
) -> tuple[Estimate | None, float | None, float | None]:
    """The value of an outcome, its limit, and p; None for each that is not known yet."""
    try:
        own = estimate_outcome(data, entry) if data is not None else None
    except MissingNumber:
        own = None
    if entry.limit_of is None:
        return own, entry.limit, limit_probability(own, entry.limit) if own and entry.limit else None
    # The two are from different studies, so they are not paired.
    other = all_studies[entry.limit_of].estimate(entry.over, entry.under, entry.metric)
    return own, other.value, within_probability(own, other, entry.within_percent) if own else None


def primary_outcomes_table(studies: DataSets, all_studies: DataSets, root: Path) -> str:
    rows = []
    for each in decide_outcomes(read_outcomes(root), studies, all_studies):
        margin = f" {each.entry.within_percent:g} % of" if each.entry.claim == "within" else ""
        limit = "" if each.limit is None else f"{margin} {format_number(each.limit)}"
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
    "exclusions": exclusions_table,
}
"""Name of a block → its text from the studies of a publication, all published studies, and the checkout."""
