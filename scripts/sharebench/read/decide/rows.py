"""The rows of summary.csv with their intervals, as decisions read them."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from sharebench.read.alike import merge_alike
from sharebench.read.cells.rows import GROUP_COLUMNS, NEEDED_COUNT
from sharebench.read.columns import INTERVAL_SUFFIXES
from sharebench.read.harm import CellKey, Harm, is_wrong
from sharebench.read.slo import LATENCY, PART_LABELS
from sharebench.read.statistics.intervals import Estimate

MEAN, TOTAL, TOKENS = "latency_mean_seconds", "throughput_total_hz", "output_tokens_total_hz"
GOODPUT, SLOWDOWN, STP = "goodput_total_hz", "slowdown", "stp"
SM_ACTIVE, DRAM_ACTIVE = "sm_active_percent", "dram_active_percent"
PERCENTILES = ("p95", "p99", "p50", "mean")
"""An SLO is compared with the first of these that is known: the p95 of a latency, the p99 of a part of a stream.

The p99 of a latency is known of some plans only; a plan must not lose by what is known of it.
"""
MAX, AT_LEAST = "max", "p95_at_least"
"""A time that no request exceeds, and one that the p95 surely exceeds, where the p95 is not known."""
METRICS = (
    *(f"{part}_{name}_seconds" for part in PART_LABELS for name in PERCENTILES),
    f"{LATENCY}_{AT_LEAST}_seconds",
    *(TOTAL, TOKENS, GOODPUT, SLOWDOWN, STP, SM_ACTIVE, DRAM_ACTIVE),
)
"""Columns of the summary that a decision reads."""


@dataclass(frozen=True)
class SummaryRow:
    strategy: str
    workload: str
    tenant_workload: str
    replicas: int
    status: str
    reason: str
    n: int
    warnings: int
    tenants_that_fit: int | None
    metrics: Mapping[str, Estimate]
    """The METRICS that are not blank."""
    harms: Sequence[Harm] = ()
    """What happened to its tenants in other repeats than its `n`."""

    def percentile(self, name: str, part: str = LATENCY) -> Estimate | None:
        """One of PERCENTILES of a part of an SLO, MAX (`with_longest`) or AT_LEAST; None where it is blank."""
        return self.metrics.get(f"{part}_{name}_seconds")


def summary_rows(table: pd.DataFrame) -> list[SummaryRow]:
    """The rows of a summary, which may lack columns of metrics."""
    return [
        SummaryRow(
            strategy=row["strategy"],
            workload=row["workload"],
            tenant_workload=row.get("tenant_workload", row["workload"]),
            replicas=int(row["replicas"]),
            status=row["status"],
            reason=merge_alike(row["reason"] or ""),
            n=int(row["n"]),
            warnings=int(row.get("warnings", 0)),
            tenants_that_fit=None if (fitting := _number(row, "tenants_that_fit")) is None else int(fitting),
            metrics={metric: found for metric in METRICS if (found := estimate(row, metric)) is not None},
        )
        for row in table.to_dict("records")
    ]


def with_longest(rows: Sequence[SummaryRow], tenants: pd.DataFrame) -> list[SummaryRow]:
    """The rows, with the longest latency of those whose p95 it bounds, from the rows of cells.csv.

    It does, with a confidence of 95 %, where none failed and enough are independent, of all repeats together. Tenants
    of a cell may stall together, so the least of their effective sample sizes counts.
    """
    keys, cell = [*GROUP_COLUMNS], ["device", "repeat"]
    columns = [*keys, *cell, "valid", "latency_max_seconds", "effective_count", "errors", "censored"]
    valid = tenants.reindex(columns=columns).query("valid == True")
    longest = valid["latency_max_seconds"].where(valid["errors"] + valid["censored"] == 0)
    known = {}
    for key, own in valid.assign(longest=longest).groupby(keys):
        independent = own.groupby(cell, dropna=False)["effective_count"].min()
        if own["longest"].notna().all() and independent.sum() >= NEEDED_COUNT["p95"]:
            end = float(own["longest"].max())
            known[key] = {f"{LATENCY}_{MAX}_seconds": Estimate(end, end, end, len(independent))}
    found = (known.get((row.strategy, row.workload, row.tenant_workload, row.replicas), {}) for row in rows)
    return [replace(row, metrics={**row.metrics, **more}) for row, more in zip(rows, found, strict=True)]


def with_harms(rows: Sequence[SummaryRow], known: Mapping[CellKey, Sequence[Harm]]) -> list[SummaryRow]:
    """The rows with valid cells have the harms of the others; one with a wrong answer has no valid cell any more."""
    found = []
    for row in rows:
        if row.n and (own := known.get((row.strategy, row.workload, row.replicas))):
            row = replace(row, harms=own)
            if is_wrong(own):
                row = replace(row, status="ok", reason=str(own[0]), n=0, warnings=0, metrics={})
        found.append(row)
    return found


def _number(row: Mapping[Hashable, Any], name: str) -> float | None:
    value = row.get(name)
    return None if value is None or pd.isna(value) else float(value)


def estimate(row: Mapping[Hashable, Any], name: str) -> Estimate | None:
    """A value of a row with its interval; None for a blank."""
    value, low, high = (_number(row, f"{name}{end}") for end in ("", *INTERVAL_SUFFIXES))
    return None if value is None else Estimate(value, low, high, int(row.get(f"{name}_n", row.get("n", 0))))


def known_percentiles(row: SummaryRow) -> dict[str, tuple[str, Estimate]]:
    """The first of PERCENTILES that is known of each part of an SLO, and its value; without parts that have none."""
    known = {}
    for part in PART_LABELS:
        for name in reversed(PERCENTILES):
            if (time := row.percentile(name, part)) is not None:
                known[part] = name, time
    return known


def applying_limits(rows: Iterable[SummaryRow], limits: Mapping[str, float]) -> dict[str, float]:
    """The limits of an SLO that apply to a workload, from its rows: all if it streams, else that of the latency."""
    streams = any(TOKENS in row.metrics or known_percentiles(row).keys() - {LATENCY} for row in rows)
    return {part: seconds for part, seconds in limits.items() if part == LATENCY or streams}


def tenants_in_memory(rows: Iterable[SummaryRow]) -> int | None:
    """How many tenants fit into the device's memory, by the row with the largest tenants; None if not known."""
    return min((row.tenants_that_fit for row in rows if row.tenants_that_fit is not None), default=None)
