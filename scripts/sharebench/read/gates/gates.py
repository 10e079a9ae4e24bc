"""Gates: the automatic checks of a finished cell.

A failed `invalid` gate keeps the cell out of every mean; a failed `warning` gate marks it. Records are judged whenever
they are read.
"""

import os
from collections import Counter
from pathlib import Path

from sharebench.model.records.record import read, window_seconds
from sharebench.model.records.types import CellRecord, GateVerdict, Record, TenantRecord
from sharebench.model.spec import parse_spec, workload_reference
from sharebench.read.gates import answers, drift, gpu, load, programs, prometheus
from sharebench.read.gates.verdict import (
    Check,
    Judged,
    Verdict,
    at_most,
    at_most_if_known,
    is_closed_loop,
    judge_tenants,
    load_of,
    telemetry_of,
    window_of,
)
from sharebench.read.gates.whole import check_whole
from sharebench.read.histogram import Histogram

# A tenant that is idle for longer makes its neighbours look faster than they are.
COVERAGE_RATIO = 0.95
# One iteration may be in flight when the window ends, and synchronising then takes part of it. More than two mean that
# work was queued on the device, so that the latencies are those of enqueuing.
DRAIN_ITERATIONS = 2.0
# Synchronising an idle device may take this long, which is negligible in any window.
DRAIN_SECONDS = 1e-4
# A few percent are usual on shared hosts; with more, the hypervisor is one of the tenants.
STEAL_PERCENT = 5.0
STEAL_VARIABLE = "SHAREBENCH_STEAL_PERCENT"
"""Environment variable with another limit, which the records then show."""
# A cgroup quota stops tenants for tens of milliseconds at a time, so even a small share dominates the tail.
THROTTLED_PERCENT = 1.0
# It is chance whether an iteration longer than the window begins in it. Tenants without one are in no mean, so that the
# others would seem at least twice as fast. Half the window is far enough from that.
ITERATION_RATIO = 0.5
# If more iterations fail, the 95th percentile of all that began is unknown.
FAILED_RATIO = 0.05
# The windows of the tenants may be shifted against each other by this share of their length.
CLOCK_RATIO = 0.01
# An iteration that takes this share of the window and this multiple of the median is an outlier: it distorts the mean,
# and the neighbours had the device to themselves meanwhile.
STALL_RATIO = 0.05
STALL_MEDIANS = 10.0
# With more foreign CPU time the cell also measures other programs.
FOREIGN_PERCENT = 10.0
# Conditions of the run that gave a capacity, of which a cell's load is a share: beyond these, the rate is of no known
# share. Between its halves a change counts beyond noise only.
CAPACITY_LIMITS = {
    "halves_change_ratio": drift.DRIFT_RATIO,
    "foreign_processes": 0,
    "gpu_slowdown_percent": gpu.SLOWDOWN_PERCENT,
    "cpu_throttled_percent": THROTTLED_PERCENT,
}
# Programs that run to their end have no iterations and no common window, so these gates skip them.
ITERATION_GATES = ("window_coverage", "censored", "errors", "steady", "drift")
# A fault in mid-window changes the window, and the CPU time of a dead process is lost, so these gates skip such cells.
FAULT_EXEMPT_GATES = (
    "window_length",
    "reported_mean",
    "drift",
    "level_shift",
    "stall",
    "foreign_cpu",
    "queue_growth",
    "failed_share",
)


def is_valid(record: Record) -> bool:
    """Whether the cell has the status `ok` and no failed `invalid` gate."""
    has_failed = any(gate["severity"] == "invalid" and not gate["passed"] for gate in record["gates"])
    return record["status"] == "ok" and not has_failed


def read_judged(path: Path) -> Record:
    """The record in the file with today's verdicts, in place of its own.

    Raises RecordError as `record.read` does, and for a record that contradicts its spec or its path.
    """
    stored = read(path)
    check_whole(path, stored)
    return {**stored, "gates": evaluate(stored)}


def evaluate(record: CellRecord) -> list[GateVerdict]:
    """The verdicts on a record: one entry per gate that applies to the cell; none for a cell whose status is not `ok`.

    A value that this kind of node cannot know is None and passes. In a cell with a fault only the victims are judged.
    """
    if record["status"] != "ok":
        return []
    skipped: tuple[str, ...] = ()
    if (fault := record.get("fault")) is not None:
        skipped = FAULT_EXEMPT_GATES
        victims = [tenant for tenant in record["tenants"] if tenant["index"] != fault["aggressor"]]
        record = {**record, "tenants": victims}
    tenants = [tenant for tenant in record["tenants"] if tenant.get("measured_by") != "exit"]
    iterating: CellRecord = {**record, "tenants": tenants}
    skipped += () if tenants else ITERATION_GATES
    verdicts: list[GateVerdict] = []
    for name, check in (INVALID | WARNING).items():
        judged = iterating if name in ITERATION_GATES else record
        if name in skipped or (verdict := check(judged)) is None:
            continue
        is_quiet = verdict.passed and verdict.value is not None
        verdicts.append(
            {
                "name": name,
                "severity": "invalid" if name in INVALID else "warning",
                "value": verdict.value,
                "limit": verdict.limit,
                "passed": verdict.passed,
                "message": "" if is_quiet else verdict.message,
            }
        )
    return verdicts


def _evidence(record: CellRecord) -> Verdict | None:
    if not record["evidence"]:
        is_expected = not programs.has_only_external_servers(record)
        return Verdict(None, 0, False, "nothing proves that the strategy was active") if is_expected else None
    refuted = [item for item in record["evidence"] if not item["holds"]]
    first = (refuted or record["evidence"])[0]
    message = f"{first['name']} ({first['source']}): expected {first['expected']}, observed {first['observed']}"
    return at_most(len(refuted), 0, message)


def _window_coverage(record: CellRecord) -> Verdict:
    worst = min(record["tenants"], key=lambda tenant: tenant["coverage_ratio"])
    value = worst["coverage_ratio"]
    message = f"tenant {worst['index']} ran in only {value:.1%} of the window"
    return Verdict(value, COVERAGE_RATIO, value >= COVERAGE_RATIO, message)


@judge_tenants(
    "an iteration of tenant {tenant} takes {value:.0%} of the window; set a longer one (window_seconds)",
    of=is_closed_loop,
)
def _window_length(record: CellRecord, tenant: TenantRecord) -> Judged:
    count = tenant["count"]
    return (tenant["sum_seconds"] / count / window_seconds(record), ITERATION_RATIO) if count else None


def _nothing_finished(record: CellRecord) -> Verdict:
    """Number of tenants without a latency, which are in no mean, so that the others would represent them."""
    idle = [tenant for tenant in record["tenants"] if not tenant["count"]]
    if not idle:
        return Verdict(0, 0, True, "")
    tenant = idle[0]
    unit = "request" if tenant.get("measured_by") == "client" else "iteration"
    if tenant["errors"]:
        reason = f"all of {tenant['errors']} {unit}s failed{_reasons(tenant)}"
    elif unit == "request" and (unanswered := load_of(tenant)["censored"]):
        reason = f"none of {unanswered} requests was answered in time; the server is silent, or too slow for this load"
    else:
        seconds = window_seconds(record)
        reason = f"no {unit} began in the window of {seconds:g} s and ended; set a longer one (window_seconds)"
    return at_most(len(idle), 0, f"tenant {tenant['index']}: {reason}")


def _failed_share(record: CellRecord) -> Verdict | None:
    """Share of a tenant's iterations that failed: they have no latency, and the others may be the quick ones."""
    spec = parse_spec(record["spec"])
    judged = [
        (
            tenant["errors"] / (tenant["errors"] + tenant["count"]),
            spec.workloads[tenant["index"]].failed_percent / 100,
            tenant,
        )
        for tenant in record["tenants"]
        if tenant["errors"]
    ]
    if not judged:
        return Verdict(0, FAILED_RATIO, True, "")
    value, limit, tenant = max(judged, key=lambda each: each[0] - each[1])
    message = f"{value:.1%} of what tenant {tenant['index']} began failed, and has no latency{_reasons(tenant)}"
    remedy = ", above the workload's failed_percent" if tenant.get("measured_by") == "client" else ""
    return at_most(value, limit, message + remedy)


def _reasons(*tenants: TenantRecord) -> str:
    """Why iterations failed, as the end of a sentence, the most frequent reason first; empty if no record has one."""
    counts: Counter[str] = Counter()
    for tenant in tenants:
        counts.update(tenant.get("errors_by_reason", {}))
    last = next((text for tenant in tenants if (text := tenant.get("last_error"))), None)
    if counts:
        return ": " + ", ".join(f"{reason} ({count})" for reason, count in counts.most_common())
    return f", the last with {last}" if last else ""


def _output_digest(record: CellRecord) -> Verdict | None:
    spec = parse_spec(record["spec"])
    judged = []
    for index, tenant in enumerate(record["tenants"]):
        if programs.is_program(tenant):
            continue
        tolerance: float = spec.workloads[index].output_tolerance
        alone = workload_reference(record["calibration"], tenant["workload"]).get("output_digest")
        if not alone:
            return Verdict(None, tolerance, False, "there is no digest of the output that the workload has alone")
        digest = tenant["output_digest"] or []
        if len(digest) != len(alone):
            message = f"tenant {tenant['index']} gave {len(digest)} of {len(alone)} numbers of its output"
            return Verdict(None, tolerance, False, message)
        known = [value for value in digest if value is not None]
        if len(known) < len(digest):
            message = f"the output of tenant {tenant['index']} is not a number any more (NaN or infinite)"
            return Verdict(None, tolerance, False, message)
        deviation = max(abs(a - b) / (max(abs(a), abs(b)) or 1.0) for a, b in zip(known, alone, strict=True))
        judged.append((deviation, tolerance, tenant["index"]))
    if not judged:
        return None
    # Tenants of a mix have different tolerances, so a tenant that exceeds its own is worst.
    worst, tolerance, culprit = max(judged, key=lambda each: (each[0] > each[1], each[0] / (each[1] or 1.0)))
    return at_most(worst, tolerance, f"tenant {culprit} computed something else than the workload alone")


@judge_tenants(
    "tenant {tenant} left {value:.1f} iterations on the device", of=lambda tenant: not programs.is_program(tenant)
)
def _drained_queue(record: CellRecord, tenant: TenantRecord) -> tuple[float, float]:
    # Streams are threads of one process, so that each may wait for all others when the window ends. How long the
    # interpreter lets another thread run many short iterations shows in the tenant's own slowest iteration.
    is_stream = parse_spec(record["spec"]).strategy.is_one_process
    negligible_seconds = max(DRAIN_SECONDS, (tenant["max_seconds"] or 0.0) if is_stream else 0.0)
    median, seconds = _median_seconds(tenant), tenant["drain_seconds"]
    iterations = seconds / median if median is not None and seconds > negligible_seconds else 0.0
    return iterations, DRAIN_ITERATIONS * (len(record["tenants"]) if is_stream else 1)


def _median_seconds(tenant: TenantRecord) -> float | None:
    """Upper bound of the bucket that holds the median."""
    histogram = Histogram.from_sparse(tenant["histogram"])
    return histogram.quantiles([0.5])[0].high_seconds if histogram.count else None


def _cpu_stolen(record: CellRecord) -> Verdict:
    message = "{:.1f} % of all CPU time went to a hypervisor"
    return at_most_if_known(telemetry_of(record)["host_steal_percent"], _steal_limit_percent(), message)


def _steal_limit_percent() -> float:
    return float(os.environ.get(STEAL_VARIABLE, STEAL_PERCENT))


def _cpu_throttled(record: CellRecord) -> Verdict:
    message = "{:.1f} % of the window a CPU quota held the tenants back"
    return at_most_if_known(telemetry_of(record)["host_throttled_percent"], THROTTLED_PERCENT, message)


def _foreign_cpu(record: CellRecord) -> Verdict:
    message = "{:.1f} % of all CPU time went to others"
    return at_most_if_known(telemetry_of(record)["foreign_cpu_percent"], FOREIGN_PERCENT, message)


def _capacity(record: CellRecord) -> Verdict | None:
    """Number of conditions that disturbed the run whose capacity sets a tenant's rate."""
    names = dict.fromkeys(tenant["workload"] for tenant in record["tenants"])
    found = {name: workload_reference(record["calibration"], name).get("conditions") for name in names}
    known = {name: conditions for name, conditions in found.items() if conditions}
    if not known:
        return None
    limits = CAPACITY_LIMITS | {"cpu_steal_percent": _steal_limit_percent()}
    exceeded = [
        (name, condition, value)
        for name, conditions in known.items()
        for condition, value in conditions.items()
        if value is not None and value > limits[condition]
    ]
    if not exceeded:
        return Verdict(0, 0, True, "")
    name, condition, value = exceeded[0]
    limit = limits[condition]
    message = f"the capacity of {name} was measured with {condition} {value:.3g}, over {limit:g}; re-measure calibrate"
    return at_most(len(exceeded), 0, message)


def _clock_error(record: CellRecord) -> Verdict:
    value = window_of(record)["clock_error_seconds"] / window_seconds(record)
    return at_most(value, CLOCK_RATIO, f"the window's ends are uncertain by {value:.1%} of its length")


def _errors(record: CellRecord) -> Verdict:
    value = sum(tenant["errors"] for tenant in record["tenants"])
    return at_most(value, 0, f"{value} iterations failed{_reasons(*record['tenants'])}")


def _steady(record: CellRecord) -> Verdict:
    unsteady = [
        tenant["index"] for tenant in record["tenants"] if tenant["steady"] is None or not tenant["steady"]["is_steady"]
    ]
    return at_most(len(unsteady), 0, f"never became steady: tenants {', '.join(map(str, unsteady))}")


def _censored(record: CellRecord) -> Verdict:
    seconds = window_seconds(record)
    value = sum(load_of(tenant)["censored"] + load.hung_requests(tenant, seconds) for tenant in record["tenants"])
    return at_most(value, 0, f"{value} iterations had not finished at the deadline")


@judge_tenants("one iteration of tenant {tenant} took {value:.0%} of the window")
def _stall(_: CellRecord, tenant: TenantRecord) -> Judged:
    median, longest, timeline = _median_seconds(tenant), tenant["max_seconds"], tenant["timeline"]
    if median is None or longest is None or timeline is None:
        return None
    # The timeline of a job covers its own run.
    seconds = timeline["slot_seconds"] * len(timeline["count"])
    return longest / seconds if longest > STALL_MEDIANS * median else 0.0, STALL_RATIO


def _by_name(*checks: Check) -> dict[str, Check]:
    return {check.__name__.lstrip("_"): check for check in checks}


# Each gate is a function with its name; records list the gates in this order.
MACHINE = _by_name(_cpu_stolen, _cpu_throttled, _clock_error, gpu.gpu_slowdown, gpu.foreign_process, gpu.cpu_contention)
"""Gates that fail where a time says more of the machine, or of a pod's limits, than of a strategy."""
INVALID = _by_name(
    _evidence,
    _window_coverage,
    _window_length,
    _nothing_finished,
    _failed_share,
    _output_digest,
    answers.answers,
    _drained_queue,
    *MACHINE.values(),
    gpu.speed_of_light,
    load.queue_growth,
    _censored,
    programs.scrape_error,
    programs.reported_mean,
    programs.generator_bound,
    load.generator_late,
    _capacity,
)
WARNING = _by_name(
    _errors,
    _steady,
    drift.drift,
    drift.level_shift,
    _stall,
    _foreign_cpu,
    gpu.power_cap,
    gpu.clock_variation,
    gpu.temperature_rising,
    load.littles_law,
    load.load_achieved,
    load.outage,
    programs.new_connections,
    programs.generator_cost,
    programs.generator_gap,
    programs.token_count,
    programs.server_elsewhere,
    programs.left_running,
    prometheus.prometheus_counts,
    prometheus.prometheus_scrapes,
)
