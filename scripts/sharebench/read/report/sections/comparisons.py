"""Comparisons of strategies, the A/A control, devices, and the metrics over all tenants of a cell."""

import math

from sharebench.model.spec import workload_label
from sharebench.model.strategies import is_control
from sharebench.read.cells.metrics import PERCENTILE_LABELS, QUANTILES
from sharebench.read.figures.data import DrawnStudy, Row, table_rows
from sharebench.read.text import METRIC_LOOKS

CELL_METRICS = ("antt", "stp", "harmonic_speedup", "jain_index", "worst_slowdown", "isolation_index")
"""Metrics of the summary that are about all tenants of a cell."""
METRIC_LABELS: dict[str, str] = {look.metric: look.title[0] for look in METRIC_LOOKS} | {
    **{metric: PERCENTILE_LABELS[name] for metric, name in QUANTILES.items()},
    "latency_mean_seconds": "Mean latency",
    "output_tokens_total_hz": "Output tokens per second",
    "goodput_total_hz": "Goodput",
}


def contrast_rows(study: DrawnStudy) -> dict[str, list[Row]]:
    """The rows of tables/contrasts.csv by metric; empty where the study has no comparison."""
    rows = table_rows(study.table("contrasts"))
    named = [row | {"runs": workload_label(row["workload"], row["tenant_workload"])} for row in rows]
    by_metric: dict[str, list[Row]] = {}
    for row in named:
        metric = str(row.get("metric", "latency_mean_seconds"))
        by_metric.setdefault(METRIC_LABELS.get(metric, metric), []).append(row)
    return by_metric


def control_rows(rows: dict[str, list[Row]]) -> list[tuple[str, Row]]:
    """Each workload with an A/A control, and the control's row, whose slowdown is the A/A ratio."""
    every = ((workload, row) for workload, of_workload in rows.items() for row in of_workload)
    return [(workload, row) for workload, row in every if is_control(row["strategy"]) and row["n"] > 0]


def device_rows(study: DrawnStudy) -> list[Row]:
    """A row of tables/devices.csv and the number of devices, for each workload with a baseline on several devices."""
    table = study.table("devices")
    alone = table[(table["strategy"] == study.config["baseline"]) & (table["replicas"] == 1)]
    groups = [table_rows(own) for _, own in alone.groupby("workload", sort=False)]
    return [own[0] | {"devices": len(own)} for own in groups]


def several_tenants(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows of several tenants with CELL_METRICS, by workload; a mix has one row for all its workloads."""
    by_workload = {}
    for workload, of_workload in rows.items():
        cells: dict[tuple[str, int], Row] = {}
        for row in of_workload:
            if row["replicas"] > 1 and not math.isnan(row["antt"]):
                cells.setdefault((row["strategy"], row["replicas"]), row)
        if cells:
            by_workload[workload] = list(cells.values())
    return by_workload
