"""tables/capacity.csv: how many tenants a device serves within an SLO, and how many its memory holds."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sharebench.analysis.cells.rows import grouped
from sharebench.analysis.decide.rows import (
    TOKENS,
    TOTAL,
    SummaryRow,
    least_that_fit,
    metric_draws,
    parts_of,
    percentile_of,
)
from sharebench.analysis.slo import LATENCY, PARTS, in_words
from sharebench.records.tables import TableRow, frame

AT_LEAST, NONE = "at least", "none"
NO_SWEEPS: Mapping[str, str] = {}


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
    summary: Sequence[SummaryRow],
    cells: pd.DataFrame,
    limits: Mapping[str, float],
    workloads: Sequence[str],
    sweeps: Mapping[str, str] = NO_SWEEPS,
    studies: Collection[str] = (),
) -> pd.DataFrame:
    """One row per strategy and workload, in the order of the summary.

    `limits` is the SLO; `sweeps` has the sweep of each workload that is a level of one.
    """
    overhead = cells.groupby(["strategy", "workload"])["server_memory_mib"].max()
    groups = grouped((row for row in summary if row.workload in workloads), lambda row: (row.strategy, row.workload))
    applying = {name: parts_of([row for row in summary if row.workload == name]) for name in workloads}
    rows = []
    for strategy, workload in sorted(groups, key=lambda group: workloads.index(group[1])):
        own = {part: seconds for part, seconds in limits.items() if part in applying[workload]}
        row = _row(sorted(groups[strategy, workload], key=lambda row: row.replicas), limits, own)
        rows.append(row | {"memory_overhead_mib": overhead.get((strategy, workload), math.nan)})
    of_sweeps = (row for row in rows if row["workload"] in sweeps)
    for levels in grouped(of_sweeps, lambda row: (row["strategy"], sweeps[str(row["workload"])])).values():
        serving = [row for row in levels if row.get("capacity_hz")]
        # A level that was measured alone is the best of nothing.
        if serving and len(levels) > 1:
            max(serving, key=_served)["best_of_sweep"] = True
    return frame("capacity", rows, studies=studies)


def _served(row: TableRow) -> float:
    """Tokens per second within the SLO, or else requests."""
    served = row.get("capacity_tokens_hz") or row["capacity_hz"]
    assert isinstance(served, float)
    return served


def _row(found: Sequence[SummaryRow], limits: Mapping[str, float], applying: Mapping[str, float]) -> TableRow:
    """The capacity of one strategy and workload; `found` has a row per number of tenants, ascending.

    Within the SLO are as many tenants as hold every part that applies, each by the first of PERCENTILES that all know.
    """
    valid = [row for row in found if row.n > 0]
    memory = [row.metrics["memory_per_tenant_mib"].value for row in valid if "memory_per_tenant_mib" in row.metrics]
    row: TableRow = {
        "strategy": found[0].strategy,
        "workload": found[0].workload,
        "slo_ms": 1e3 * limits[LATENCY] if LATENCY in limits else None,
        "slo": in_words(applying),
        "memory_per_tenant_mib": max(memory, default=None),
        "max_tenants_by_memory": least_that_fit(valid),
        "best_of_sweep": False,
    }
    names = {part: name for part in applying if (name := percentile_of(valid, part))}
    if not valid or not applying or len(names) < len(applying):
        unknown = ", ".join(PARTS[part] for part in applying if part not in names)
        why = f"{unknown}: not known with every number of tenants" if applying else "no part of the SLO applies to it"
        return row | {"reason": "no valid cell" if not valid else why if limits else "no SLO is set (slo)"}
    sizes = [row.replicas for row in valid]
    times = {part: [time for row in valid if (time := row.percentile(name, part))] for part, name in names.items()}
    value = min(capacity(sizes, [time.value for time in own], limits[part]) for part, own in times.items())
    is_open = math.isinf(value) and found[0].strategy != "exclusive"
    most = max((n for n in sizes if n <= value), default=0)
    row |= {
        "percentile": ", ".join(_in_words(part, name) for part, name in names.items()),
        "capacity_tenants": most,
        "capacity_interpolated": min(value, sizes[-1]),
        "bound": NONE if value == 0 else AT_LEAST if is_open else "",
    }
    for column, metric in (("capacity_hz", TOTAL), ("capacity_tokens_hz", TOKENS)):
        row[column] = next(
            (each.metrics[metric].value for each in valid if each.replicas == most and metric in each.metrics), None
        )
    rng = np.random.default_rng(1)
    draws = {
        part: [drawn for time in own if (drawn := metric_draws(time, rng)) is not None] for part, own in times.items()
    }
    if all(len(draws[part]) == len(own) for part, own in times.items()):
        of_parts = [
            [capacity(sizes, seconds, limits[part]) for seconds in np.array(own).T] for part, own in draws.items()
        ]
        low, high = np.quantile(np.minimum(np.min(of_parts, axis=0), sizes[-1]), [0.025, 0.975])
        row |= {"capacity_interpolated_low": low, "capacity_interpolated_high": high}
    invalid = next((row for row in found if row.n == 0), None)
    if value == 0:
        row["reason"] = (
            f"{sizes[0]} tenant exceeds it already" if sizes[0] == 1 else f"{sizes[0]} tenants exceed it already"
        )
    elif is_open and invalid is not None:
        # Cells that ran well and are not valid have a reason.
        why = invalid.status if invalid.status != "ok" else invalid.reason
        row["reason"] = f"{invalid.replicas} tenants: {why}"
    return row


def capacity_in_words(table: pd.DataFrame, workload: str) -> list[str]:
    """A sentence on who serves how many within the SLO on one device, and on levels of a sweep that serve most."""
    own = table[(table["workload"] == workload) & (table["capacity_tenants"] > 0)]
    served = [
        f"{row['strategy']} {row['capacity_tenants']} ({row['capacity_hz']:.3g} requests/s, "
        f"{row['capacity_tokens_hz']:.4g} tokens/s)"
        for row in own.sort_values("capacity_hz", ascending=False, kind="stable").to_dict("records")
    ]
    best = own.loc[own["best_of_sweep"], "strategy"].tolist()
    found = [f"Tenants of one device within the SLO: {'; '.join(served)}."] if served else []
    return found + ([f"Of the sweep this level serves most within it under {', '.join(best)}."] if best else [])


def _in_words(part: str, percentile: str) -> str:
    return percentile if part == LATENCY else f"{PARTS[part]} {percentile}"
