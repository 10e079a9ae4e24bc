"""tables/cost.csv: what a device costs per iteration and per tenant, and how many iterations are within the SLO."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sharebench.analysis.statistics.intervals import log_interval

HOURS_PER_MONTH = 720
"""As in the published example: 30 days."""
COLUMNS = (
    "strategy",
    "workload",
    "replicas",
    "price_per_hour",
    "throughput_total_hz",
    "stp",
    "dollars_per_million_iterations",
    "dollars_per_million_iterations_low",
    "dollars_per_million_iterations_high",
    "dollars_per_tenant_month",
    "saving_before_loss_dollars_per_month",
    "saving_after_loss_dollars_per_month",
    "saving_after_loss_dollars_per_month_low",
    "saving_after_loss_dollars_per_month_high",
    "slo_ms",
    "within_slo_ratio",
    "within_slo_ratio_least",
    "within_slo_ratio_most",
    "goodput_hz",
    "goodput_hz_low",
    "goodput_hz_high",
    "dollars_per_million_good_iterations",
)
Buckets = Callable[[str, str], pd.DataFrame]
"""The rows of histograms.csv of a strategy and workload."""


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


def dollars_per_million(price_per_hour: float, hz: float) -> float:
    """Dollars for a million iterations at this rate."""
    return price_per_hour / (3600 * hz) * 1e6


def within_slo(lower_seconds: Any, upper_seconds: Any, counts: Any, slo_seconds: float) -> tuple[float, float, float]:
    """Share of iterations of at most the SLO, and the least and the most that the buckets allow.

    The arguments, shape (n,), are non-empty buckets (lower, upper] of any layout. Inside the SLO's bucket the value is
    taken linearly, as quantiles of coarse buckets are; in one without an upper bound it is the least.
    """
    lower, upper, count = (np.asarray(each, dtype=float) for each in (lower_seconds, upper_seconds, counts))
    least = count[upper <= slo_seconds].sum()
    here = (lower < slo_seconds) & (upper > slo_seconds)
    inside = float((count[here] * (slo_seconds - lower[here]) / (upper[here] - lower[here])).sum())
    total = count.sum()
    return float((least + inside) / total), float(least / total), float((least + count[here].sum()) / total)


def with_lower_bounds(buckets: pd.DataFrame) -> pd.DataFrame:
    """The rows of a histograms.csv; older ones have upper bounds only, of the record's layout (64 per doubling)."""
    if "bucket_lower_seconds" in buckets:
        return buckets
    return buckets.assign(bucket_lower_seconds=buckets["bucket_upper_seconds"] / 2 ** (1 / 64))


def cost_table(
    summary: pd.DataFrame,
    price_per_hour: float | None,
    slo_ms: float | None,
    window_seconds: float,
    buckets: Buckets,
) -> pd.DataFrame:
    """One row per row of the summary with a throughput; `summary` holds plain workloads."""
    rows = []
    known: dict[tuple[str, str], pd.DataFrame] = {}
    for row in summary[summary["throughput_total_hz"].notna()].to_dict("records"):
        found: dict[str, Any] = {
            **dict.fromkeys(COLUMNS),
            **{name: row[name] for name in ("strategy", "workload", "replicas", "throughput_total_hz")},
            "price_per_hour": price_per_hour,
            "slo_ms": slo_ms,
            "stp": stp(row)[0],
        }
        if price_per_hour is not None:
            found |= _dollars(row, price_per_hour)
        if slo_ms is not None:
            key = (row["strategy"], row["workload"])
            if key not in known:
                known[key] = buckets(*key)
            found |= _goodput(known[key], row["replicas"], slo_ms / 1e3, window_seconds)
        if price_per_hour is not None and found["goodput_hz"]:
            found["dollars_per_million_good_iterations"] = dollars_per_million(price_per_hour, found["goodput_hz"])
        rows.append(found)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def stp(row: Mapping[Any, Any]) -> tuple[float, float, float]:
    """System throughput of a row of the summary with its interval: the column of that name, or, where all tenants run
    the same, their number over their slowdown."""
    if "stp" in row and not math.isnan(row["stp"]):
        return row["stp"], row["stp_low"], row["stp_high"]
    n = row["replicas"]
    return n / row["slowdown"], n / row["slowdown_high"], n / row["slowdown_low"]


def _dollars(row: Mapping[Any, Any], price: float) -> dict[str, Any]:
    ends = [row[f"throughput_total_hz{end}"] for end in ("", "_high", "_low")]
    names = [f"dollars_per_million_iterations{end}" for end in ("", "_low", "_high")]
    found = {name: dollars_per_million(price, hz) for name, hz in zip(names, ends, strict=True)}
    one = price * HOURS_PER_MONTH
    found["dollars_per_tenant_month"] = one / row["replicas"]
    if row["replicas"] == 1:
        return found
    found["saving_before_loss_dollars_per_month"] = saving(row["replicas"], price, stp=1.0).before_loss
    savings = [saving(row["replicas"], price, each) if not math.isnan(each) else None for each in stp(row)]
    for end, each in zip(("", "_low", "_high"), savings, strict=True):
        found[f"saving_after_loss_dollars_per_month{end}"] = each.after_loss if each else math.nan
    return found


def _goodput(buckets: pd.DataFrame, replicas: int, slo_seconds: float, window_seconds: float) -> dict[str, Any]:
    """Iterations within the SLO per second: the mean over the repeats, each from its own buckets."""
    own = buckets[buckets["replicas"] == replicas]
    shares, rates = [], []
    for _, repeat in own.groupby("repeat"):
        share = within_slo(repeat["bucket_lower_seconds"], repeat["bucket_upper_seconds"], repeat["count"], slo_seconds)
        shares.append(share)
        rates.append(share[0] * repeat["count"].sum() / window_seconds)
    if not shares:
        return {}
    value, least, most = (sum(share[i] for share in shares) / len(shares) for i in range(3))
    found = {"within_slo_ratio": value, "within_slo_ratio_least": least, "within_slo_ratio_most": most}
    if min(rates) > 0:
        rate = log_interval(rates)
        return found | {"goodput_hz": rate.value, "goodput_hz_low": rate.low, "goodput_hz_high": rate.high}
    return found | {"goodput_hz": sum(rates) / len(rates)}
