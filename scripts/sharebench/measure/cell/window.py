"""The window: all tenants steady together, one start and end for all, and their records."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import Endpoint, NodeError, Sampler, Tenants, TenantsFailed, TenantUnreachable
from sharebench.model.records.telemetry import Row, Telemetry
from sharebench.model.records.types import Window
from tenant.contract import Steadiness, TenantReport

# Long enough to reach every tenant before the window starts; doubled when one of them was too slow.
LEAD_SECONDS = 0.1
# The same across a network, where each request may need a new connection.
REMOTE_LEAD_SECONDS = 1.0
# Where all tenants have just answered faster, the lead is this number of their answer times, but not below the minimum.
REMOTE_ROUNDS = 5
MIN_REMOTE_LEAD_SECONDS = 0.25
ATTEMPTS = 6
CLOCK_READINGS = 3
# Each request costs a tenant about a millisecond of the time in which it judges its steadiness.
POLL_SECONDS = 0.1
# A dying tenant stops answering a moment before its exit is visible.
SILENCE_SECONDS = 1.0
# How often the driver checks, while jobs run, that their tenants live.
WATCH_SECONDS = 0.5


@contextlib.contextmanager
def detecting_dead_tenants(tenants: Tenants) -> Iterator[None]:
    """Raise TenantsFailed in place of TenantUnreachable when the tenant is dead or hangs."""
    try:
        yield
    except TenantUnreachable as silence:
        tenants.sleep_until(tenants.now_ns() + int(SILENCE_SECONDS * NS))
        if tenants.are_local:
            raise TenantsFailed(f"a tenant lives but does not answer: {silence}") from silence
        raise


def settle(tenants: Tenants, timeout_seconds: float, as_warmed_up: bool = False) -> list[Steadiness]:
    """Wait until each tenant has judged itself steady again, with all of them running; their verdicts, in order.

    With `as_warmed_up`, for a tenant whose load has not changed since its warm-up, the first verdicts stand. Raises
    TenantsFailed when a tenant dies, or gives no verdict in time.
    """
    endpoints = tenants.endpoints()
    now_ns = tenants.now_ns()
    until_ns = now_ns + int(timeout_seconds * NS)
    since_ns = None if as_warmed_up else now_ns
    verdicts: dict[int, Steadiness] = {}
    while len(verdicts) < len(endpoints):
        for index, endpoint in enumerate(endpoints):
            if index not in verdicts and (verdict := endpoint.steadiness(since_ns)) is not None:
                verdicts[index] = verdict
        if len(verdicts) < len(endpoints):
            if tenants.now_ns() > until_ns:
                raise TenantsFailed("not every tenant became steady or gave up in time")
            tenants.sleep_until(tenants.now_ns() + int(POLL_SECONDS * NS))
    return [verdicts[index] for index in range(len(endpoints))]


def read_clock(endpoint: Endpoint) -> tuple[int, int, float]:
    """The tenant's clock from its fastest answer, since a busy tenant's delay is not an error of its clock."""
    best = endpoint.clock()
    for _ in range(CLOCK_READINGS - 1):
        # A reading without error needs no second one.
        if best[2] > 0:
            best = min(best, endpoint.clock(), key=lambda reading: reading[2])
    return best


def announce_window(
    tenants: Tenants,
    pool: ThreadPoolExecutor,
    seconds: float,
    record_seconds: float,
    jobs: Sequence[int] | None = None,
    last: int | None = None,
    round_seconds: float = REMOTE_LEAD_SECONDS,
) -> tuple[int, int]:
    """Set one window on all tenants; returns its start and end in ns of the node's clock.

    Tenant `last` is asked only after all others have accepted; `round_seconds` is how long all took to answer before.
    Raises TenantsFailed when one refuses too often.
    """
    endpoints = tenants.endpoints()
    work = [(count,) for count in jobs] if jobs else [()] * len(endpoints)
    lead_seconds = LEAD_SECONDS
    if not tenants.are_local:
        lead_seconds = min(REMOTE_LEAD_SECONDS, max(MIN_REMOTE_LEAD_SECONDS, REMOTE_ROUNDS * round_seconds))
    for attempt in range(ATTEMPTS):
        start_ns = tenants.now_ns() + int(lead_seconds * 2**attempt * NS)
        end_ns = start_ns + int(seconds * NS)

        def accepts(index: int) -> bool:
            return endpoints[index].set_window(start_ns, end_ns, *work[index])  # noqa: B023

        first = [index for index in range(len(endpoints)) if index != last]
        taken = list(pool.map(accepts, first))
        if all(taken) and (last is None or accepts(last)):
            return start_ns, end_ns
        # Tenants that accepted must close this window before they can accept another.
        holders = [endpoints[index] for index, took in zip(first, taken, strict=True) if took]
        if holders:
            if not jobs:
                tenants.sleep_until(end_ns)
            deadlines = (record_seconds, seconds) if jobs else (record_seconds,)
            list(pool.map(lambda endpoint: endpoint.record(*deadlines), holders))  # noqa: B023
    raise TenantsFailed(f"a tenant refused the window in {ATTEMPTS} attempts")


@contextlib.contextmanager
def stopping_sampler_on_failure(tenants: Tenants, sampler: Sampler, start_ns: int) -> Iterator[None]:
    """Stop the sampler when a tenant fails in the window; not in a pod, where it may have died with the tenant."""
    try:
        yield
    except (TenantsFailed, TenantUnreachable):
        if tenants.are_local:
            with contextlib.suppress(NodeError):
                sampler.stop(start_ns / NS, max(start_ns + 1, tenants.now_ns()) / NS)
        raise


def _job_records(
    tenants: Tenants, pool: ThreadPoolExecutor, seconds: float, record_seconds: float
) -> list[TenantReport]:
    """The reports of jobs, each delivered when the job is done or at its deadline; nothing else is sent meanwhile."""
    reports = [pool.submit(endpoint.record, record_seconds, seconds) for endpoint in tenants.endpoints()]
    while wait(reports, WATCH_SECONDS, FIRST_EXCEPTION).not_done and not any(map(_has_failed, reports)):
        # Raises when a tenant has died.
        tenants.sleep_until(tenants.now_ns() + NS // 1000)
    for report in filter(_has_failed, reports):
        report.result()
    return [report.result() for report in reports]


def _has_failed(report: Future[TenantReport]) -> bool:
    return report.done() and report.exception() is not None


def measure_window(
    tenants: Tenants, sampler: Sampler, seconds: float, record_seconds: float, jobs: Sequence[int] | None = None
) -> tuple[Window, list[TenantReport], list[Row], Telemetry]:
    """Run one window of `seconds`; returns the record's `window`, the tenants' records, telemetry rows and summary.

    With `jobs` (iterations of each tenant) the window ends with the last job, `seconds` after its start at the latest.
    The driver sends nothing between the window's start and its end. A tenant that does not deliver its record within
    `record_seconds` of the end raises TenantsFailed or TenantUnreachable.
    """
    endpoints = tenants.endpoints()
    pool = ThreadPoolExecutor(len(endpoints))
    try:
        asked_ns = tenants.now_ns()
        clocks = list(pool.map(read_clock, endpoints))
        answered_seconds = (tenants.now_ns() - asked_ns) / NS
        start_ns, end_ns = announce_window(tenants, pool, seconds, record_seconds, jobs, round_seconds=answered_seconds)
        sampler.start()
        with stopping_sampler_on_failure(tenants, sampler, start_ns):
            if jobs:
                records = _job_records(tenants, pool, seconds, record_seconds)
                took = [job["completion_seconds"] if (job := record.get("job")) else None for record in records]
                end_ns = start_ns + round(max(seconds if each is None else each for each in took) * NS)
            else:
                tenants.sleep_until(end_ns)
        rows, summary = sampler.stop(start_ns / NS, end_ns / NS)
        if not jobs:
            records = list(pool.map(lambda endpoint: endpoint.record(record_seconds), endpoints))
        # A digest is work for the device, so it must wait until no tenant measures.
        outputs = pool.map(lambda endpoint: endpoint.outputs(record_seconds), endpoints)
        for record, of_tenant in zip(records, outputs, strict=True):
            record.update(of_tenant)
    finally:
        # Not waited for: after a failure or an interrupt a thread may still wait for a hung tenant.
        pool.shutdown(wait=False)
    return window_record(start_ns, end_ns, clocks), records, rows, summary


def window_record(start_ns: int, end_ns: int, clocks: Sequence[tuple[int, int, float]]) -> Window:
    """The record's `window`; `clocks` are the tenants' readings, of which the first gives the real time."""
    monotonic_ns, realtime_ns, _ = clocks[0]
    to_epoch_ns = realtime_ns - monotonic_ns
    return {
        "start_monotonic_seconds": start_ns / NS,
        "end_monotonic_seconds": end_ns / NS,
        "start_epoch_seconds": (start_ns + to_epoch_ns) / NS,
        "end_epoch_seconds": (end_ns + to_epoch_ns) / NS,
        "clock_error_seconds": max(round_trip for _, _, round_trip in clocks) / 2,
    }
