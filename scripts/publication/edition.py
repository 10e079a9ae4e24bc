"""What the design of an edition asks of its data (published/edition-two/DESIGN.md), as blocks of its README.

Primary outcomes with Holm's correction, this edition against the other, predictions by a straight line, exclusions.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from publication import replication
from publication.findings import Entry, parsed
from publication.numbers import DataSet, NoNumber, Where, number_of
from publication.tables import markdown
from sharebench.analysis.statistics.intervals import Estimate, holm, log_interval, welch_estimate
from sharebench.report.words import digits

DESIGN = Path("published/edition-two")
OUTCOMES = DESIGN / "outcomes.yaml"
LEVEL = 0.05
PREDICTED = {2: (1, 3), 4: (3, 5), 6: (5, 7), 8: (5, 7)}
"""Numbers of tenants that the straight line predicts, each from the latencies of two others."""
DataSets = Mapping[str, DataSet]


class OutcomeEntry(Entry):
    """A primary outcome: a ratio of a study, and what it must be."""

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
    """The outcome whose value is the limit, in place of a number."""


@dataclass(frozen=True)
class Outcome:
    entry: OutcomeEntry
    estimate: Estimate | None
    """None where it is not measured yet."""
    limit: float | None
    p: float | None
    """Of the two-sided test that it is the limit."""
    p_holm: float

    @property
    def verdict(self) -> str:
        if self.estimate is None or self.limit is None:
            return "not measured yet"
        if self.p is None:
            return "no interval"
        is_on_side = (self.estimate.value < self.limit) == (self.entry.claim == "below")
        is_claim = self.entry.claim != "not above"
        found, otherwise = ("holds", "refuted") if is_claim else ("refuted", "holds")
        if is_on_side and self.p_holm < LEVEL:
            return found
        return f"{otherwise}, {found} without the correction" if is_on_side and self.p < LEVEL else otherwise


def outcomes(root: Path) -> list[OutcomeEntry]:
    """The primary outcomes of the design in a checkout. Raises Contradicted where one is not written as one."""
    entries = yaml.safe_load((root / OUTCOMES).read_text(encoding="utf-8"))
    return [parsed(OutcomeEntry, f"{OUTCOMES}: outcome {entry.get('outcome')}", entry) for entry in entries]


def probability(estimate: Estimate, limit: float, *of_limit: Estimate) -> float | None:
    """p of the two-sided test that the value is the limit, which may be an estimate too; None without an interval."""
    parts = [(each.log_variance, each.degrees_of_freedom) for each in (estimate, *of_limit)]
    return welch_estimate(math.log(estimate.value / limit), parts, estimate.n).probability


def decided(entries: Sequence[OutcomeEntry], own: DataSets) -> list[Outcome]:
    """The outcomes by the studies of an edition. Those not measured yet count in Holm's number of tests, too."""
    by_study = {name.split("/")[-1]: data for name, data in own.items()}
    found: dict[int, Estimate] = {}
    for entry in entries:
        try:
            found[entry.outcome] = by_study[entry.study].estimate(entry.over, entry.under, entry.metric)
        except (KeyError, NoNumber):
            continue
    tested = [_tested(entry, found) for entry in entries]
    adjusted = holm([1.0 if p is None else p for _, p in tested])
    return [
        Outcome(entry, found.get(entry.outcome), limit, p, p_holm)
        for entry, (limit, p), p_holm in zip(entries, tested, adjusted, strict=True)
    ]


def _tested(entry: OutcomeEntry, found: Mapping[int, Estimate]) -> tuple[float | None, float | None]:
    """The limit of an outcome, and p; None where it, or the outcome that is its limit, is not known."""
    own = found.get(entry.outcome)
    if entry.limit_of is None:
        return entry.limit, probability(own, entry.limit) if own and entry.limit else None
    other = found.get(entry.limit_of)
    # They are of different studies, so that nothing pairs them.
    return (other.value, probability(own, other.value, other)) if own and other else (None, None)


def primary_outcomes(own: DataSets, _: DataSets, root: Path) -> str:
    rows = []
    for each in decided(outcomes(root), own):
        limit = "" if each.limit is None else f" {digits(each.limit)}"
        rows.append(
            {
                "": str(each.entry.outcome),
                "study": f"`{each.entry.study}`",
                "outcome": each.entry.what,
                "edition one": each.entry.edition_one,
                "now": number_of(each.estimate).in_words() if each.estimate else "",
                "claim": f"{each.entry.claim}{limit}",
                "p": "" if each.p is None else f"{each.p:.2g}",
                "Holm's p": "" if each.p is None else f"{each.p_holm:.2g}",
                "verdict": each.verdict,
            }
        )
    return markdown(rows)


def editions(own: DataSets, every: DataSets, _: Path) -> str:
    """Each slowdown that this edition and the publications before it have, of hosts: Welch's test, with Holm."""
    before = [data for name, data in every.items() if name not in own and data.device["kind"] == "nvidia"]
    try:
        found = replication.of_several(before, list(own.values()))
    except NoNumber as nothing:
        return f"{nothing}."
    return found.table


def straight_line(own: DataSets, _: DataSets, __: Path) -> str:
    """Latency over what the straight line through other numbers of tenants says, paired by block."""
    rows = []
    for name, data in sorted(own.items()):
        for (strategy, workload), of in data.table("summary").groupby(["strategy", "workload"], sort=False):
            if not set(of["replicas"]) >= {1, 2, 3}:
                continue
            head = {"study": name.split("/")[-1], "strategy": str(strategy), "workload": f"`{workload}`"}
            cells = {f"{count} tenants": on_line(data, str(strategy), str(workload), count) for count in PREDICTED}
            rows.append(head | cells)
    return markdown(rows)


def on_line(data: DataSet, strategy: str, workload: str, replicas: int) -> str:
    """Measured over predicted latency, with its interval; empty where one of the three points is not measured."""

    def of(count: int) -> Where:
        return {"strategy": strategy, "workload": workload, "replicas": count}

    low, high = PREDICTED[replicas]
    try:
        first, last, here = (data.by_block(of(count), "latency_mean_seconds") for count in (low, high, replicas))
    except NoNumber:
        return ""
    keys = sorted(first.keys() & last.keys() & here.keys())
    if not keys:
        return ""
    share = (replicas - low) / (high - low)
    ratios = [here[key] / (first[key] + share * (last[key] - first[key])) for key in keys]
    devices = [key[0] for key in keys] if data.device_count > 1 else ()
    return number_of(log_interval(ratios, devices)).in_words(" ×")


def exclusions(own: DataSets, _: DataSets, __: Path) -> str:
    """What gates exclude, by gate, and what ended otherwise; cells, not tenants."""
    rows = []
    for name, data in sorted(own.items()):
        cells = data.table("cells").drop_duplicates(["strategy", "workload", "replicas", "repeat"])
        gone = cells[~cells["valid"]].to_dict("records")
        gates = Counter(str(row["reason"]).partition(":")[0] for row in gone if row["status"] == "ok")
        ends = Counter(str(row["status"]) for row in gone if row["status"] != "ok")
        row = {"study": name.split("/")[-1], "cells": str(len(cells)), "valid": str(len(cells) - len(gone))}
        rows.append(row | {"excluded by a gate": _counted(gates), "no measurement": _counted(ends)})
    return markdown(rows)


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"`{name}` {count}" for name, count in sorted(found.items()))


BLOCKS: Mapping[str, Callable[[DataSets, DataSets, Path], str]] = {
    "primary-outcomes": primary_outcomes,
    "editions": editions,
    "straight-line": straight_line,
    "exclusions": exclusions,
}
"""By name, of the studies of one publication, all that are published, and the checkout."""
