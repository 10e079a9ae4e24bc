"""What others published of the same workload on another device, next to this study: the shape over the tenants."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharebench.core.files import SCRIPTS

LITERATURE = SCRIPTS.parent / "published" / "literature.csv"
METRIC = "mean latency"
SAME = {"YOLOS-small inference": "yolos"}
"""What a source calls its workload → the module that runs it here; in single precision and a closed loop, as there."""

Row = dict[str, Any]


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
    config: dict[str, Any], rows: dict[str, list[Row]], here: str, literature: Path = LITERATURE
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
        theirs = _curves(row for row in published if _is_same(config["workload_catalogue"].get(workload, {}), row))
        strategies = {curve.strategy.split()[0] for curve in theirs}
        ours = [
            Curve(f"this study, {here}", "", "", strategy, by_replicas)
            for strategy in dict.fromkeys(row["strategy"] for row in own)
            if strategy in strategies and (by_replicas := _over_one(_means(own, strategy)))
        ]
        if theirs and ours:
            curves = sorted([*theirs, *ours], key=lambda curve: curve.strategy.split()[0])
            replicas = sorted({n for curve in curves for n in curve.by_replicas})
            found.append(Comparison(workload, replicas, curves))
    return found


def _means(rows: list[Row], strategy: str) -> dict[int, float]:
    """Number of tenants → mean latency in seconds, where a strategy has a valid cell."""
    own = [row for row in rows if row["strategy"] == strategy and row["n"] > 0]
    return {row["replicas"]: row["latency_mean_seconds"] for row in own}


def _is_same(entry: dict[str, Any], row: dict[str, str]) -> bool:
    is_closed = (entry.get("load") or {}).get("arrival", "closed") == "closed"
    is_single = (entry.get("params") or {}).get("dtype", "float32") == "float32"
    return entry.get("module") == SAME[row["workload"]] and is_closed and is_single


def _curves(rows: Any) -> list[Curve]:
    values: dict[tuple[str, str, str, str], dict[int, float]] = {}
    for row in rows:
        key = (f"{row['source']}, {row['device']}", row["address"], row["note"], row["strategy"])
        values.setdefault(key, {})[int(row["replicas"])] = float(row["value"])
    return [Curve(*key, by_replicas=over) for key, of in values.items() if (over := _over_one(of))]


def _over_one(values: dict[int, float]) -> dict[int, float]:
    """The values over that at one tenant; empty without that one."""
    alone = values.get(1, math.nan)
    return {} if math.isnan(alone) else {n: value / alone for n, value in values.items() if not math.isnan(value)}
