"""tables/prometheus.csv: the numbers of Prometheus for each tenant, next to those that the tenant counted itself."""

import bisect
from collections.abc import Iterator, Sequence

from sharebench.analysis.cells.rows import PERCENTILES, bounded, tenant_key
from sharebench.records.histogram import Histogram, Quantile
from sharebench.records.tables import TableRow
from sharebench.records.types import PrometheusTenant, Record

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
