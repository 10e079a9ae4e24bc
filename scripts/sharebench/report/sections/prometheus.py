"""What Prometheus would have said of the study, beside its records."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.report.pictures import pictures

COMPARED = ("p50", "p95", "p99")
WORST = ("prometheus_count_difference_percent", "prometheus_increase_difference_percent", "longest_gap_seconds")
MEANS = (
    *("latency_mean_seconds", "prometheus_mean_seconds", "prometheus_classic_mean_seconds"),
    *(f"{whose}_{name}_seconds" for name in COMPARED for whose in ("latency", "prometheus")),
)


class Watched(NamedTuple):
    """The rows by workload, each of a strategy and a number of tenants, and the figure of what coarse buckets hide."""

    rows: dict[str, list[dict[str, Any]]]
    figure: Any
    picture: dict[str, Any] | None


def watched(study: data.DrawnStudy) -> Watched | None:
    """None in a study that nobody watched."""
    if not (study.config.get("prometheus") or {}).get("url"):
        return None
    table = data.table(study, "prometheus", ("strategy", "workload", "tenant_workload", "reason"))
    table = table[table["valid"]]
    rows: dict[str, list[dict[str, Any]]] = {}
    for workload in study.workloads(table):
        of_workload = table[table["workload"] == workload]
        for strategy in study.strategies(of_workload):
            of_strategy = of_workload[of_workload["strategy"] == strategy]
            for replicas, cells in of_strategy.groupby("replicas"):
                row = {"strategy": strategy, "replicas": replicas} | _together(cells)
                rows.setdefault(workload, []).append(row)
    drawn = pictures(study.results / "figures", ["buckets"])
    return Watched(rows, ENTRIES["buckets"], drawn["buckets"])


def _together(cells: pd.DataFrame) -> dict[str, Any]:
    """Means over tenants and repeats, and of what may be wrong the worst."""
    found: dict[str, Any] = {name: cells[name].mean() for name in MEANS}
    for name in WORST:
        found[name] = max(cells[name].dropna(), key=abs, default=float("nan"))
    for name in COMPARED:
        column = f"prometheus_{name}_bucket_error_percent"
        found[column] = cells[column].max()
    restarts = int(cells["restarted"].any())
    reasons = [reason for reason in dict.fromkeys(cells["reason"]) if reason]
    found["remarks"] = ["Prometheus was started anew in a window"] * restarts + reasons
    return found
