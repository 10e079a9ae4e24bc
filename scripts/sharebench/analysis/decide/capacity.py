"""tables/capacity.csv: how many tenants a device serves within an SLO, and how many its memory holds."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sharebench.analysis.cells.rows import grouped
from sharebench.analysis.decide.rows import SummaryRow, least_that_fit, metric_draws, percentile_of
from sharebench.records.tables import TableRow, frame

AT_LEAST, NONE = "at least", "none"


def capacity(replicas: Sequence[int], seconds: Sequence[float] | NDArray[np.float64], slo_seconds: float) -> float:
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
    summary: Sequence[SummaryRow], cells: pd.DataFrame, slo_ms: float | None, workloads: Sequence[str]
) -> pd.DataFrame:
    """One row per strategy and workload, in the order of the summary."""
    overhead = cells.groupby(["strategy", "workload"])["server_memory_mib"].max()
    groups = grouped((row for row in summary if row.workload in workloads), lambda row: (row.strategy, row.workload))
    in_order = sorted(groups, key=lambda group: workloads.index(group[1]))
    return frame(
        "capacity",
        (
            _row(sorted(groups[group], key=lambda row: row.replicas), slo_ms)
            | {"memory_overhead_mib": overhead.get(group, math.nan)}
            for group in in_order
        ),
    )


def _row(found: Sequence[SummaryRow], slo_ms: float | None) -> TableRow:
    """The capacity of one strategy and workload; `found` has a row per number of tenants, ascending."""
    valid = [row for row in found if row.n > 0]
    memory = [row.metrics["memory_per_tenant_mib"].value for row in valid if "memory_per_tenant_mib" in row.metrics]
    row: TableRow = {
        "strategy": found[0].strategy,
        "workload": found[0].workload,
        "slo_ms": slo_ms,
        "memory_per_tenant_mib": max(memory, default=None),
        "max_tenants_by_memory": least_that_fit(valid),
    }
    percentile = percentile_of(valid)
    if slo_ms is None or percentile is None:
        return row | {"reason": "no SLO is set (slo)" if percentile else "no valid cell"}
    sizes = [row.replicas for row in valid]
    latencies = [latency for row in valid if (latency := row.percentile(percentile))]
    value = capacity(sizes, [latency.value for latency in latencies], slo_ms / 1e3)
    is_open = math.isinf(value) and found[0].strategy != "exclusive"
    row |= {
        "percentile": percentile,
        "capacity_tenants": max((n for n in sizes if n <= value), default=0),
        "capacity_interpolated": min(value, sizes[-1]),
        "bound": NONE if value == 0 else AT_LEAST if is_open else "",
    }
    rng = np.random.default_rng(1)
    draws = [drawn for latency in latencies if (drawn := metric_draws(latency, rng)) is not None]
    if len(draws) == len(latencies):
        ends = [min(capacity(sizes, seconds, slo_ms / 1e3), sizes[-1]) for seconds in np.array(draws).T]
        low, high = np.quantile(ends, [0.025, 0.975])
        row |= {"capacity_interpolated_low": low, "capacity_interpolated_high": high}
    invalid = next((row for row in found if row.n == 0), None)
    if value == 0:
        row["reason"] = f"{sizes[0]} tenant(s) exceed it already"
    elif is_open and invalid is not None:
        # Cells that ran well and are not valid have a reason.
        why = invalid.status if invalid.status != "ok" else invalid.reason
        row["reason"] = f"{invalid.replicas} tenants: {why}"
    return row
