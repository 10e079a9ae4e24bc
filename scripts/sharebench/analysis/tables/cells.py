"""Tables with a row per cell and tenant: cells.csv, stages.csv (the times that workloads take themselves, such as a
stream's first chunk), and prometheus.csv (its numbers next to those that the tenant counted itself)."""

import bisect
from collections.abc import Collection, Iterator, Sequence

import pandas as pd

from sharebench.analysis.cells.rows import PERCENTILES, MeasuredCell, TenantRow, bounded, tenant_key
from sharebench.analysis.cells.slowdown import Baseline
from sharebench.records.histogram import Histogram, Quantile
from sharebench.records.tables import TableRow, frame
from sharebench.records.types import PrometheusTenant, Record


def cells_table(cells: Sequence[MeasuredCell], baseline: Baseline, studies: Collection[str] = ()) -> pd.DataFrame:
    """The rows of all cells, in order of cells and tenants.

    A tenant's slowdown is its mean latency over the baseline's of the same workload: over that of the one
    baseline cell of the same run and block where there is one, else over the geometric mean of all.
    """
    rows = (_row(cell, row) | {"slowdown": _slowdown(cell, row, baseline)} for cell in cells for row in cell.rows)
    return frame("cells", rows, studies=studies).astype({"slowdown": float})


def _row(cell: MeasuredCell, row: TenantRow) -> TableRow:
    of_cell = ("strategy", "workload", "replicas", "repeat", "block", "run_id", "device", "status", "valid", "reason")
    of_tenant = ("tenant_workload", "latency_mean_seconds", "throughput_hz", "memory_mib", "scrape_error_percent")
    return {
        **{name: getattr(cell, name) for name in of_cell},
        "warnings": ";".join(cell.warnings),
        **(cell.of_device if row.tenant_workload else {}),
        **{name: getattr(row, name) for name in of_tenant},
        "output_tokens_hz": row.output_tokens_hz,
        "goodput_hz": row.goodput_hz,
        **row.others,
    }


def _slowdown(cell: MeasuredCell, row: TenantRow, baseline: Baseline) -> float | None:
    if row.latency_mean_seconds is None or row.tenant_workload is None:
        return None
    baseline = baseline.seen_by(cell.strategy)
    partner = baseline.partner_seconds(cell, row.tenant_workload)
    alone = partner or baseline.mean_on_its_device(cell, row.tenant_workload)
    return row.latency_mean_seconds / alone if alone else None


def stage_rows(record: Record) -> Iterator[TableRow]:
    """The rows of one record; none where no workload times stages."""
    for tenant in record["tenants"]:
        for stage, timed in sorted(tenant["stages"].items()):
            count = timed["count"]
            percentiles = bounded(Histogram.from_sparse(timed["histogram"]), count)
            yield {
                **tenant_key(record, tenant),
                "stage": stage,
                "count": count,
                "mean_seconds": timed["sum_seconds"] / count if count else None,
                **{f"{name}_seconds": quantile.value_seconds for name, quantile in percentiles.items()},
            }


COMPARED = ("p50", "p95", "p99")


def prometheus_rows(record: Record) -> Iterator[TableRow]:
    """The rows of one record; none of a cell that was not watched."""
    prometheus = record.get("prometheus")
    if not prometheus:
        return
    everyone: Sequence[PrometheusTenant | None] = prometheus["tenants"] or [None] * len(record["tenants"])
    for tenant, seen in zip(record["tenants"], everyone, strict=True):
        count = tenant["count"]
        percentiles = bounded(Histogram.from_sparse(tenant["histogram"]), count)
        yield {
            **tenant_key(record, tenant),
            "count": count,
            "latency_mean_seconds": tenant["sum_seconds"] / count if count else None,
            **{f"latency_{name}_seconds": quantile.value_seconds for name, quantile in percentiles.items()},
            **({} if seen is None else _seen(seen, count)),
            "prometheus_classic_mean_seconds": prometheus["classic_mean_seconds"],
            "restarted": prometheus["restarted"],
            "reason": prometheus["error"],
        }


def _seen(seen: PrometheusTenant, count: int) -> TableRow:
    mean = seen["sum_seconds"] / seen["count"] if seen["count"] and seen["sum_seconds"] is not None else None
    row: TableRow = {
        "prometheus_count": seen["count"],
        "prometheus_count_difference_percent": _difference_percent(seen["count"], count),
        "prometheus_increase_count": seen["increase_count"],
        "prometheus_increase_difference_percent": _difference_percent(seen["increase_count"], count),
        "prometheus_mean_seconds": mean,
        "scrapes": seen["scrapes"],
        "longest_gap_seconds": seen["longest_gap_seconds"],
        "resets": seen["resets"],
    }
    for name in COMPARED:
        value = seen["quantiles_seconds"].get(f"{PERCENTILES[name]:g}")
        row[f"prometheus_{name}_seconds"] = value
        if value and seen["histogram"]:
            uppers = [upper for upper in seen["histogram"]["upper_seconds"] if upper is not None]
            row[f"prometheus_{name}_bucket_error_percent"] = bucket_error_percent(value, uppers)
    return row


def _difference_percent(seen: float | None, own: int) -> float | None:
    return None if seen is None or not own else 100 * (seen / own - 1)


def bucket_error_percent(value_seconds: float, uppers: list[float]) -> float | None:
    """The largest error, in percent of it, of a quantile that was interpolated in one of these buckets.

    `uppers` are the finite bounds, ascending. None where the last of them is all that Prometheus knows.
    """
    index = bisect.bisect_left(uppers, value_seconds)
    if index >= len(uppers) - 1 and value_seconds >= uppers[-1]:
        return None
    return Quantile(value_seconds, uppers[index - 1] if index else 0.0, uppers[index]).error_percent
