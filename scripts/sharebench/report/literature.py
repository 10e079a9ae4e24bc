"""What others published of the same workload on another device, next to this study: the shape over the tenants."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sharebench.core.files import REPOSITORY
from sharebench.core.study_config import StudyConfig, WorkloadEntry
from sharebench.figures.data import Row

LITERATURE = REPOSITORY / "published" / "literature.csv"
METRIC = "mean latency"
SAME = {"YOLOS-small inference": "yolos"}
"""What a source calls its workload → the module that runs it here; in single precision and a closed loop, as there."""


@dataclass(frozen=True)
class Curve:
    """Mean latency of one strategy by number of tenants, over that with one tenant."""

    who: str
    address: str
    note: str
    strategy: str
    by_replicas: dict[int, float]


@dataclass(frozen=True)
class Comparison:
    """One workload of a source and of this study, strategy by strategy."""

    title: str
    replicas: list[int]
    curves: list[Curve]


def comparisons(
    config: StudyConfig, rows: dict[str, list[Row]], here: str, literature: Path = LITERATURE
) -> list[Comparison]:
    """One per workload of this study that a source measured too; `here` names the device of this study.

    `rows` are those of the summary by workload. Empty where there is no list of published numbers.
    """
    if not literature.is_file():
        return []
    with literature.open(newline="", encoding="utf-8") as file:
        published = [row for row in csv.DictReader(file) if row["metric"] == METRIC and row["workload"] in SAME]
    found = []
    for workload, own in rows.items():
        entry = config["workload_catalogue"].get(workload)
        theirs = _curves(
            (f"{row['source']}, {row['device']}", row["address"], row["note"], row["strategy"], row)
            for row in published
            if entry and _is_same(entry, SAME[row["workload"]])
        )
        strategies = {curve.strategy.split()[0] for curve in theirs}
        ours = _curves(
            (f"this study, {here}", "", "", row["strategy"], row | {"value": row["latency_mean_seconds"]})
            for row in own
            if row["n"] > 0 and row["strategy"] in strategies
        )
        if theirs and ours:
            curves = sorted([*theirs, *ours], key=lambda curve: curve.strategy.split()[0])
            found.append(Comparison(workload, sorted({n for curve in curves for n in curve.by_replicas}), curves))
    return found


def _is_same(entry: WorkloadEntry, module: str) -> bool:
    is_closed = (entry.get("load") or {}).get("arrival", "closed") == "closed"
    is_single = (entry.get("params") or {}).get("dtype", "float32") == "float32"
    return entry.get("module") == module and is_closed and is_single


def _curves(rows: Iterable[tuple[str, str, str, str, Row]]) -> list[Curve]:
    """The values over that at one tenant, of each that has this one."""
    values: dict[tuple[str, str, str, str], dict[int, float]] = {}
    for who, address, note, strategy, row in rows:
        values.setdefault((who, address, note, strategy), {})[int(row["replicas"])] = float(row["value"])
    return [
        Curve(*key, {n: value / of[1] for n, value in of.items() if not math.isnan(value)})
        for key, of in values.items()
        if not math.isnan(of.get(1, math.nan))
    ]
