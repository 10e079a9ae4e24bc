"""The window: all tenants steady together, one start and end for all, and their records."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from sharebench.core.units import NS
from sharebench.nodes.contract import Endpoint, NodeError, Sampler, Tenants, TenantsFailed, TenantUnreachable
from sharebench.records.telemetry import Row, Telemetry
from sharebench.records.types import Window
from tenant.contract import Steadiness, TenantReport

# Long enough to reach every tenant before the window starts; doubled when one of them was too slow.
LEAD_SECONDS = 0.1
# The same where a network lies between, and each question may need a connection of its own first.
REMOTE_LEAD_SECONDS = 1.0
# Less where all tenants have just answered much faster: this number of rounds, and at least that long.
REMOTE_ROUNDS = 5
MIN_REMOTE_LEAD_SECONDS = 0.25
ATTEMPTS = 6
CLOCK_READINGS = 3
# Each question costs a tenant about a millisecond of what it is judged by.
POLL_SECONDS = 0.1
# A tenant that dies falls silent a moment before its end shows.
SILENCE_SECONDS = 1.0
# While jobs run, the driver looks so often whether their tenants live.
WATCH_SECONDS = 0.5


@contextlib.contextmanager
def detecting_dead_tenants(tenants: Tenants) -> Iterator[None]:
    """Tell a tenant that is dead or hangs (TenantsFailed) from one that cannot be reached (TenantUnreachable)."""
    try:
        yield
    except TenantUnreachable as silence:
        tenants.sleep_until(tenants.now_ns() + int(SILENCE_SECONDS * NS))
        if tenants.are_local:
            raise TenantsFailed(f"a tenant lives but does not answer: {silence}") from silence
        raise


def settle(tenants: Tenants, timeout_seconds: float, as_warmed_up: bool = False) -> list[Steadiness]:
    """Wait until each tenant has judged itself steady again, now that all of them run; their verdicts, in order.

    Where they go on `as_warmed_up`, with no neighbour and no other load since, their first verdicts stand. Raises
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
    """The tenant's clock by its fastest answer: a busy tenant's delay is not its clock's error."""
    best = endpoint.clock()
    for _ in range(CLOCK_READINGS - 1):
        # Of a clock that is known without error there is nothing more to learn.
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
    """Set one window on all tenants; its start and end in ns of the node's clock.

    Tenant `last` gets it only when all others have taken it; `round_seconds` is how long all took to answer before.
    Raises TenantsFailed when one refuses too often.
    """
    endpoints = tenants.endpoints()
    # A tenant without a job is asked without one.
    work = [(count,) for count in jobs] if jobs else [()] * len(endpoints)
    lead_seconds = LEAD_SECONDS
    if not tenants.are_local:
        lead_seconds = min(REMOTE_LEAD_SECONDS, max(MIN_REMOTE_LEAD_SECONDS, REMOTE_ROUNDS * round_seconds))
    for attempt in range(ATTEMPTS):
        start_ns = tenants.now_ns() + int(lead_seconds * 2**attempt * NS)
        end_ns = start_ns + int(seconds * NS)

        def is_taken(index: int) -> bool:
            return endpoints[index].set_window(start_ns, end_ns, *work[index])  # noqa: B023

        first = [index for index in range(len(endpoints)) if index != last]
        taken = list(pool.map(is_taken, first))
        if all(taken) and (last is None or is_taken(last)):
            return start_ns, end_ns
        # Those that hold a window which others refused can take another once they have closed it.
        holders = [endpoints[index] for index, took in zip(first, taken, strict=True) if took]
        if holders:
            if not jobs:
                tenants.sleep_until(end_ns)
            patience = (record_seconds, seconds) if jobs else (record_seconds,)
            list(pool.map(lambda endpoint: endpoint.record(*patience), holders))  # noqa: B023
    raise TenantsFailed(f"a tenant did not take a window in {ATTEMPTS} attempts")


@contextlib.contextmanager
def stopping_sampler_on_failure(tenants: Tenants, sampler: Sampler, start_ns: int) -> Iterator[None]:
    """Stop a sampler of this host when a tenant dies in the window; one in a pod may have died with it."""
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
    """The records of jobs, each delivered when it is done or at its deadline; until then nothing is asked."""
    asked = [pool.submit(endpoint.record, record_seconds, seconds) for endpoint in tenants.endpoints()]
    while wait(asked, WATCH_SECONDS, FIRST_EXCEPTION).not_done and not any(_failed(each) for each in asked):
        # Raises when a tenant has died.
        tenants.sleep_until(tenants.now_ns() + NS // 1000)
    for each in asked:
        if _failed(each):
            each.result()
    return [each.result() for each in asked]


def _failed(asked: Future[TenantReport]) -> bool:
    return asked.done() and asked.exception() is not None


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
        # Only now does no tenant measure any more.
        digests = pool.map(lambda endpoint: endpoint.output_digest(record_seconds), endpoints)
        for record, digest in zip(records, digests, strict=True):
            record["output_digest"] = digest
    finally:
        # Not waited for: after a failure or an interrupt one of them may still ask a tenant that hangs.
        pool.shutdown(wait=False)
    return window_record(start_ns, end_ns, clocks), records, rows, summary


def window_record(start_ns: int, end_ns: int, clocks: Sequence[tuple[int, int, float]]) -> Window:
    """The record's `window`; `clocks` are the tenants'; the real time is that of the first."""
    monotonic_ns, realtime_ns, _ = clocks[0]
    to_epoch_ns = realtime_ns - monotonic_ns
    return {
        "start_monotonic_seconds": start_ns / NS,
        "end_monotonic_seconds": end_ns / NS,
        "start_epoch_seconds": (start_ns + to_epoch_ns) / NS,
        "end_epoch_seconds": (end_ns + to_epoch_ns) / NS,
        "clock_error_seconds": max(round_trip for _, _, round_trip in clocks) / 2,
    }
