"""An SLO of several parts: their limits, and how many requests of a tenant meet all that apply."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from sharebench.model.question import Slo
from sharebench.model.records.types import TenantRecord
from sharebench.read.histogram import tenant_buckets
from tenant.contract import AchievedLoad, RequestColumns

LATENCY = "latency"
PART_LABELS = {LATENCY: "latency", "ttft": "TTFT", "itl": "ITL", "tpot": "TPOT"}
"""The parts with their labels; all but the latency apply to streams only."""
LimitsOf = Callable[[str], Mapping[str, float]]
"""Seconds by part of the SLO of a workload."""


def slo_limits(slo: Slo, workload: str = "") -> dict[str, float]:
    """Limit in seconds of each part that has one, for all workloads, or for one that may have limits of its own."""
    # Older configs lack keys.
    own: Mapping[str, Any] = slo.get("workloads", {}).get(workload, slo)
    limits_ms = {part: own.get(f"{part}_ms") for part in PART_LABELS}
    return {part: ms / 1e3 for part, ms in limits_ms.items() if ms is not None}


def no_slo(workload: str) -> Mapping[str, float]:
    return {}


def limits_of(slo: Slo) -> LimitsOf:
    return partial(slo_limits, slo)


def own_limits(slo: Slo) -> dict[str, dict[str, float]]:
    """The limits of the workloads that have their own."""
    return {name: slo_limits(slo, name) for name in slo.get("workloads", {})}


def format_slo(slo: Slo) -> str:
    """`TTFT 500 ms; service 50 ms`; empty without limits."""
    general, own = slo_limits(slo), own_limits(slo)
    texts = [f"{name} {format_limits(limits) or 'none'}" for name, limits in own.items() if limits or general]
    return "; ".join([format_limits(general), *texts] if general else texts)


def format_limits(limits: Mapping[str, float]) -> str:
    """`50 ms` for an SLO of the latency alone, else with the parts: `TTFT 500 ms, TPOT 50 ms`."""
    if limits.keys() == {LATENCY}:
        return f"{1e3 * limits[LATENCY]:g} ms"
    return ", ".join(f"{PART_LABELS[part]} {1e3 * seconds:g} ms" for part, seconds in limits.items())


def percentile_label(part: str, percentile: str) -> str:
    """`p99` for the latency, else with the part: `TTFT p99`."""
    return percentile if part == LATENCY else f"{PART_LABELS[part]} {percentile}"


def dollars_per_million(price_per_hour: float, hz: float) -> float:
    return price_per_hour / (3600 * hz) * 1e6


def request_seconds(requests: RequestColumns) -> dict[str, list[float] | list[float | None]]:
    """Seconds of each request by part; ITL is the longest gap. None where a request has no value."""
    times = (requests["latency_seconds"], requests["ttft_seconds"], requests["itl_max_seconds"])
    return dict(zip(PART_LABELS, (*times, requests["tpot_seconds"]), strict=True))


def good_count(tenant: TenantRecord, limits: Mapping[str, float]) -> float | None:
    """How many requests of a tenant meet every part that applies.

    Requests of a stream are counted one by one. Otherwise only the latency applies, by its histogram. None where no
    part applies, or where there are no buckets.
    """
    if (requests := tenant.get("requests")) is not None:
        if not limits:
            return None
        seconds, ends = request_seconds(requests), tuple(limits.values())
        each = zip(*(seconds[part] for part in limits), strict=True)
        return float(sum(all(t is None or t <= end for t, end in zip(times, ends, strict=True)) for times in each))
    buckets = list(tenant_buckets(tenant))
    if LATENCY not in limits or (tenant["count"] and not buckets):
        return None
    lower, upper, count = np.array(buckets, dtype=float).reshape(-1, 3).T
    # Interpolate linearly within the SLO's bucket, as for quantiles; a bucket without an upper bound counts as missed.
    return float((count * np.clip((limits[LATENCY] - lower) / (upper - lower), 0, 1)).sum())


def served_hz(load: AchievedLoad) -> float:
    """Rate of what ended in the window; under a closed load, and in older records, of what was due in it."""
    served = load.get("served_rate_hz")
    return load["achieved_rate_hz"] if load["planned_rate_hz"] is None or served is None else served


def goodput_hz(tenant: TenantRecord, limits: Mapping[str, float]) -> float | None:
    """Rate of what was served, times the share of the requests that meet every part; None as `good_count`.

    Where more is due than is served, requests that are due in the window end after it. They count in the share alone.
    """
    good, load = good_count(tenant, limits), tenant["load"]
    if good is None or load is None:
        return None
    return served_hz(load) * good / tenant["count"] if tenant["count"] else 0.0
