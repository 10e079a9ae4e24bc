"""Gates of cells with user programs, which two scrapes or our client measure."""

import math

from sharebench.model.records.record import window_seconds
from sharebench.model.records.types import CellRecord, TenantRecord
from sharebench.read.gates.verdict import UNKNOWN, Judged, Verdict, at_most, judge_tenants, load_of
from sharebench.read.histogram import tenant_buckets

# The moments of the scrapes and the iterations at the edges leave an error in every number; beyond this it says little.
SCRAPE_RATIO = 0.25
# A client that computes for half of the time of its requests measures itself; a tenth is a small share of a latency.
GENERATOR_BOUND_RATIO = 0.5
GENERATOR_COST_RATIO = 0.1
# Tools agree within 3 % on the rate of a closed load. Half of that may be the time that our client keeps its requests
# out of flight; as much lies in the latencies of fast requests.
GENERATOR_GAP_RATIO = 0.015
# The client's pause after a request that the server took no part in.
PAUSE_SECONDS = 0.05
# Where most requests connect, latency is that of the server and of connecting to it.
NEW_CONNECTIONS_RATIO = 0.5
# Beginnings of the reasons of such requests; among the other reasons, beyond the record's most, may be any.
NO_ANSWER = ("connection refused", "the connection was closed without an answer", "[Errno ", "other reasons")
# The promise of the client's other numbers. An end mark that a server counts exceeds it in answers below 100 tokens.
TOKEN_COUNT_RATIO = 0.01


def is_program(tenant: TenantRecord) -> bool:
    """Whether the tenant is a user program, whose work and output are unknown."""
    return "measured_by" in tenant


def _is_scraped(tenant: TenantRecord) -> bool:
    return tenant.get("measured_by") == "scrape" and bool(tenant["count"])


def _has_client(tenant: TenantRecord) -> bool:
    return tenant.get("measured_by") == "client"


def _is_external_server(tenant: TenantRecord) -> bool:
    return _has_client(tenant) and tenant["cpu"] is None


def has_only_external_servers(record: CellRecord) -> bool:
    """Whether all tenants are external servers, for which there is no evidence."""
    return all(map(_is_external_server, record["tenants"]))


def server_elsewhere(record: CellRecord) -> Verdict | None:
    if not any(map(is_program, record["tenants"])):
        return None
    value = sum(map(_is_external_server, record["tenants"]))
    return at_most(value, 0, f"{value} servers are not ours: only their owner knows how they share the device")


def largest_scrape_error(tenant: TenantRecord) -> float | None:
    """The larger error of rate and mean, from the window's edges between two scrapes; None without scrapes."""
    scrape = tenant.get("scrape")
    errors = (scrape["rate_error_ratio"], scrape["mean_error_ratio"]) if scrape else ()
    return max((error for error in errors if error is not None), default=None)


def scrape_error(record: CellRecord) -> Verdict | None:
    """Largest relative error of a rate or mean that the ends of a window between two scrapes leave.

    A sum that is further off its own buckets has another unit, or belongs to something else.
    """
    scraped = list(filter(_is_scraped, record["tenants"]))
    if not scraped:
        return None
    for tenant in scraped:
        buckets = list(tenant_buckets(tenant))
        low = sum(lower * count for lower, _, count in buckets)
        high = sum(upper * count for _, upper, count in buckets) or math.inf
        value = max(low / tenant["sum_seconds"], tenant["sum_seconds"] / high) - 1 if tenant["sum_seconds"] else 0.0
        if SCRAPE_RATIO < value < math.inf:
            message = (
                f"the iterations of tenant {tenant['index']} took {tenant['sum_seconds']:.3g} s by its sum, and "
                f"{low:.3g} to {high:.3g} s by its buckets; give both in seconds"
            )
            return at_most(value, SCRAPE_RATIO, message)
    judged = [(error, tenant) for tenant in scraped if (error := largest_scrape_error(tenant)) is not None]
    if not judged:
        return Verdict(None, SCRAPE_RATIO, True, UNKNOWN)
    value, worst = max(judged, key=lambda pair: pair[0])
    message = (
        f"the edges of the window leave {value:.0%} open with the {worst['count']} iterations of tenant "
        f"{worst['index']}; a longer window has more"
    )
    return at_most(value, SCRAPE_RATIO, message)


@judge_tenants(
    "tenant {tenant} reports a mean of {value:.0%} of the window: is its unit right (metrics.unit: milliseconds)? "
    "Else set a longer one (window_seconds)",
    of=_is_scraped,
)
def reported_mean(record: CellRecord, tenant: TenantRecord) -> Judged:
    """Longest mean that a program reports, over the window. Requests may overlap; a mean above it is not in seconds."""
    return None if tenant.get("job") else (tenant["sum_seconds"] / tenant["count"] / window_seconds(record), 1.0)


def _client_share(tenant: TenantRecord, limit: float, most_seconds: float = math.inf) -> Judged:
    """CPU time of the client over the time of its requests, counted up to `most_seconds`, and the limit."""
    spent, under_way = tenant["generator"]["cpu_seconds"], min(tenant["sum_seconds"], most_seconds)
    return (spent / under_way, limit) if spent is not None and under_way > 0 else None


@judge_tenants(
    "the client computed for {value:.0%} of the time of its requests",
    of=_has_client,
    unknown=Verdict(None, GENERATOR_BOUND_RATIO, True, UNKNOWN),
)
def generator_bound(record: CellRecord, tenant: TenantRecord) -> Judged:
    """CPU time of the client over the time in which any requests were under way: a high share measures the client."""
    return _client_share(tenant, GENERATOR_BOUND_RATIO, window_seconds(record))


@judge_tenants(
    "of the latencies {value:.0%} may be the client's own time",
    of=_has_client,
    unknown=Verdict(None, GENERATOR_COST_RATIO, True, UNKNOWN),
)
def generator_cost(_: CellRecord, tenant: TenantRecord) -> Judged:
    """CPU time of the client over the sum of all latencies: its visible part of each latency."""
    return _client_share(tenant, GENERATOR_COST_RATIO)


@judge_tenants("between two requests the client of tenant {tenant} took {value:.1%} of the time, which its rate lacks")
def generator_gap(record: CellRecord, tenant: TenantRecord) -> Judged:
    """Share of the time that requests of a closed load were not in flight, between an answer and the next request.

    It is one less the requests in flight over those that the load asks for. The pauses that the client may have made
    are left out: after each failure without an answer, and at the window's beginning after an earlier one.
    """
    load = load_of(tenant)
    asked, in_flight = load.get("concurrency"), load["in_flight_mean"]
    if asked is None or in_flight is None or load["arrival"] != "closed":
        return None
    gap, reasons = 1 - in_flight / asked, tenant.get("errors_by_reason", {})
    failed = sum(count for reason, count in reasons.items() if reason.startswith(NO_ANSWER))
    if failed:
        gap = max(0.0, gap - PAUSE_SECONDS * (failed / asked + 1) / window_seconds(record))
    return gap, GENERATOR_GAP_RATIO


@judge_tenants("{value:.0%} of the requests to tenant {tenant} needed a new connection, which their latency includes")
def new_connections(_: CellRecord, tenant: TenantRecord) -> Judged:
    """Share of the requests for which the client had to connect, because the server had closed each connection."""
    if (connections := tenant.get("generator", {}).get("connections")) is None:
        return None
    return connections / max(1, tenant["count"] + tenant["errors"]), NEW_CONNECTIONS_RATIO


@judge_tenants(
    "usage of tenant {tenant} is {value:.1%} off the tokens that came with text; TPOT and rates follow usage"
)
def token_count(_: CellRecord, tenant: TenantRecord) -> Judged:
    """Tokens that servers reported in `usage`, against those that the client counted in the same answers."""
    if not (tokens := tenant.get("output_tokens")) or not (reported := tokens.get("reported")):
        return None
    return abs(reported / max(1, tokens["counted"]) - 1), TOKEN_COUNT_RATIO


def left_running(record: CellRecord) -> Verdict | None:
    """Processes that a program had left behind when its container ended: what they did is not in its time."""
    judged = [
        (job.get("left_running", 0), tenant["index"])
        for tenant in record["tenants"]
        if tenant.get("measured_by") == "exit" and (job := tenant.get("job"))
    ]
    if not judged:
        return None
    value, tenant = max(judged)
    return at_most(value, 0, f"the container of tenant {tenant} ended with {value} processes still at work")
