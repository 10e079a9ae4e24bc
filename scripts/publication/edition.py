"""Fills the blocks of an edition's README with the results that published/edition-two/DESIGN.md asks for.

These are primary outcomes with Holm's correction, a comparison of editions, exclusions.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml

from publication import replication
from publication.findings import Entry, parse_entry
from publication.numbers import BlockKey, DataSet, MissingNumber, number_from
from publication.tables import markdown
from sharebench.read.report.words import format_number
from sharebench.read.statistics.intervals import Estimate, holm, log_interval, welch_estimate

DESIGN_FOLDER = Path("published/edition-two")
OUTCOMES_FILE = DESIGN_FOLDER / "outcomes.yaml"
UNITS_FOR_OWN_VARIANCE = 4
"""With fewer units the variance is pooled over the rows of the workload."""
DataSets = Mapping[str, DataSet]


class OutcomeEntry(Entry):
    """A primary outcome: a ratio in a study, and the claim about it."""

    outcome: int
    study: str
    unit: Literal["device", "machine"] = "device"
    """Column of tables/cells.csv that names what repeats are of, as in the design's table of modules."""
    what: str
    over: dict[str, Any]
    under: dict[str, Any]
    metric: str = "latency_mean_seconds"
    edition_one: str
    claim: Literal["above", "not above", "below", "within"]
    limit: float | None = None
    limit_of: str | None = None
    """Published data set of another product whose ratio of the same groups is the limit, in place of `limit`."""
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
    contrary_p_holm: float
    """Of the two-sided tests that the estimate equals the limit, for `within` its nearer end."""
    is_tested: bool = True
    """Whether it is of another product than `limit_of`."""

    def verdict(self, is_final: bool) -> str:
        """As the design defines it: only what a test shows holds or is refuted, for `not above` its contrary."""
        if self.estimate is None or self.limit is None:
            return "not measured yet"
        if not self.is_tested:
            return "not tested: the limit is of this product"
        so_far = "" if is_final else " so far"
        if self.p is None:
            return f"no interval{so_far}"
        is_on_side = self._is_on_side(self.estimate.value / self.limit)
        is_claim = self.entry.claim != "not above"
        expected, otherwise = ("holds", "refuted") if is_claim else ("refuted", "holds")
        if is_on_side and self.p_holm < replication.SIGNIFICANCE_LEVEL:
            return f"{expected}{so_far}"
        if is_on_side or self.contrary_p_holm >= replication.SIGNIFICANCE_LEVEL:
            otherwise = "not shown" if is_claim else "not refuted"
        is_lost = is_on_side and self.p < replication.SIGNIFICANCE_LEVEL
        return f"{otherwise}{f', {expected} without the correction' if is_lost else ''}{so_far}"

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


def estimate_outcome(data: DataSet, entry: OutcomeEntry) -> Estimate:
    """The geometric mean of an outcome's ratio over the units that have both sides in a block; `n` counts these units.

    With fewer than UNITS_FOR_OWN_VARIANCE units the variance is pooled. Raises MissingNumber where no unit has both.
    """
    over, under = data.both_by_block(entry.over, entry.under, entry.metric, entry.unit)
    ratios = _mean_logs_by_unit({block: over[block] / under[block] for block in over.keys() & under.keys()})
    if not ratios:
        raise MissingNumber(f"{data.name} has no {entry.unit} with both sides of outcome {entry.outcome}")
    own = log_interval([math.exp(log) for log in ratios.values()])
    if own.n >= UNITS_FOR_OWN_VARIANCE:
        return own
    variance, degrees = _pooled_variance(data, entry)
    return welch_estimate(math.log(own.value), [(variance and 2 * variance / own.n, degrees)], own.n)


def _mean_logs_by_unit(values: Mapping[BlockKey, float]) -> dict[str, float]:
    """The mean log of each unit, over its blocks."""
    found: dict[str, list[float]] = {}
    for (unit, *_), value in sorted(values.items()):
        found.setdefault(unit, []).append(math.log(value))
    return {unit: math.fsum(logs) / len(logs) for unit, logs in found.items()}


def _pooled_variance(data: DataSet, entry: OutcomeEntry) -> tuple[float | None, int]:
    """Variance of the log of a row in a unit, over all rows of the workload in the study, with degrees of freedom.

    Row and unit are additive effects, fitted by least squares, since a unit may lack a row. None where nothing is left.
    """
    where = {"tenant_workload": entry.over.get("tenant_workload", entry.over["workload"])}
    keys = ["strategy", "workload", "replicas"]
    points = data.rows("cells", where)[keys].drop_duplicates().itertuples(index=False, name=None)
    sides = [where | dict(zip(keys, point, strict=True)) for point in points]
    rows = [_mean_logs_by_unit(data.values_by_block(side, entry.metric, entry.unit)) for side in sides]
    table = pd.DataFrame(rows).stack().dropna()
    effects = pd.get_dummies(table.index.to_frame(), columns=[0, 1], dtype=float).to_numpy()
    fitted, _, rank, _ = np.linalg.lstsq(effects, table.to_numpy())
    degrees = len(table) - int(rank)
    return float(((table - effects @ fitted) ** 2).sum()) / degrees if degrees else None, degrees


def decide_outcomes(entries: Sequence[OutcomeEntry], studies: DataSets, all_studies: DataSets) -> list[Outcome]:
    """The outcomes from the studies of an edition. Outcomes that are not measured yet count as tests for Holm too."""
    by_study = _by_study(studies)
    products = {data.device["product"] for data in studies.values()}
    is_tested = [not (each.limit_of and {all_studies[each.limit_of].device["product"]} == products) for each in entries]
    tested = [_test_outcome(entry, by_study.get(entry.study), all_studies) for entry in entries]
    tested = [values if ok else (*values[:2], None) for values, ok in zip(tested, is_tested, strict=True)]
    own = [1.0 if p is None else p for _, _, p in tested]
    # The p of `within` is that of a one-sided test against the nearer end.
    contrary = [
        min(1.0, 2 - 2 * p) if p is not None and entry.claim == "within" else one
        for entry, (*_, p), one in zip(entries, tested, own, strict=True)
    ]
    found = zip(entries, tested, holm(own), holm(contrary), is_tested, strict=True)
    return [Outcome(entry, *values, p, other, is_own) for entry, values, p, other, is_own in found]


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


def _by_study(studies: DataSets) -> dict[str, DataSet]:
    return {name.split("/")[-1]: data for name, data in studies.items()}


def primary_outcomes_table(studies: DataSets, all_studies: DataSets, root: Path) -> str:
    rows, by_study = [], _by_study(studies)
    for each in decide_outcomes(read_outcomes(root), studies, all_studies):
        study = yaml.safe_load((root / DESIGN_FOLDER / f"{each.entry.study}.yaml").read_text(encoding="utf-8"))
        planned = study["repeats"]
        own = by_study.get(each.entry.study)
        whole = own.repeats_by_workload.get(each.entry.over["workload"], 0) if own else 0
        margin = f" {each.entry.within_percent:g} % of" if each.entry.claim == "within" else ""
        limit = "" if each.limit is None else f"{margin} {format_number(each.limit)}"
        rows.append(
            {
                "": str(each.entry.outcome),
                "study": f"`{each.entry.study}`",
                "outcome": each.entry.what,
                "edition one": each.entry.edition_one,
                "now": number_from(each.estimate).formatted() if each.estimate else "",
                "units": _format_units(each.entry, each.estimate, f"{whole} of {planned}") if each.estimate else "",
                "claim": f"{each.entry.claim}{limit}",
                "p": "" if each.p is None else f"{each.p:.2g}",
                "Holm's p": "" if each.p is None else f"{each.p_holm:.2g}",
                "verdict": each.verdict(is_final=whole >= planned),
            }
        )
    return markdown(rows)


def _format_units(entry: OutcomeEntry, found: Estimate, blocks: str) -> str:
    pooled = ", variance pooled" if found.n < UNITS_FOR_OWN_VARIANCE and found.low is not None else ""
    return f"{found.n} {entry.unit}{'s' if found.n > 1 else ''} in {blocks} blocks{pooled}"


def editions_table(studies: DataSets, all_studies: DataSets, root: Path) -> str:
    """Welch's test, with Holm's correction, of each slowdown that edition one has too: all hosts without visits.

    Below it are the slowdowns that differ by more than the design predicts.
    """
    of_visits = {path.parent.name for path in root.glob("published/*/visits")}
    hosts = [data for data in all_studies.values() if data.device["kind"] == "nvidia"]
    before = [data for data in hosts if data.name.split("/")[0] not in of_visits]
    try:
        found = replication.compare_collections(before, list(studies.values()))
    except MissingNumber as missing:
        return f"{missing}."
    return f"{found.table}\n\n{_beyond_prediction(found, read_outcomes(root))}"


def _beyond_prediction(found: replication.Replication, entries: Sequence[OutcomeEntry]) -> str:
    """The prediction is about the workloads of the outcomes `within`, with their margin."""
    margin = {entry.over["workload"]: entry.within_percent for entry in entries if entry.claim == "within"}
    predicted = sorted((group for group in found.ratios if group[1] in margin), key=itemgetter(1, 0, 2))
    changes = {group: found.ratios[group].value for group in predicted}
    beyond = [group for group in predicted if abs(math.log(changes[group])) > math.log1p(margin[group[1]] / 100)]
    named = ", ".join(
        f"{replication.describe(group)} ({100 * (changes[group] - 1):+.1f} %, p {found.p[group]:.2g})"
        for group in beyond
    )
    percent = " or ".join(f"{each:g}" for each in sorted({*margin.values()}))
    return (
        f"The design [predicts](../edition-two/DESIGN.md#predictions) changes within {percent} %; "
        f"{len(beyond)} of {len(predicted)} are larger{': ' if named else ''}{named}."
    )


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
