"""The window: all tenants steady together, one start and end for all, and their records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sharebench.collect.rows import Row
from sharebench.nodes.base import Endpoint, Sampler, Tenants, TenantsFailed, TenantUnreachable

NS = 1_000_000_000
# Long enough to reach every tenant before the window starts; doubled when one of them was too slow.
LEAD_SECONDS = 0.1
# The same where a network lies between, and each question may need a connection of its own first.
REMOTE_LEAD_SECONDS = 1.0
ATTEMPTS = 6
CLOCK_READINGS = 3
# Each question costs a tenant about a millisecond of what it is judged by.
POLL_SECONDS = 0.1
# A tenant that dies falls silent a moment before its end shows.
SILENCE_SECONDS = 1.0


@contextlib.contextmanager
def noticing_death(tenants: Tenants) -> Iterator[None]:
    """Tell a tenant that is dead or hangs (TenantsFailed) from one that cannot be reached (TenantUnreachable)."""
    try:
        yield
    except TenantUnreachable as silence:
        tenants.sleep_until(tenants.now_ns() + int(SILENCE_SECONDS * NS))
        if tenants.are_local:
            raise TenantsFailed(f"a tenant lives but does not answer: {silence}") from silence
        raise


def settle(tenants: Tenants, timeout_seconds: float) -> list[dict[str, Any]]:
    """Wait until each tenant has judged itself steady again, now that all of them run; their verdicts, in order.

    Raises TenantsFailed when a tenant dies, or gives no verdict in time.
    """
    endpoints = tenants.endpoints()
    since_ns = tenants.now_ns()
    until_ns = since_ns + int(timeout_seconds * NS)
    verdicts: dict[int, dict[str, Any]] = {}
    while len(verdicts) < len(endpoints):
        for index, endpoint in enumerate(endpoints):
            if index not in verdicts and (verdict := endpoint.settled(since_ns)) is not None:
                verdicts[index] = verdict
        if len(verdicts) < len(endpoints):
            if tenants.now_ns() > until_ns:
                raise TenantsFailed("not every tenant became steady or gave up in time")
            tenants.sleep_until(tenants.now_ns() + int(POLL_SECONDS * NS))
    return [verdicts[index] for index in range(len(endpoints))]


def _clock(endpoint: Endpoint) -> tuple[int, int, float]:
    """The tenant's clock by its fastest answer: a busy tenant's delay is not its clock's error."""
    return min((endpoint.clock() for _ in range(CLOCK_READINGS)), key=lambda reading: reading[2])


def _announce(tenants: Tenants, pool: ThreadPoolExecutor, seconds: float, record_seconds: float) -> tuple[int, int]:
    """Set one window on all tenants; its start and end in ns of the node's clock."""
    endpoints = tenants.endpoints()
    lead_seconds = LEAD_SECONDS if tenants.are_local else REMOTE_LEAD_SECONDS
    for attempt in range(ATTEMPTS):
        start_ns = tenants.now_ns() + int(lead_seconds * 2**attempt * NS)
        end_ns = start_ns + int(seconds * NS)
        taken = list(pool.map(lambda endpoint: endpoint.set_window(start_ns, end_ns), endpoints))  # noqa: B023
        if all(taken):
            return start_ns, end_ns
        # Those that hold a window which others refused can take another once they have closed it.
        holders = [endpoint for endpoint, took in zip(endpoints, taken, strict=True) if took]
        if holders:
            tenants.sleep_until(end_ns)
            list(pool.map(lambda endpoint: endpoint.record(record_seconds), holders))
    raise TenantsFailed(f"a tenant did not take a window in {ATTEMPTS} attempts")


def measure(
    tenants: Tenants, sampler: Sampler, seconds: float, record_seconds: float
) -> tuple[dict[str, Any], list[dict[str, Any]], list[Row], dict[str, Any]]:
    """Run one window of `seconds`; returns the record's `window`, the tenants' records, telemetry rows and summary.

    The driver sends nothing between the window's start and its end. A tenant that does not deliver its record within
    `record_seconds` of the end raises TenantsFailed or TenantUnreachable.
    """
    endpoints = tenants.endpoints()
    clocks = [_clock(endpoint) for endpoint in endpoints]
    monotonic_ns, realtime_ns, _ = clocks[0]
    pool = ThreadPoolExecutor(len(endpoints))
    try:
        start_ns, end_ns = _announce(tenants, pool, seconds, record_seconds)
        sampler.start()
        tenants.sleep_until(end_ns)
        rows, summary = sampler.stop(start_ns / NS, end_ns / NS)
        records = list(pool.map(lambda endpoint: endpoint.record(record_seconds), endpoints))
    finally:
        # Not waited for: after a failure or an interrupt one of them may still ask a tenant that hangs.
        pool.shutdown(wait=False)
    to_epoch_ns = realtime_ns - monotonic_ns
    window = {
        "start_monotonic_seconds": start_ns / NS,
        "end_monotonic_seconds": end_ns / NS,
        "start_epoch_seconds": (start_ns + to_epoch_ns) / NS,
        "end_epoch_seconds": (end_ns + to_epoch_ns) / NS,
        "clock_error_seconds": max(round_trip for _, _, round_trip in clocks) / 2,
    }
    return window, records, rows, summary
