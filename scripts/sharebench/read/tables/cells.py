"""Tables with a row per cell and tenant: cells.csv, stages.csv (times that workloads measure themselves, such as a
stream's first chunk), and prometheus.csv (Prometheus's numbers next to the tenant's own)."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields

import pandas as pd

from sharebench.model.records.types import PrometheusTenant, Record, TenantRecord
from sharebench.read.cells.rows import PERCENTILES, MeasuredCell, TenantRow, supported_percentiles, tenant_key
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.histogram import Histogram
from tenant.contract import TimedHistogram

TABLED_PERCENTILES = ("p50", "p95", "p99")


def cells_table(cells: Sequence[MeasuredCell], baseline: Baseline, studies: Collection[str] = ()) -> pd.DataFrame:
    """The rows of all cells, in order of cells and tenants.

    A tenant's slowdown is its mean latency over that of the one baseline cell of the same workload, run and block, or
    over the geometric mean of all baseline cells where there is no such cell.
    """
    rows = (_row(cell, row) | {"slowdown": _slowdown(cell, row, baseline)} for cell in cells for row in cell.rows)
    return table_frame("cells", rows, studies=studies).astype({"slowdown": float})


def _row(cell: MeasuredCell, row: TenantRow) -> TableRow:
    of_cell = (
        *("strategy", "workload", "replicas", "repeat", "block", "run_id", "device", "machine", "boot"),
        *("status", "valid", "reason"),
    )
    of_tenant = (field.name for field in fields(TenantRow) if field.name != "other_columns")
    return {
        **{name: getattr(cell, name) for name in of_cell},
        "warnings": ";".join(cell.warnings),
        **(cell.device_columns if row.tenant_workload else {}),
        **{name: getattr(row, name) for name in of_tenant},
        **row.other_columns,
    }


def _slowdown(cell: MeasuredCell, row: TenantRow, baseline: Baseline) -> float | None:
    if row.latency_mean_seconds is None or row.tenant_workload is None:
        return None
    baseline = baseline.for_strategy(cell.strategy)
    partner = baseline.partner_seconds(cell, row.tenant_workload)
    alone = partner or baseline.mean_seconds(cell, row.tenant_workload)
    return row.latency_mean_seconds / alone if alone else None


def stage_rows(record: Record) -> Iterator[TableRow]:
    """The rows of one record; none where no workload measures stages."""
    for tenant in record["tenants"]:
        for stage, timed in sorted(tenant["stages"].items()):
            yield tenant_key(record, tenant) | {"stage": stage} | _timed_columns(timed)


def prometheus_rows(record: Record) -> Iterator[TableRow]:
    """The rows of one record; none where Prometheus did not watch the cell."""
    prometheus = record.get("prometheus")
    if not prometheus:
        return
    everyone: Sequence[PrometheusTenant | None] = prometheus["tenants"] or [None] * len(record["tenants"])
    for tenant, watched in zip(record["tenants"], everyone, strict=True):
        yield {
            **tenant_key(record, tenant),
            **_timed_columns(tenant, "latency_"),
            **({} if watched is None else _prometheus_columns(watched, tenant["count"])),
            "reason": prometheus["error"],
        }


def _timed_columns(timed: TimedHistogram | TenantRecord, of: str = "") -> TableRow:
    """Number, mean and percentiles of the times in a histogram, in columns that begin with `of`."""
    count = timed["count"]
    percentiles = supported_percentiles(Histogram.from_sparse(timed["histogram"]), count)
    return {
        "count": count,
        f"{of}mean_seconds": timed["sum_seconds"] / count if count else None,
        **{f"{of}{name}_seconds": quantile.value_seconds for name, quantile in percentiles.items()},
    }


def _prometheus_columns(watched: PrometheusTenant, count: int) -> TableRow:
    count_seen, total = watched["count"], watched["sum_seconds"]
    return {
        "prometheus_count": count_seen,
        "prometheus_count_difference_percent": None
        if not count or count_seen is None
        else 100 * (count_seen / count - 1),
        "prometheus_mean_seconds": total / count_seen if count_seen and total is not None else None,
        "scrapes": watched["scrapes"],
        "longest_gap_seconds": watched["longest_gap_seconds"],
        "resets": watched["resets"],
        **{
            f"prometheus_{name}_seconds": watched["quantiles_seconds"].get(f"{PERCENTILES[name]:g}")
            for name in TABLED_PERCENTILES
        },
    }
