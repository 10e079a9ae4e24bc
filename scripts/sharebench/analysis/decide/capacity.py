"""tables/capacity.csv: how many tenants a device serves within an SLO, and how many its memory holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from sharebench.analysis.statistics.intervals import CONFIDENCE

Floats = NDArray[np.float64]
Row = Mapping[str, Any]

DRAWS = 400
PERCENTILES = ("p99", "p95", "p50", "mean")
"""What an SLO is held against: the first of these that is known."""
AT_LEAST, NONE = "at least", "none"
COLUMNS = (
    "strategy",
    "workload",
    "slo_ms",
    "percentile",
    "capacity_tenants",
    "capacity_interpolated",
    "capacity_interpolated_low",
    "capacity_interpolated_high",
    "bound",
    "memory_per_tenant_mib",
    "memory_overhead_mib",
    "max_tenants_by_memory",
    "reason",
)


def metric_draws(row: Row, metric: str, rng: np.random.Generator, size: int = DRAWS) -> Floats | None:
    """Draws of a metric of a row of the summary, from its interval; None where it has none.

    The same distribution as `draws.mean_draws` has over the repeats: value exp(t se), se being half the log width of
    the interval over Student's t. So whatever the summary adds to the interval is in the draws too.
    """
    value, low, high, n = row[metric], row[f"{metric}_low"], row[f"{metric}_high"], row[f"{metric}_n"]
    if math.isnan(value) or math.isnan(low) or n < 2:
        return None
    error = math.log(high / low) / 2 / float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    draws: Floats = value * np.exp(error * rng.standard_t(n - 1, size))
    return draws


def percentile_of(rows: Sequence[Row]) -> str | None:
    """The first of PERCENTILES that all rows know; None without rows or without any."""
    return next((p for p in PERCENTILES if rows and not any(math.isnan(row[column(p)]) for row in rows)), None)


def column(percentile: str) -> str:
    """Column of the summary that holds this percentile of the latency."""
    return f"latency_{percentile}_seconds"


def capacity(replicas: Sequence[int], seconds: Sequence[float] | Floats, slo_seconds: float) -> float:
    """The number of tenants at which the latency reaches the SLO, up to which it does not exceed it anywhere.

    `seconds` are latencies at `replicas`, ascending; between two of these it is linear on log scales. 0 where the
    smallest number exceeds the SLO already, infinite where none does.
    """
    for index, (n, value) in enumerate(zip(replicas, seconds, strict=True)):
        if value > slo_seconds:
            if index == 0:
                return 0.0
            before, last = replicas[index - 1], seconds[index - 1]
            part = math.log(slo_seconds / last) / math.log(value / last)
            return float(before * (n / before) ** part)
    return math.inf


def capacity_table(
    summary: pd.DataFrame, cells: pd.DataFrame, slo_ms: float | None, workloads: Sequence[str]
) -> pd.DataFrame:
    """One row per strategy and workload, in the order of the summary."""
    rows = []
    overhead = cells.groupby(["strategy", "workload"])["server_memory_mib"].max()
    for workload in workloads:
        own = summary[summary["workload"] == workload]
        for strategy in dict.fromkeys(own["strategy"]):
            found = own[own["strategy"] == strategy].sort_values("replicas").to_dict("records")
            row = _row([{str(key): value for key, value in each.items()} for each in found], slo_ms)
            rows.append(row | {"memory_overhead_mib": overhead.get((strategy, workload), math.nan)})
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"capacity_tenants": "Int64", "max_tenants_by_memory": "Int64"})


def _row(found: Sequence[Row], slo_ms: float | None) -> dict[str, Any]:
    valid = [row for row in found if row["n"] > 0]
    fitting = [int(row["tenants_that_fit"]) for row in valid if not pd.isna(row["tenants_that_fit"])]
    memory = [row["memory_per_tenant_mib"] for row in valid if not math.isnan(row["memory_per_tenant_mib"])]
    row: dict[str, Any] = {
        **dict.fromkeys(COLUMNS),
        "strategy": found[0]["strategy"],
        "workload": found[0]["workload"],
        "slo_ms": slo_ms,
        "memory_per_tenant_mib": max(memory, default=None),
        "max_tenants_by_memory": min(fitting, default=None),
    }
    percentile = percentile_of(valid)
    if slo_ms is None or percentile is None:
        return row | {"reason": "no SLO is set (slo_ms)" if percentile else "no valid cell"}
    sizes, metric = [int(each["replicas"]) for each in valid], column(percentile)
    value = capacity(sizes, [each[metric] for each in valid], slo_ms / 1e3)
    row |= {"percentile": percentile, "capacity_tenants": max([n for n in sizes if n <= value], default=0)}
    row["bound"] = NONE if value == 0 else AT_LEAST if math.isinf(value) and row["strategy"] != "exclusive" else ""
    row["capacity_interpolated"] = min(value, sizes[-1])
    rng = np.random.default_rng(1)
    drawn = [metric_draws(each, metric, rng) for each in valid]
    known = [draws for draws in drawn if draws is not None]
    if len(known) == len(drawn):
        ends = [min(capacity(sizes, seconds, slo_ms / 1e3), sizes[-1]) for seconds in np.array(known).T]
        low, high = np.quantile(ends, [0.025, 0.975])
        row |= {"capacity_interpolated_low": low, "capacity_interpolated_high": high}
    without = [each for each in found if each["n"] == 0]
    if row["bound"] == AT_LEAST and without:
        # Cells that ran well and are not valid have a reason.
        why = without[0]["status"] if without[0]["status"] != "ok" else without[0]["reason"]
        row["reason"] = f"{without[0]['replicas']} tenants: {why}"
    elif row["bound"] == NONE:
        row["reason"] = f"{sizes[0]} tenant(s) exceed it already"
    return row
