"""A record's `prometheus`: what Prometheus says of a window."""

from __future__ import annotations

from typing import TypedDict

from sharebench.core.prometheus_options import Discovery


class ScrapedBuckets(TypedDict):
    """Iterations in the window by bucket, interpolated; an upper bound of None is infinity."""

    upper_seconds: list[float | None]
    count: list[float]


class PrometheusTenant(TypedDict):
    """What Prometheus says of one tenant in the window."""

    index: int
    scrapes: int
    longest_gap_seconds: float | None
    resets: int
    count: float | None
    sum_seconds: float | None
    increase_count: float | None
    quantiles_seconds: dict[str, float | None]
    histogram: ScrapedBuckets | None


class PrometheusRecord(TypedDict):
    """What Prometheus says of the window. Times are in the node's clock."""

    discovery: Discovery
    scrape_seconds: float
    clock_offset_seconds: float
    clock_error_seconds: float
    error: str | None
    restarted: bool | None
    classic_mean_seconds: float | None
    tenants: list[PrometheusTenant]
