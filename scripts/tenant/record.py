"""Builds a tenant's record of one window, the answer to GET /record."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from tenant import contract
from tenant.load import Load
from tenant.recorder import Tally, TokenStream, Window, quantile_seconds, to_sparse
from tenant.usage import CpuTime
from tenant.workload import DEVICE_TIME, Workload


@dataclass(frozen=True)
class Identity:
    """A tenant's number and workload, the times of its start-up before warm-up, and its view of the device.

    `process_tenants` is the number of tenants in its process.
    """

    index: int
    name: str
    process_seconds: float
    import_seconds: float
    load_seconds: float
    context_seconds: float = 0.0
    view: contract.DeviceView | None = None
    process_tenants: int = 1


@dataclass
class WindowOutcome:
    """A window's results besides its counts; CPU times are read at the loop's first stop at or after each edge."""

    cpu_start: CpuTime | None = None
    cpu_end: CpuTime | None = None
    drain_begin_ns: int | None = None
    drain_seconds: float = 0.0
    censored: int = 0
    # Whether the deadline passed before all iterations of the window had finished.
    is_cut_off: bool = False
    # Read before the digest is computed, which may take more memory than the work.
    memory_bytes: int | None = None
    last_error: str | None = None


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _cpu_use(outcome: WindowOutcome) -> contract.CpuUse | None:
    start, end = outcome.cpu_start, outcome.cpu_end
    if start is None or end is None:
        return None
    waits = start.run_queue_seconds, end.run_queue_seconds
    return {
        "cpu_seconds": end.cpu_seconds - start.cpu_seconds,
        "run_queue_seconds": None if waits[0] is None or waits[1] is None else waits[1] - waits[0],
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def json_digest(digest: Sequence[float]) -> contract.OutputDigest:
    """Replace NaN and infinity, signs of a broken output that JSON cannot represent, by None."""
    return [value if math.isfinite(value) else None for value in digest]


def _p99_seconds(times: Tally) -> float | None:
    if not times.count:
        return None
    return min(quantile_seconds(times.counts, 0.99), times.max_ns / 1e9)


def _timed_histogram(tally: Tally) -> contract.TimedHistogram:
    return {"count": tally.count, "sum_seconds": tally.sum_ns / 1e9, "histogram": to_sparse(tally.counts)}


# Streams of tokens are measured as in the benchmarks of vLLM and AIPerf. TTFT is the time from the intended send to the
# first event with tokens, ITL the gap between two such events, and TPOT the time from the first to the last event over
# the number of tokens minus one. Streams count by their intended send, output tokens by their arrival.


def finished_streams(window: Window) -> list[TokenStream]:
    """Streams that were sent in the window and have ended, by ascending intended send."""
    ended = (stream for stream in window.streams if stream.ended_ns is not None)
    inside = (stream for stream in ended if window.contains(stream.intended_ns))
    return sorted(inside, key=lambda stream: stream.intended_ns)


def token_count(stream: TokenStream) -> int:
    """Number of tokens as the server counted them, or else of the events' tokens."""
    return sum(stream.tokens) if stream.reported is None else stream.reported


def tpot_ns(stream: TokenStream) -> float | None:
    """Time per output token after the first; None if there is no second event or token."""
    tokens = token_count(stream)
    if tokens < 2 or len(stream.times_ns) < 2:
        return None
    return (stream.times_ns[-1] - stream.times_ns[0]) / (tokens - 1)


def stream_stages(streams: Sequence[TokenStream]) -> dict[str, Tally]:
    times: dict[str, list[np.ndarray]] = {
        "ttft": [np.array([stream.times_ns[0] - stream.intended_ns for stream in streams])],
        "itl": [np.diff(np.array(stream.times_ns)) for stream in streams],
        "tpot": [np.array([round(ns) for stream in streams if (ns := tpot_ns(stream)) is not None])],
    }
    tallies = {kind: Tally() for kind in times}
    for kind, pieces in times.items():
        if pieces:
            tallies[kind].add(np.concatenate(pieces).astype(np.int64))
    return tallies


def request_columns(streams: Sequence[TokenStream], start_ns: int) -> contract.RequestColumns:
    gaps_ns = [np.diff(np.array(stream.times_ns)) for stream in streams]
    return {
        "start_seconds": [(stream.intended_ns - start_ns) / 1e9 for stream in streams],
        "ttft_seconds": [(stream.times_ns[0] - stream.intended_ns) / 1e9 for stream in streams],
        "tpot_seconds": [None if (ns := tpot_ns(stream)) is None else ns / 1e9 for stream in streams],
        "itl_max_seconds": [int(gaps.max()) / 1e9 if gaps.size else None for gaps in gaps_ns],
        "latency_seconds": [((stream.ended_ns or 0) - stream.intended_ns) / 1e9 for stream in streams],
        "output_tokens": [token_count(stream) for stream in streams],
    }


def output_tokens(window: Window) -> contract.OutputTokens:
    """Tokens that arrived in the window, no matter when their request was sent and whether its answer has ended.

    If the server reported only the total, the events of the answer get equal shares of it.
    """
    arrived = 0.0
    for stream in window.streams:
        times_ns, tokens = np.array(stream.times_ns), np.array(stream.tokens)
        if tokens.size:
            inside = tokens[(times_ns >= window.start_ns) & (times_ns < window.end_ns)].sum()
            arrived += float(inside) * token_count(stream) / float(tokens.sum())
    ended = [stream for stream in window.streams if stream.ended_ns is not None]
    reported = [(stream.reported, sum(stream.tokens)) for stream in ended if stream.reported is not None]
    found: contract.OutputTokens = {"count": round(arrived), "source": "chunks"}
    if reported:
        found["source"] = "usage" if len(reported) == len(ended) else "chunks"
        found["reported"], found["counted"] = map(sum, zip(*reported, strict=True))
    return found


def tenant_record(
    identity: Identity,
    workload: Workload,
    load: Load,
    window: Window,
    outcome: WindowOutcome,
    warm_up: tuple[float, float | None],
    steady: contract.Steadiness | None,
    job: contract.CompletedJob | None = None,
) -> contract.TenantReport:
    """Build the record; `warm_up` has the seconds from loaded to steady, and to the end of the first iteration."""
    latencies = window.latencies
    window_ns = window.end_ns - window.start_ns
    # All tenants of a process do the same work, so each is charged an equal part of its memory.
    memory_bytes = workload.memory_bytes() if outcome.memory_bytes is None else outcome.memory_bytes
    stages = {kind: _timed_histogram(tally) for kind, tally in window.samples.items()}
    cpu = _cpu_use(outcome)
    report: contract.TenantReport = {
        "index": identity.index,
        "workload": identity.name,
        "view": identity.view,
        "startup": {
            "process_seconds": identity.process_seconds,
            "import_seconds": identity.import_seconds,
            "context_seconds": identity.context_seconds,
            "load_seconds": identity.load_seconds,
            "warmup_seconds": warm_up[0],
            "first_iteration_seconds": warm_up[1],
        },
        "steady": steady,
        "count": latencies.count,
        "sum_seconds": latencies.sum_ns / 1e9,
        "sum_squares_seconds2": latencies.sum_squares_ns2 / 1e18,
        "min_seconds": _seconds(latencies.min_ns),
        "max_seconds": _seconds(latencies.max_ns) if latencies.count else None,
        "errors": window.errors,
        "last_error": outcome.last_error if window.errors else None,
        "errors_by_reason": dict(window.reasons.most_common()),
        "histogram": to_sparse(latencies.counts),
        "device_histogram": stages.pop(DEVICE_TIME, None),
        "stages": stages,
        "timeline": {
            "slot_seconds": window_ns / contract.TIMELINE_SLOTS / 1e9,
            "count": window.slot_count.tolist(),
            "sum_seconds": (window.slot_sum_ns / 1e9).tolist(),
            "max_seconds": (window.slot_max_ns / 1e9).tolist(),
            "errors": window.slot_errors.tolist(),
        },
        "load": {
            "arrival": load.arrival,
            "planned_rate_hz": load.rate_hz,
            "achieved_rate_hz": latencies.count / (window_ns / 1e9),
            "served_rate_hz": window.served / (window_ns / 1e9),
            "delay_p99_seconds": None if load.rate_hz is None else _p99_seconds(window.delays),
            "in_flight_mean": window.in_flight_ns / window_ns,
            "drops": window.drops,
            "censored": outcome.censored,
        },
        "job": job,
        "coverage_ratio": window.active_ns / window_ns,
        "drain_seconds": outcome.drain_seconds,
        "cpu": cpu,
        "memory_bytes": None if memory_bytes is None else memory_bytes // identity.process_tenants,
        "work": cast(contract.DeclaredWork, workload.work._asdict()),
        "environment": contract.environment(workload.packages()),
    }
    if workload.is_client:
        report["load"]["concurrency"] = load.max_in_flight
        report["generator"] = {
            "cpu_seconds": None if cpu is None else cpu["cpu_seconds"],
            "run_queue_seconds": None if cpu is None else cpu["run_queue_seconds"],
            "lateness_p99_seconds": _p99_seconds(window.lateness),
            "connections": window.connections,
        }
    if workload.is_stream:
        streams = finished_streams(window)
        report["stages"] |= {kind: _timed_histogram(tally) for kind, tally in stream_stages(streams).items()}
        report["requests"] = request_columns(streams, window.start_ns)
        report["output_tokens"] = output_tokens(window)
    return report
