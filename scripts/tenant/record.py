"""A tenant's record of one window: what GET /record answers, every quantity with its unit in the name."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from tenant import contract
from tenant.load import Load
from tenant.recorder import Stream, Tally, Window, quantile_seconds, to_sparse
from tenant.usage import CpuTime
from tenant.workload import DEVICE_TIME, Workload


@dataclass(frozen=True)
class Identity:
    """A tenant's number and name, the parts of its start-up before warm-up, and its view of the device.

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
class Outcome:
    """The rest of a window's record besides counts; CPU times are of the loop's first stop at or after its edges."""

    cpu_start: CpuTime | None = None
    cpu_end: CpuTime | None = None
    drain_begin_ns: int | None = None
    drain_seconds: float = 0.0
    censored: int = 0
    # Whether the deadline passed before all that belongs to the window had finished.
    is_cut_off: bool = False
    # Before the output is summed up, which may take more memory than the work.
    memory_bytes: int | None = None
    last_error: str | None = None


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _cpu(outcome: Outcome) -> contract.CpuUse | None:
    start, end = outcome.cpu_start, outcome.cpu_end
    if start is None or end is None:
        return None
    waits = start.run_queue_seconds, end.run_queue_seconds
    return {
        "cpu_seconds": end.cpu_seconds - start.cpu_seconds,
        "run_queue_seconds": None if waits[0] is None or waits[1] is None else waits[1] - waits[0],
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def finite(digest: Sequence[float]) -> contract.OutputDigest:
    """The digest with None for what JSON has no number for: NaN and infinity, the marks of a broken output."""
    return [value if math.isfinite(value) else None for value in digest]


def _p99_seconds(times: Tally) -> float | None:
    if not times.count:
        return None
    return min(quantile_seconds(times.counts, 0.99), times.max_ns / 1e9)


def _timed(tally: Tally) -> contract.TimedHistogram:
    return {"count": tally.count, "sum_seconds": tally.sum_ns / 1e9, "histogram": to_sparse(tally.counts)}


# Streams of tokens, as in the benchmarks of vLLM and AIPerf: TTFT is from the intended send to the first event with
# tokens, ITL the gap between two such events, TPOT the time from the first to the last over the number of tokens less
# one. They count by the intended send, output tokens by the moment at which they came.


def finished(window: Window) -> list[Stream]:
    """Those that belong to the window and have come to their end, in the order of their intended sends."""
    held = (each for each in window.streams if each.ended_ns is not None and window.holds(each.intended_ns))
    return sorted(held, key=lambda stream: stream.intended_ns)


def count(stream: Stream) -> int:
    """Its tokens: as the server counted them, or else one for each event."""
    return sum(stream.tokens) if stream.reported is None else stream.reported


def tpot_ns(stream: Stream) -> float | None:
    """None where nothing came after the first event or token."""
    tokens = count(stream)
    if tokens < 2 or len(stream.times_ns) < 2:
        return None
    return (stream.times_ns[-1] - stream.times_ns[0]) / (tokens - 1)


def stages(streams: Sequence[Stream]) -> dict[str, Tally]:
    times: dict[str, list[np.ndarray]] = {
        "ttft": [np.array([each.times_ns[0] - each.intended_ns for each in streams])],
        "itl": [np.diff(np.array(each.times_ns)) for each in streams],
        "tpot": [np.array([round(ns) for each in streams if (ns := tpot_ns(each)) is not None])],
    }
    found = {kind: Tally() for kind in times}
    for kind, pieces in times.items():
        if pieces:
            found[kind].add(np.concatenate(pieces).astype(np.int64))
    return found


def columns(streams: Sequence[Stream], start_ns: int) -> contract.RequestColumns:
    gaps = [np.diff(np.array(each.times_ns)) for each in streams]
    return {
        "start_seconds": [(each.intended_ns - start_ns) / 1e9 for each in streams],
        "ttft_seconds": [(each.times_ns[0] - each.intended_ns) / 1e9 for each in streams],
        "tpot_seconds": [None if (ns := tpot_ns(each)) is None else ns / 1e9 for each in streams],
        "itl_max_seconds": [int(each.max()) / 1e9 if each.size else None for each in gaps],
        "latency_seconds": [((each.ended_ns or 0) - each.intended_ns) / 1e9 for each in streams],
        "output_tokens": [count(each) for each in streams],
    }


def output_tokens(window: Window) -> contract.OutputTokens:
    """Tokens that came in the window, whenever their request was sent and whether or not its answer has ended.

    Where the server gave their number in the end only, all events of the answer have an equal part of it.
    """
    came = 0.0
    for stream in window.streams:
        times_ns, tokens = np.array(stream.times_ns), np.array(stream.tokens)
        if tokens.size:
            inside = tokens[(times_ns >= window.start_ns) & (times_ns < window.end_ns)].sum()
            came += float(inside) * count(stream) / float(tokens.sum())
    whole = [each for each in window.streams if each.ended_ns is not None]
    is_reported = bool(whole) and all(each.reported is not None for each in whole)
    return {"count": round(came), "source": "usage" if is_reported else "chunks"}


def tenant_record(
    identity: Identity,
    workload: Workload,
    load: Load,
    window: Window,
    outcome: Outcome,
    warm_up: tuple[float, float | None],
    steady: contract.Steadiness | None,
    job: contract.CompletedJob | None = None,
) -> contract.TenantReport:
    """The record of a window; `warm_up` is the time from loaded to steady, and to the end of the first iteration."""
    latencies = window.latencies
    window_ns = window.end_ns - window.start_ns
    # All tenants of a process do the same, so what it holds is theirs in equal parts.
    memory_bytes = workload.memory_bytes() if outcome.memory_bytes is None else outcome.memory_bytes
    timed = {kind: _timed(tally) for kind, tally in window.samples.items()}
    cpu = _cpu(outcome)
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
        "histogram": to_sparse(latencies.counts),
        "device_histogram": timed.pop(DEVICE_TIME, None),
        "stages": timed,
        "timeline": {
            "slot_seconds": window_ns / contract.TIMELINE_SLOTS / 1e9,
            "count": window.slot_count.tolist(),
            "sum_seconds": (window.slot_sum_ns / 1e9).tolist(),
            "max_seconds": (window.slot_max_ns / 1e9).tolist(),
        },
        "load": {
            "arrival": load.arrival,
            "planned_rate_hz": load.rate_hz,
            "achieved_rate_hz": latencies.count / (window_ns / 1e9),
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
        report["load"]["concurrency"] = load.most_in_flight
        report["generator"] = {
            "cpu_seconds": None if cpu is None else cpu["cpu_seconds"],
            "run_queue_seconds": None if cpu is None else cpu["run_queue_seconds"],
            "lateness_p99_seconds": _p99_seconds(window.lateness),
        }
    if workload.is_stream:
        good = finished(window)
        report["stages"] |= {kind: _timed(tally) for kind, tally in stages(good).items()}
        report["requests"] = columns(good, window.start_ns)
        report["output_tokens"] = output_tokens(window)
    return report
