"""A tenant's record of one window: what GET /record answers, every quantity with its unit in the name."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tenant import streams
from tenant.buckets import quantile_seconds, to_sparse
from tenant.contract import (
    SLOTS,
    CompletedJob,
    CpuUse,
    DeclaredWork,
    Digest,
    Steadiness,
    TenantReport,
    Timed,
    View,
    environment,
)
from tenant.load import Load
from tenant.recorder import Tally, Window
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
    view: View | None = None
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


def _cpu(outcome: Outcome) -> CpuUse | None:
    start, end = outcome.cpu_start, outcome.cpu_end
    if start is None or end is None:
        return None
    waits = start.run_queue_seconds, end.run_queue_seconds
    return {
        "cpu_seconds": end.cpu_seconds - start.cpu_seconds,
        "run_queue_seconds": None if waits[0] is None or waits[1] is None else waits[1] - waits[0],
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def finite(digest: Sequence[float]) -> Digest:
    """The digest with None for what JSON has no number for: NaN and infinity, the marks of a broken output."""
    return [value if math.isfinite(value) else None for value in digest]


def _p99_seconds(times: Tally) -> float | None:
    if not times.count:
        return None
    return min(quantile_seconds(times.counts, 0.99), times.max_ns / 1e9)


def _timed(tally: Tally) -> Timed:
    return {"count": tally.count, "sum_seconds": tally.sum_ns / 1e9, "histogram": to_sparse(tally.counts)}


def tenant_record(
    identity: Identity,
    workload: Workload,
    load: Load,
    window: Window,
    outcome: Outcome,
    warm_up: tuple[float, float | None],
    steady: Steadiness | None,
    job: CompletedJob | None = None,
) -> TenantReport:
    """The record of a window; `warm_up` is the time from loaded to steady, and to the end of the first iteration."""
    latencies = window.latencies
    window_ns = window.end_ns - window.start_ns
    # All tenants of a process do the same, so what it holds is theirs in equal parts.
    memory_bytes = workload.memory_bytes() if outcome.memory_bytes is None else outcome.memory_bytes
    timed = {kind: _timed(tally) for kind, tally in window.samples.items()}
    cpu = _cpu(outcome)
    report: TenantReport = {
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
            "slot_seconds": window_ns / SLOTS / 1e9,
            "count": window.slot_count,
            "sum_seconds": [ns / 1e9 for ns in window.slot_sum_ns],
            "max_seconds": [ns / 1e9 for ns in window.slot_max_ns],
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
        "work": cast(DeclaredWork, workload.work._asdict()),
        "environment": environment(workload.packages()),
    }
    if workload.is_client:
        report["load"]["concurrency"] = load.most_in_flight
        report["generator"] = {
            "cpu_seconds": None if cpu is None else cpu["cpu_seconds"],
            "run_queue_seconds": None if cpu is None else cpu["run_queue_seconds"],
            "lateness_p99_seconds": _p99_seconds(window.lateness),
        }
    if workload.is_stream:
        good = streams.finished(window)
        report["stages"] |= {kind: _timed(tally) for kind, tally in streams.stages(good).items()}
        report["requests"] = streams.requests(good, window.start_ns)
        report["output_tokens"] = streams.output_tokens(window)
    return report
