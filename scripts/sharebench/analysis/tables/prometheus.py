"""tables/prometheus.csv: what Prometheus says of each tenant, next to what the tenant counted itself."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from sharebench.analysis.cells.rows import NEEDED_COUNT, PERCENTILES
from sharebench.gates.gates import is_valid
from sharebench.records.histogram import Histogram, Quantile
from sharebench.records.prometheus import PrometheusTenant
from sharebench.records.tables import TableRow
from sharebench.records.types import Record, TenantRecord

COMPARED = ("p50", "p95", "p99")
COLUMNS = (
    *("strategy", "workload", "replicas", "repeat", "tenant", "tenant_workload", "valid"),
    *("count", "prometheus_count", "prometheus_count_difference_percent"),
    *("prometheus_increase_count", "prometheus_increase_difference_percent"),
    *("latency_mean_seconds", "prometheus_mean_seconds", "prometheus_classic_mean_seconds"),
    *(
        column
        for name in COMPARED
        for column in (
            f"latency_{name}_seconds",
            f"prometheus_{name}_seconds",
            f"prometheus_{name}_bucket_error_percent",
        )
    ),
    *("scrapes", "longest_gap_seconds", "resets", "restarted", "reason"),
)


def prometheus_rows(record: Record) -> Iterator[TableRow]:
    """The rows of one record; none of a cell that was not watched."""
    prometheus, cell = record.get("prometheus"), record["cell"]
    if not prometheus:
        return
    everyone: Sequence[PrometheusTenant | None] = prometheus["tenants"] or [None] * len(record["tenants"])
    for tenant, seen in zip(record["tenants"], everyone, strict=True):
        yield {
            "strategy": cell["strategy"],
            "workload": cell["workload"],
            "replicas": cell["replicas"],
            "repeat": cell["repeat"],
            "tenant": tenant["index"],
            "tenant_workload": tenant["workload"],
            "valid": is_valid(record),
            **_own(tenant),
            **({} if seen is None else _seen(seen, tenant["count"])),
            "prometheus_classic_mean_seconds": prometheus["classic_mean_seconds"],
            "restarted": prometheus["restarted"],
            "reason": prometheus["error"],
        }


def _own(tenant: TenantRecord) -> TableRow:
    count = tenant["count"]
    names = [name for name in COMPARED if count >= NEEDED_COUNT[name]]
    found = Histogram.from_sparse(tenant["histogram"]).quantiles(PERCENTILES[name] for name in names) if names else []
    return {
        "count": count,
        "latency_mean_seconds": tenant["sum_seconds"] / count if count else None,
        **{
            f"latency_{name}_seconds": quantile.value_seconds
            for name, quantile in zip(names, found, strict=True)
            if quantile.is_bounded
        },
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
    """By how much, in percent of it, a quantile that was interpolated in one of these buckets may be off at most.

    `uppers` are the finite bounds, ascending. None where the last of them is all that Prometheus can say.
    """
    index = bisect.bisect_left(uppers, value_seconds)
    if index >= len(uppers) - 1 and value_seconds >= uppers[-1]:
        return None
    return Quantile(value_seconds, uppers[index - 1] if index else 0.0, uppers[index]).error_percent


def prometheus_table(rows: Iterable[TableRow]) -> pd.DataFrame:
    """These rows as a table with COLUMNS."""
    return pd.DataFrame(list(rows), columns=list(COLUMNS))
