"""Gates of loads: whether the planned load arrived in time, and whether the tenants could serve it."""

import math

from sharebench.model.records.record import window_seconds
from sharebench.model.records.types import CellRecord, TenantRecord
from sharebench.read.gates.drift import group_sums
from sharebench.read.gates.verdict import (
    Judged,
    Verdict,
    at_most,
    is_open_load,
    judge_tenants,
    load_of,
    worst_verdict,
)
from sharebench.read.histogram import Histogram
from sharebench.read.slo import served_hz
from tenant.contract import TIMELINE_SLOTS, Timeline

# Number of parts of the window; the last is compared with the first.
GROWTH_PARTS = 4
# Standard deviations of the growth by chance. A server at exactly full load exceeds them in 1 window of 40.
GROWTH_DEVIATIONS = 2.0
# The same if the queue was never short after the first part. Stable queues up to 90 % load exceed it in 1 of 100.
BUSY_DEVIATIONS = 1.0
# A queue is short in a slot if it has fewer requests than this on average: a stable one returns to one or two.
SHORT_QUEUE = 3.0
# The last burst of a trace may be served after the window; of more requests, the window was too short for the trace.
TRACE_EXCESS_RATIO = 0.25
# Requests in flight equal rate times latency; the remaining difference is measuring error.
LITTLES_LAW_RATIO = 0.05
# Standard deviations by which Poisson arrivals may miss their plan (1 clean tenant in 16 000 misses by more).
POISSON_DEVIATIONS = 4.0
# A request that is sent late seems to be answered late. If the latest requests are also the slowest, quantiles add, and
# the 99th percentile is too high by this share; two scrapes leave as much open. A median or a mean may have a larger
# share of error, where all requests are late and few are slow.
LATE_RATIO = 0.25
# In a part of the window most requests failed that would fail there by chance in one window of a thousand.
OUTAGE_CHANCE = 1e-3
# No slot of a window is an outage; below one slot.
OUTAGE_LIMIT = 0.5 / TIMELINE_SLOTS
# The window's edges add or remove one request; the other half absorbs rounding.
EDGE_REQUESTS = 1.5


def _planned_rate_hz(tenant: TenantRecord) -> float:
    rate_hz = load_of(tenant)["planned_rate_hz"]
    assert rate_hz is not None
    return rate_hz


@judge_tenants(
    "the client of tenant {tenant} was late by {value:.0%} of what it measured (p99): give it cores of its own"
)
def generator_late(_: CellRecord, tenant: TenantRecord) -> Judged:
    """Lateness of our client (p99), when it was free to send, over the p99 time to first token, else latency."""
    late_seconds = tenant.get("generator", {}).get("lateness_p99_seconds")
    histogram = Histogram.from_sparse(tenant["stages"].get("ttft", tenant)["histogram"])
    if late_seconds is None or not histogram.count:
        return None
    p99 = histogram.quantiles([0.99])[0]
    # The last bucket has no upper bound.
    return late_seconds / (p99.high_seconds if p99.is_bounded else p99.low_seconds), LATE_RATIO


@judge_tenants(
    "tenant {tenant}: requests came {value:.0%} faster than they were served, so that the queue grew",
    of=is_open_load,
    unknown=Verdict(None, 0.0, True, "too few requests to tell growth from noise"),
)
def queue_growth(record: CellRecord, tenant: TenantRecord) -> Judged:
    """Relative excess of the rate at which requests came over the rate at which they were served.

    Latencies count from the moment at which a request is due. If more are due than can be served, each waits longer
    than the one before: latency grows by that excess per second, and its mean depends on the window's length. The
    number of requests does not show this, since all that are due in the window are waited for. The rate of a trace
    varies, so that its latency may grow; there, requests that were served only after the window tell.

    At exactly full load the backlog is a random walk: over n requests it changes by the square root of n times the
    variances of gaps and services, in units of their means. Exponential services are assumed as the worst case. A
    stable queue changes by less, and becomes short again and again. A queue that never becomes short is therefore
    overloaded at a smaller growth already.
    """
    timeline, load = tenant["timeline"], load_of(tenant)
    if load["arrival"] == "trace":
        served = served_hz(load)
        return (load["achieved_rate_hz"] / served - 1, TRACE_EXCESS_RATIO) if served else None
    if timeline is None:
        return None
    counts, sums = (group_sums(values, GROWTH_PARTS) for values in (timeline["count"], timeline["sum_seconds"]))
    if not counts[0] or not counts[-1]:
        return None
    distance_seconds = window_seconds(record) * (GROWTH_PARTS - 1) / GROWTH_PARTS
    growth = (sums[-1] / counts[-1] - sums[0] / counts[0]) / distance_seconds
    variances = 2 if load["arrival"] == "poisson" else 1
    deviations = GROWTH_DEVIATIONS if _is_ever_short(timeline, _planned_rate_hz(tenant)) else BUSY_DEVIATIONS
    return growth, deviations * math.sqrt(variances / tenant["count"])


def _is_ever_short(timeline: Timeline, rate_hz: float) -> bool:
    """Whether the queue was short in some slot after the first part of the window (Little: rate times latency)."""
    counts, sums = timeline["count"], timeline["sum_seconds"]
    first = len(counts) // GROWTH_PARTS
    return any(
        count and total * rate_hz < SHORT_QUEUE * count
        for count, total in zip(counts[first:], sums[first:], strict=True)
    )


def littles_law(record: CellRecord) -> Verdict | None:
    open_loads = list(filter(is_open_load, record["tenants"]))
    if not open_loads:
        return None
    judged = []
    for tenant in open_loads:
        in_flight = load_of(tenant)["in_flight_mean"]
        if tenant["sum_seconds"] > 0 and in_flight is not None:
            if in_flight <= 0:
                message = f"tenant {tenant['index']} finished requests but never had one in flight"
                return Verdict(None, LITTLES_LAW_RATIO, False, message)
            judged.append((*_littles_law_and_limit(tenant, in_flight, window_seconds(record)), tenant["index"]))
    return worst_verdict(
        judged,
        "tenant {tenant}: requests in flight differ from rate times latency by {value:.1%}",
        Verdict(None, LITTLES_LAW_RATIO, True, "no request finished, or those in flight are not known"),
    )


def _littles_law_and_limit(tenant: TenantRecord, in_flight_mean: float, seconds: float) -> tuple[float, float]:
    """|rate times mean latency / mean in flight - 1|, and its limit."""
    # Both are in request-seconds: latencies by arrival, and the time spent in flight.
    by_arrival = tenant["sum_seconds"]
    in_flight = in_flight_mean * seconds
    longest = tenant["max_seconds"]
    assert longest is not None
    crossing = _crossing_seconds(tenant, seconds, longest)
    return abs(by_arrival / in_flight - 1), LITTLES_LAW_RATIO + crossing / min(by_arrival, in_flight)


def hung_requests(tenant: TenantRecord, seconds: float) -> int:
    """Requests of a closed loop that were in flight all through the window: the part of Little's law that is missing.

    Requests that cross an edge of the window explain a part of it; how long those that failed took is not known.
    """
    load, longest = load_of(tenant), tenant["max_seconds"]
    in_flight = load["in_flight_mean"]
    is_judged = tenant.get("measured_by") == "client" and load["planned_rate_hz"] is None and not tenant["errors"]
    if not is_judged or in_flight is None or longest is None:
        return 0
    missing = in_flight * seconds - tenant["sum_seconds"]
    return round(missing / seconds) if missing > _crossing_seconds(tenant, seconds, longest) else 0


def _crossing_seconds(tenant: TenantRecord, seconds: float, longest: float) -> float:
    """Most request-seconds by which Little's law may be off over a finite window, whose edges requests cross.

    These are at most the requests that came within the longest latency of an edge, and one more at either edge, each
    with the longest latency.
    """
    return (tenant["count"] / seconds * longest + 2) * longest


def load_achieved(record: CellRecord) -> Verdict | None:
    open_loads = list(filter(is_open_load, record["tenants"]))
    drops = sum(load_of(tenant)["drops"] for tenant in open_loads)
    if drops:
        return at_most(drops, 0, f"{drops} requests were dropped: the queue was full")
    judged = []
    for tenant in open_loads:
        load, rate_hz = load_of(tenant), _planned_rate_hz(tenant)
        # The rate of a trace varies.
        if load["arrival"] == "trace":
            continue
        planned = rate_hz * window_seconds(record)
        noise = POISSON_DEVIATIONS * math.sqrt(planned) if load["arrival"] == "poisson" else 0.0
        value = abs(load["achieved_rate_hz"] / rate_hz - 1)
        judged.append((value, (noise + EDGE_REQUESTS) / planned, tenant["index"]))
    return worst_verdict(judged, "tenant {tenant}: the achieved rate is {value:.1%} off the planned one")


@judge_tenants("most of what tenant {tenant} began in {value:.0%} of the window failed, and has no latency")
def outage(_: CellRecord, tenant: TenantRecord) -> Judged:
    """Share of the window, in its slots, in which most iterations failed, and more than by chance."""
    timeline = tenant["timeline"]
    if not timeline or (errors := timeline.get("errors")) is None:
        return None
    pairs = [(failed, failed + good) for failed, good in zip(errors, timeline["count"], strict=True)]
    share = sum(errors) / max(1, sum(begun for _, begun in pairs))
    limit = OUTAGE_CHANCE / len(pairs)
    # The bound of a binomial's tail: the choices of those that fail, times the chance that they do.
    slots = sum(2 * failed > begun and math.comb(begun, failed) * share**failed < limit for failed, begun in pairs)
    return slots / len(pairs), OUTAGE_LIMIT
