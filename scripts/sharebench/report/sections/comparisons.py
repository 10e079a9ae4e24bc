"""Strategies against each other, the A/A control, devices, tenants together, and Prometheus."""

import math

import pandas as pd

from sharebench.core.spec import in_words
from sharebench.core.strategies import is_again
from sharebench.figures.data import DrawnStudy, Row, rows_of

TOGETHER = ("antt", "stp", "harmonic_speedup", "jain_index", "worst_slowdown", "isolation_index")
"""Metrics of the summary that are about all tenants of a cell."""
NAMES = {
    "latency_mean_seconds": "Mean latency",
    "output_tokens_total_hz": "Output tokens per second",
    "goodput_total_hz": "Goodput",
}
COMPARED = ("p50", "p95", "p99")
WORST = ("prometheus_count_difference_percent", "prometheus_increase_difference_percent", "longest_gap_seconds")
MEANS = (
    *("latency_mean_seconds", "prometheus_mean_seconds", "prometheus_classic_mean_seconds"),
    *(f"{whose}_{name}_seconds" for name in COMPARED for whose in ("latency", "prometheus")),
)


def contrasts(study: DrawnStudy) -> dict[str, list[Row]]:
    """The rows of tables/contrasts.csv by what they compare; none where the study has no comparison."""
    rows = rows_of(study.table("contrasts"))
    named = [row | {"runs": in_words(row["workload"], row["tenant_workload"])} for row in rows]
    found: dict[str, list[Row]] = {}
    for row in named:
        metric = row.get("metric", "latency_mean_seconds")
        # Such as ttft_p50_seconds.
        name = NAMES.get(metric) or f"{metric[: metric.index('_')].upper()} {metric.split('_')[1]}"
        found.setdefault(name, []).append(row)
    return found


def controls(rows: dict[str, list[Row]]) -> list[tuple[str, Row]]:
    """Of each workload with an A/A control the row of that: its slowdown is the A/A ratio."""
    every = ((workload, row) for workload, of_workload in rows.items() for row in of_workload)
    return [(workload, row) for workload, row in every if is_again(row["strategy"]) and row["n"] > 0]


def devices(study: DrawnStudy) -> list[Row]:
    """Of each workload whose baseline was measured on several devices a row of tables/devices.csv, and their number."""
    table = study.table("devices")
    alone = table[(table["strategy"] == study.config["baseline"]) & (table["replicas"] == 1)]
    groups = [rows_of(own) for _, own in alone.groupby("workload", sort=False)]
    return [own[0] | {"devices": len(own)} for own in groups]


def together(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """By workload the rows of several tenants that have these metrics; a mix has one row for all that it runs."""
    found = {}
    for workload, of_workload in rows.items():
        cells: dict[tuple[str, int], Row] = {}
        for row in of_workload:
            if row["replicas"] > 1 and not math.isnan(row["antt"]):
                cells.setdefault((row["strategy"], row["replicas"]), row)
        if cells:
            found[workload] = list(cells.values())
    return found


def prometheus(study: DrawnStudy) -> dict[str, list[Row]]:
    """By workload a row for each strategy and number of tenants; empty in a study without Prometheus."""
    if not (study.config.get("prometheus") or {}).get("url"):
        return {}
    table = study.table("prometheus")
    return {
        workload: [
            {"strategy": strategy, "replicas": replicas} | _watched(cells)
            for strategy, of_strategy in study.by_strategy(of_workload).items()
            for replicas, cells in of_strategy.groupby("replicas")
        ]
        for workload, of_workload in study.by_workload(table[table["valid"]]).items()
    }


def _watched(cells: pd.DataFrame) -> Row:
    """Means over tenants and repeats, and of what may be wrong the worst."""
    errors = [f"prometheus_{name}_bucket_error_percent" for name in COMPARED]
    restarts = int(cells["restarted"].any())
    return {
        **cells[list(MEANS)].mean(),
        **{name: max(cells[name].dropna(), key=abs, default=math.nan) for name in WORST},
        **cells[errors].max(),
        "remarks": ["Prometheus was restarted in a window"] * restarts + [*filter(None, cells["reason"].unique())],
    }
