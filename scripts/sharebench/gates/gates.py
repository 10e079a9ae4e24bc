"""Gates: the automatic checks of a finished cell.

A failed `invalid` gate keeps the cell out of every mean; a failed `warning` gate marks it. Every measuring
job starts this module, so it imports nothing heavy (no numpy, no pandas).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from sharebench.core.spec import parse, reference, workload_of
from sharebench.gates import drift, gpu, load, programs, prometheus
from sharebench.gates.verdict import (
    UNKNOWN,
    Verdict,
    at_most,
    load_of,
    telemetry_of,
    window_of,
    window_seconds,
    worst_of,
)
from sharebench.records.types import CellRecord, GateVerdict, TenantRecord
from tenant.contract import upper_seconds

# A tenant that is idle for more of the window lets its neighbours look faster than they are.
COVERAGE_RATIO = 0.95
# One iteration may be in flight when the window ends, and a synchronise then takes part of it; more than two
# means that work was queued on the device, and that the latencies are those of the queue's entrance.
DRAIN_ITERATIONS = 2.0
# A call that waits for nothing may take so long, and what could hide in it is nothing beside any window.
DRAIN_SECONDS = 1e-4
# A few percent are usual on shared hosts; more of it and the hypervisor is one of the tenants.
STEAL_PERCENT = 5.0
STEAL_VARIABLE = "SHAREBENCH_STEAL_PERCENT"
"""Environment variable with another limit, which records then name."""
# A cgroup quota stops tenants for tens of milliseconds at a time, so even a small share makes the tail.
THROTTLED_PERCENT = 1.0
# Whether an iteration that is longer than the window begins in it is chance, and tenants without one are left out:
# those that are left would seem twice as fast, or more. Half the window is far enough from that.
ITERATION_RATIO = 0.5
# The tenants' windows may be shifted against each other by no more than this share of their length.
CLOCK_RATIO = 0.01
# One iteration that takes so much of the window, and so many times what others take, is not like them: the mean is
# longer by as much, and the neighbours had the device to themselves meanwhile.
STALL_RATIO = 0.05
STALL_MEDIANS = 10.0
# More than that and the measurement is also one of other programs.
FOREIGN_PERCENT = 10.0
# A fault in mid-window is a change of the window, and the CPU time of a process that has died is nobody's.
NOT_BESIDE_A_FAULT = ("window_length", "drift", "level_shift", "stall", "foreign_cpu", "queue_growth")

Check = Callable[[CellRecord], Verdict | None]


def is_valid(record: CellRecord | Mapping[str, Any]) -> bool:
    """Whether the cell counts: status `ok` and no failed `invalid` gate."""
    broken = any(gate["severity"] == "invalid" and not gate["passed"] for gate in record["gates"])
    return record["status"] == "ok" and not broken


def evaluate(record: CellRecord) -> list[GateVerdict]:
    """The record's `gates`: one entry per check that applies to a cell of its kind.

    A cell whose status is not `ok` is in no mean anyway and gets none. What this kind of node cannot know
    (CPU steal on macOS) passes with the value None and a message that says so. Where a tenant goes wrong on purpose,
    only its victims are judged.
    """
    if record["status"] != "ok":
        return []
    skipped: tuple[str, ...] = ()
    if (fault := record.get("fault")) is not None:
        skipped = NOT_BESIDE_A_FAULT
        victims = [each for each in record["tenants"] if each["index"] != fault["aggressor"]]
        record = {**record, "tenants": victims}
    return [
        *_verdicts(record, "invalid", INVALID, skipped),
        *_verdicts(record, "warning", WARNING, skipped),
    ]


def _verdicts(
    record: CellRecord, severity: Literal["invalid", "warning"], checks: Mapping[str, Check], skipped: tuple[str, ...]
) -> Iterator[GateVerdict]:
    for name, check in checks.items():
        verdict = None if name in skipped else check(record)
        if verdict is not None:
            is_quiet = verdict.passed and verdict.value is not None
            yield {
                "name": name,
                "severity": severity,
                "value": verdict.value,
                "limit": verdict.limit,
                "passed": verdict.passed,
                "message": "" if is_quiet else verdict.message,
            }


def _evidence(record: CellRecord) -> Verdict | None:
    broken = [item for item in record["evidence"] if not item["holds"]]
    if not record["evidence"] and programs.are_all_elsewhere(record):
        return None
    if not record["evidence"]:
        return Verdict(None, 0, False, "nothing proves that the strategy was in force")
    first = broken[0] if broken else record["evidence"][0]
    seen = f"expected {first['expected']}, observed {first['observed']}"
    return at_most(len(broken), 0, f"{first['name']} ({first['source']}): {seen}")


def _window_coverage(record: CellRecord) -> Verdict:
    worst = min(record["tenants"], key=lambda tenant: tenant["coverage_ratio"])
    value = worst["coverage_ratio"]
    message = f"tenant {worst['index']} ran in only {value:.1%} of the window"
    return Verdict(value, COVERAGE_RATIO, value >= COVERAGE_RATIO, message)


def _window_length(record: CellRecord) -> Verdict | None:
    seconds = window_seconds(record)
    judged = [
        (tenant["sum_seconds"] / tenant["count"] / seconds, ITERATION_RATIO, tenant["index"])
        for tenant in record["tenants"]
        # A job ends its window itself.
        if load_of(tenant)["arrival"] == "closed" and tenant["count"] and not tenant.get("job")
    ]
    worst = worst_of(judged)
    if worst is None:
        return None
    value, limit, culprit = worst
    message = f"an iteration of tenant {culprit} takes {value:.0%} of the window; set a longer one (window_seconds)"
    return at_most(value, limit, message)


def _nothing_finished(record: CellRecord) -> Verdict:
    """Tenants without a latency: they are in no mean, so that the others would stand for them."""
    idle = [tenant for tenant in record["tenants"] if not tenant["count"]]
    if not idle:
        return Verdict(0, 0, True, "")
    tenant = idle[0]
    what = "request" if tenant.get("measured_by") == "client" else "iteration"
    if tenant["errors"]:
        last = f", the last with {tenant['last_error']}" if tenant.get("last_error") else ""
        why = f"all of {tenant['errors']} {what}s failed{last}"
    else:
        seconds = window_seconds(record)
        why = f"no {what} began in the window of {seconds:g} s and ended; set a longer one (window_seconds)"
    return at_most(len(idle), 0, f"tenant {tenant['index']}: {why}")


def _output_digest(record: CellRecord) -> Verdict | None:
    spec = parse(record["spec"])
    judged = []
    for index, tenant in enumerate(record["tenants"]):
        if programs.is_program(tenant):
            continue
        tolerance: float = workload_of(spec, index)["output_tolerance"]
        alone = reference(record["calibration"], tenant["workload"]).get("output_digest")
        if not alone:
            return Verdict(None, tolerance, False, "there is no digest of the output that the workload has alone")
        digest = tenant["output_digest"] or []
        if len(digest) != len(alone):
            message = f"tenant {tenant['index']} gave {len(digest)} of {len(alone)} numbers of its output"
            return Verdict(None, tolerance, False, message)
        known = [value for value in digest if value is not None]
        if len(known) < len(digest):
            message = f"the output of tenant {tenant['index']} is no number any more (NaN or infinite)"
            return Verdict(None, tolerance, False, message)
        deviation = max(_relative(seen, wanted) for seen, wanted in zip(known, alone, strict=True))
        judged.append((deviation, tolerance, tenant["index"]))
    if not judged:
        return None
    # Tenants of a mix have tolerances of their own: the one that exceeds its own decides.
    worst, tolerance, culprit = max(judged, key=lambda each: (each[0] > each[1], each[0] / (each[1] or 1.0)))
    return at_most(worst, tolerance, f"tenant {culprit} computed something else than the workload alone")


def _relative(seen: float, wanted: float) -> float:
    scale = max(abs(seen), abs(wanted))
    return abs(seen - wanted) / scale if scale else 0.0


def _drained_queue(record: CellRecord) -> Verdict | None:
    worst, culprit = 0.0, None
    spec = parse(record["spec"])
    # Streams are threads of one process: when the window ends, each may first let all others have their turn. How long
    # that takes at the interpreter, where a turn may be many short iterations, its own slowest one shows.
    is_stream = spec["strategy"]["mechanisms"][-1] == "streams"
    limit = DRAIN_ITERATIONS * (len(record["tenants"]) if is_stream else 1)
    own = [tenant for tenant in record["tenants"] if not programs.is_program(tenant)]
    if not own:
        return None
    for tenant in own:
        median = _median_seconds(tenant)
        if median is None:
            continue
        nothing_seconds = max(DRAIN_SECONDS, (tenant["max_seconds"] or 0.0) if is_stream else 0.0)
        if tenant["drain_seconds"] > nothing_seconds and tenant["drain_seconds"] / median > worst:
            worst, culprit = tenant["drain_seconds"] / median, tenant["index"]
    return at_most(worst, limit, f"tenant {culprit} left {worst:.1f} iterations on the device")


def _median_seconds(tenant: TenantRecord) -> float | None:
    """Upper bound of the bucket that holds the median."""
    seen = 0
    for index in sorted(map(int, tenant["histogram"])):
        seen += tenant["histogram"][str(index)]
        if 2 * seen >= tenant["count"]:
            return upper_seconds(index)
    return None


def _at_most_percent(value: float | None, limit_percent: float, what: str) -> Verdict:
    if value is None:
        return Verdict(None, limit_percent, True, UNKNOWN)
    return at_most(value, limit_percent, f"{value:.1f} % {what}")


def _cpu_stolen(record: CellRecord) -> Verdict:
    value = telemetry_of(record)["host_steal_percent"]
    limit_percent = float(os.environ.get(STEAL_VARIABLE, STEAL_PERCENT))
    return _at_most_percent(value, limit_percent, "of all CPU time went to a hypervisor")


def _cpu_throttled(record: CellRecord) -> Verdict:
    value = telemetry_of(record)["host_throttled_percent"]
    return _at_most_percent(value, THROTTLED_PERCENT, "of the window a CPU quota held the tenants back")


def _foreign_cpu(record: CellRecord) -> Verdict:
    value = telemetry_of(record)["foreign_cpu_percent"]
    return _at_most_percent(value, FOREIGN_PERCENT, "of all CPU time went to others")


def _clock_error(record: CellRecord) -> Verdict:
    value = window_of(record)["clock_error_seconds"] / window_seconds(record)
    return at_most(value, CLOCK_RATIO, f"the window's ends are uncertain by {value:.1%} of its length")


def _errors(record: CellRecord) -> Verdict:
    value = sum(tenant["errors"] for tenant in record["tenants"])
    return at_most(value, 0, f"{value} iterations failed")


def _steady(record: CellRecord) -> Verdict:
    never = [
        tenant["index"] for tenant in record["tenants"] if tenant["steady"] is None or not tenant["steady"]["is_steady"]
    ]
    return at_most(len(never), 0, f"never became steady: tenants {', '.join(map(str, never))}")


def _censored(record: CellRecord) -> Verdict:
    value = sum(load_of(tenant)["censored"] for tenant in record["tenants"])
    return at_most(value, 0, f"{value} iterations had not finished at the deadline")


def _stall(record: CellRecord) -> Verdict | None:
    judged = []
    for tenant in record["tenants"]:
        median, longest, timeline = _median_seconds(tenant), tenant["max_seconds"], tenant["timeline"]
        if median is not None and longest is not None and timeline is not None:
            # Of a job, its own run.
            seconds = timeline["slot_seconds"] * len(timeline["count"])
            value = longest / seconds if longest > STALL_MEDIANS * median else 0.0
            judged.append((value, STALL_RATIO, tenant["index"]))
    worst = worst_of(judged)
    if worst is None:
        return None
    value, limit, culprit = worst
    return at_most(value, limit, f"one iteration of tenant {culprit} took {value:.0%} of the window")


INVALID: dict[str, Check] = {
    "evidence": _evidence,
    "window_coverage": _window_coverage,
    "window_length": _window_length,
    "nothing_finished": _nothing_finished,
    "output_digest": _output_digest,
    "drained_queue": _drained_queue,
    "cpu_stolen": _cpu_stolen,
    "cpu_throttled": _cpu_throttled,
    "clock_error": _clock_error,
    "gpu_slowdown": gpu.gpu_slowdown,
    "foreign_process": gpu.foreign_process,
    "cpu_contention": gpu.cpu_contention,
    "speed_of_light": gpu.speed_of_light,
    "queue_growth": load.queue_growth,
    "censored": _censored,
    "scrape_error": programs.scrape_error,
    "generator_bound": programs.generator_bound,
}
WARNING: dict[str, Check] = {
    "errors": _errors,
    "steady": _steady,
    "drift": drift.drift,
    "level_shift": drift.level_shift,
    "stall": _stall,
    "foreign_cpu": _foreign_cpu,
    "power_cap": gpu.power_cap,
    "clock_variation": gpu.clock_variation,
    "temperature_rising": gpu.temperature_rising,
    "littles_law": load.littles_law,
    "load_achieved": load.load_achieved,
    "generator_cost": programs.generator_cost,
    "server_elsewhere": programs.server_elsewhere,
    "prometheus_counts": prometheus.prometheus_counts,
    "prometheus_scrapes": prometheus.prometheus_scrapes,
}
