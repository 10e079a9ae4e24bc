"""tables/cost.csv: what a device costs per iteration and per tenant, and how many iterations are within the SLO."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import pandas as pd

from sharebench.analysis.decide.rows import TOTAL, SummaryRow
from sharebench.analysis.slo import dollars_per_million, within_slo
from sharebench.analysis.statistics.intervals import Estimate, rate_interval
from sharebench.records.tables import TableRow, frame

HOURS_PER_MONTH = 720
"""As in the published example: 30 days."""
Buckets = Callable[[str, str], pd.DataFrame]
"""The rows of histograms.csv of a strategy and workload."""
Repeat = tuple[tuple[float, float, float], int]
"""`within_slo` of a repeat, and its number of iterations."""


@dataclass(frozen=True)
class Saving:
    """Dollars per month of some tenants with a device each, and on shared devices."""

    exclusive: float
    shared: float
    before_loss: float
    after_loss: float


def saving(tenants: int, price_per_hour: float, stp: float, utilisation: float | None = None) -> Saving:
    """What sharing saves per month when each tenant needs `utilisation` of a device (1 / tenants where not given).

    `stp` is the work that sharing gets out of a device, over that of one exclusive tenant (system throughput of Eyerman
    and Eeckhout). `before_loss` takes it for 1. After it, tenants x utilisation / stp devices are needed, at least one;
    parts of a device count as parts, as in a fleet.
    """
    one = price_per_hour * HOURS_PER_MONTH
    demand = 1.0 if utilisation is None else tenants * utilisation
    exclusive = tenants * one
    return Saving(exclusive, one, exclusive - max(1.0, demand) * one, exclusive - max(1.0, demand / stp) * one)


def with_lower_bounds(buckets: pd.DataFrame) -> pd.DataFrame:
    """The rows of a histograms.csv; older ones have upper bounds only, of the record's layout (64 per doubling)."""
    if "bucket_lower_seconds" in buckets:
        return buckets
    return buckets.assign(bucket_lower_seconds=buckets["bucket_upper_seconds"] / 2 ** (1 / 64))


def cost_table(
    summary: Sequence[SummaryRow],
    price_per_hour: float | None,
    slo_ms: float | None,
    window_seconds: float,
    buckets: Buckets,
) -> pd.DataFrame:
    """One row per row of the summary with a throughput; `summary` holds plain workloads."""
    buckets = cache(buckets)
    return frame(
        "cost",
        (_row(row, price_per_hour, slo_ms, window_seconds, buckets) for row in summary if TOTAL in row.metrics),
    )


def _row(
    row: SummaryRow, price_per_hour: float | None, slo_ms: float | None, window_seconds: float, buckets: Buckets
) -> TableRow:
    work = stp(row)
    found: TableRow = {
        "strategy": row.strategy,
        "workload": row.workload,
        "replicas": row.replicas,
        "throughput_total_hz": row.metrics[TOTAL].value,
        "price_per_hour": price_per_hour,
        "slo_ms": slo_ms,
        "stp": work and work.value,
    }
    if price_per_hour is not None:
        found |= _dollars(row, work, price_per_hour)
    if slo_ms is None:
        return found
    every = buckets(row.strategy, row.workload)
    repeats = _repeats(every[every["replicas"] == row.replicas], slo_ms / 1e3)
    found |= _within_slo(repeats)
    if goodput := _goodput(repeats, window_seconds):
        found |= goodput.columns("goodput_hz")
        if price_per_hour is not None and goodput.value:
            found["dollars_per_million_good_iterations"] = dollars_per_million(price_per_hour, goodput.value)
    return found


def stp(row: SummaryRow) -> Estimate | None:
    """System throughput of a row of the summary: the column of that name, or, where all tenants run the same, their
    number over their slowdown."""
    slowdown = row.metrics.get("slowdown")
    return row.metrics.get("stp") or (slowdown and slowdown.under(row.replicas))


def _dollars(row: SummaryRow, work: Estimate | None, price: float) -> TableRow:
    rate, n = row.metrics[TOTAL], row.replicas
    found: TableRow = {"dollars_per_tenant_month": price * HOURS_PER_MONTH / n}
    for end, hz in (("", rate.value), ("_low", rate.high), ("_high", rate.low)):
        found[f"dollars_per_million_iterations{end}"] = hz and dollars_per_million(price, hz)
    if n == 1:
        return found
    found["saving_before_loss_dollars_per_month"] = saving(n, price, stp=1.0).before_loss
    if work is not None:
        for end, value in (("", work.value), ("_low", work.low), ("_high", work.high)):
            found[f"saving_after_loss_dollars_per_month{end}"] = value and saving(n, price, value).after_loss
    return found


def _repeats(buckets: pd.DataFrame, slo_seconds: float) -> list[Repeat]:
    return [
        (
            within_slo(own["bucket_lower_seconds"], own["bucket_upper_seconds"], own["count"], slo_seconds),
            int(own["count"].sum()),
        )
        for _, own in buckets.groupby("repeat")
    ]


def _within_slo(repeats: Sequence[Repeat]) -> TableRow:
    """Means over the repeats."""
    shares = [share for share, _ in repeats]
    names = ("within_slo_ratio", "within_slo_ratio_least", "within_slo_ratio_most")
    return {name: sum(values) / len(values) for name, values in zip(names, zip(*shares, strict=True), strict=False)}


def _goodput(repeats: Sequence[Repeat], window_seconds: float) -> Estimate | None:
    """Iterations within the SLO per second; None without repeats."""
    rates = [share[0] * count / window_seconds for share, count in repeats]
    return rate_interval(rates) if rates else None
