"""An SLO of several parts: what each asks, and the requests of a tenant that hold all that apply to them."""

from collections.abc import Mapping

import numpy as np

from sharebench.core.study_config import Slo
from sharebench.records.histogram import tenant_buckets
from sharebench.records.types import TenantRecord
from tenant.contract import RequestColumns

LATENCY = "latency"
PART_LABELS = {LATENCY: "latency", "ttft": "TTFT", "itl": "ITL", "tpot": "TPOT"}
"""The parts, with their names for people; all but the latency are of streams only."""


def slo_limits(slo: Slo) -> dict[str, float]:
    """Seconds by part, of the parts that ask something."""
    asked = dict(zip(PART_LABELS, (slo["latency_ms"], slo["ttft_ms"], slo["itl_ms"], slo["tpot_ms"]), strict=True))
    return {part: ms / 1e3 for part, ms in asked.items() if ms is not None}


def format_limits(limits: Mapping[str, float]) -> str:
    """`50 ms`, or with the parts where it is not latency alone: `TTFT 500 ms, TPOT 50 ms`."""
    if limits.keys() == {LATENCY}:
        return f"{1e3 * limits[LATENCY]:g} ms"
    return ", ".join(f"{PART_LABELS[part]} {1e3 * seconds:g} ms" for part, seconds in limits.items())


def dollars_per_million(price_per_hour: float, hz: float) -> float:
    return price_per_hour / (3600 * hz) * 1e6


def request_seconds(requests: RequestColumns) -> dict[str, list[float] | list[float | None]]:
    """By part what each request took: of the gaps the longest, None where it has none."""
    times = (requests["latency_seconds"], requests["ttft_seconds"], requests["itl_max_seconds"])
    return dict(zip(PART_LABELS, (*times, requests["tpot_seconds"]), strict=True))


def good_count(tenant: TenantRecord, limits: Mapping[str, float]) -> float | None:
    """How many requests of a tenant hold every part that applies.

    Of a stream these are counted one by one. Otherwise the latency alone applies, by its histogram. None where no part
    applies, or where there are no buckets.
    """
    if (requests := tenant.get("requests")) is not None:
        if not limits:
            return None
        taken, most = request_seconds(requests), tuple(limits.values())
        each = zip(*(taken[part] for part in limits), strict=True)
        return float(sum(all(t is None or t <= end for t, end in zip(times, most, strict=True)) for times in each))
    found = list(tenant_buckets(tenant))
    if LATENCY not in limits or (tenant["count"] and not found):
        return None
    lower, upper, count = np.array(found, dtype=float).reshape(-1, 3).T
    # Inside the SLO's bucket linearly, as quantiles of coarse buckets are; none of one without an upper bound.
    return float((count * np.clip((limits[LATENCY] - lower) / (upper - lower), 0, 1)).sum())
