"""Calibration: a workload runs alone for a short window, which gives its capacity and reference output."""

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import variance
from typing import TypedDict

from sharebench.measure.cell.cell import MeasuredCell
from sharebench.measure.nodes.node import Node
from sharebench.model.records.telemetry import SLOWDOWNS, UNKNOWN_TELEMETRY
from sharebench.model.records.types import Conditions, TenantRecord
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Workload
from tenant.contract import Answer, Timeline

# A disturbance (a burst of steal, a throttled CPU) is usually over a second later.
ATTEMPTS = 3
# A run is repeated if a condition exceeds its value here. Reading judges the last run by limits of its own.
QUIET = {
    "halves_change_ratio": 0.1,
    "foreign_processes": 0,
    "gpu_slowdown_percent": 1.0,
    "cpu_throttled_percent": 1.0,
}
# The scatter of this number of parts of each half separates a change from noise.
PARTS = 5
NOISE_DEVIATIONS = 5.0


class CalibrationError(Exception):
    """The workload has no reference; the message is one line."""


def pick_strategy(strategies: Mapping[str, Strategy], asked: Iterable[str], node: Node, workload: Workload) -> Strategy:
    """The strategy that gives one tenant most of the device: exclusive, or in MIG mode the largest `asked` instance.

    `strategies` is the whole catalogue.
    """
    candidates = (strategies[name] for name in strategies if name in set(asked))
    # Another access may give the whole device where that of `exclusive` is missing.
    by_size = sorted(candidates, key=lambda each: (each.mechanism == ("exclusive",), each.tenant_slices()))
    options = [strategies["exclusive"], *reversed(by_size)]
    return next((each for each in options if node.infeasible(each, 1, [workload]) is None), options[0])


def reference_answers(workload: Workload, tenant: TenantRecord) -> list[list[Answer]] | None:
    """The answers that a server gives alone, by when it was asked; None where they cannot be compared.

    Raises CalibrationError where `answers: true` asks for them.
    """
    mode, asked = workload.answers, tenant.get("answers", [])
    if mode is False or tenant.get("measured_by") != "client":
        return None
    answers = [answer for answers in asked for answer in answers]
    if answers and all(answer["logprobs"] and None not in answer["logprobs"] for answer in answers):
        return asked
    statuses = sorted({str(answer["status"]) for answer in answers} - {"200"})
    why = f"asked for them, it answers with {', '.join(statuses)}" if statuses else "it gives no log-probabilities"
    if not answers:
        why = "its requests are not completions, or it did not answer in time (timeouts.record_seconds)"
    if mode is True:
        raise CalibrationError(f"{workload.name}: its answers cannot be compared: {why}; set answers: false")
    print(f"  the answers of {workload.name} are not compared: {why}", flush=True)
    return None


class CalibrationResult(TypedDict):
    """The part of calibration/{workload}.json from a run alone."""

    capacity_hz: float
    output_digest: list[float | None] | None
    conditions: Conditions


def capacity_hz(tenant: TenantRecord) -> float:
    """Iterations per second of a tenant alone: requests in flight over their mean latency (Little's law).

    Counting the iterations in the window would be off by up to one: of ten, by a tenth.
    """
    load = tenant["load"]
    if load and (tenant.get("measured_by") == "scrape" or tenant["errors"]):
        # The number in flight is not known, nor the time that failed requests took.
        return load["achieved_rate_hz"]
    in_flight = (load.get("concurrency") if load else None) or 1
    return in_flight * tenant["count"] / tenant["sum_seconds"]


def run_conditions(measured: MeasuredCell) -> Conditions:
    """What may have disturbed the run of one tenant alone."""
    telemetry = measured["telemetry"] or UNKNOWN_TELEMETRY
    foreign, reasons = telemetry["foreign_processes"], telemetry["throttle_reasons"]
    return {
        "halves_change_ratio": _halves_change(measured["tenants"][0]["timeline"]),
        "foreign_processes": foreign and foreign["compute"] + foreign["graphics"] + foreign["mps"],
        "gpu_slowdown_percent": None if reasons is None else max(reasons.get(name, 0.0) for name in SLOWDOWNS),
        "cpu_throttled_percent": telemetry["host_throttled_percent"],
        "cpu_steal_percent": telemetry["host_steal_percent"],
    }


def _halves_change(timeline: Timeline | None) -> float | None:
    """Relative change of the mean latency between the halves beyond noise; None with too few iterations to tell."""
    if timeline is None:
        return None
    size = len(timeline["count"]) // (2 * PARTS)
    parts = [slice(start, start + size) for start in range(0, 2 * PARTS * size, size)]
    counts, sums = ([sum(values[part]) for part in parts] for values in (timeline["count"], timeline["sum_seconds"]))
    if not all(counts):
        return None
    means = [total / count for total, count in zip(sums, counts, strict=True)]
    halves = slice(PARTS), slice(PARTS, None)
    before, after = (sum(sums[half]) / sum(counts[half]) for half in halves)
    error = math.sqrt(sum(variance(means[half]) / PARTS for half in halves))
    return max(0.0, abs(after - before) - NOISE_DEVIATIONS * error) / before


def _failure(measured: MeasuredCell) -> str | None:
    """Why the run gives no reference; None where it gives one."""
    tenant, window = measured["tenants"][0], measured["window"]
    assert window is not None
    if not tenant["count"] and tenant["errors"]:
        last = f", the last with {tenant['last_error']}" if tenant.get("last_error") else ""
        return f"all of {tenant['errors']} iterations failed{last}"
    if not tenant["count"]:
        seconds = window["end_monotonic_seconds"] - window["start_monotonic_seconds"]
        return f"nothing that began in the window of {seconds:g} s ended; set a longer one (window_seconds)"
    # A user program has no digest.
    if tenant["output_digest"] is None and "measured_by" not in tenant:
        return "it did not digest its output in time; allow more with timeouts.record_seconds"
    return "it computes NaN or infinity" if None in (tenant["output_digest"] or []) else None


def _disturbance(conditions: Conditions) -> str | None:
    """The conditions that exceed those of a quiet run; None without one."""
    known = {name: value for name, value in conditions.items() if isinstance(value, float | int)}
    exceeded = [f"{name} is {known[name]:.3g}" for name, most in QUIET.items() if known.get(name, 0) > most]
    return ", ".join(exceeded) or None


def measure_reference(workload: str, measure: Callable[[bool], MeasuredCell]) -> tuple[MeasuredCell, CalibrationResult]:
    """The record of a run alone, and the calibration from it.

    `measure` returns a record; with True its window is as long as those of the study's cells. A run that gives no
    reference or was disturbed is repeated. After ATTEMPTS runs the last one counts even if it was disturbed:
    reading judges its `conditions`. Raises CalibrationError.
    """
    is_long = False
    for attempt in range(1, ATTEMPTS + 1):
        measured = measure(is_long)
        if measured["status"] != "ok":
            raise CalibrationError(f"{workload} does not run alone: {measured['status']}: {measured['reason']}")
        tenant, conditions = measured["tenants"][0], run_conditions(measured)
        failure = _failure(measured)
        problem = failure or _disturbance(conditions)
        # A window shorter than an iteration may contain no start of one.
        is_long = is_long or not tenant["count"]
        if problem is None or (not tenant["count"] and tenant["errors"]):
            break
        if attempt < ATTEMPTS:
            print(f"  calibrating again: {problem}", flush=True)
    if failure:
        raise CalibrationError(f"{workload} does not run alone: {failure}")
    if problem:
        print(f"  calibrated although {problem}: loads that are a share of its capacity will not count", flush=True)
    return measured, {
        "capacity_hz": capacity_hz(tenant),
        "output_digest": tenant["output_digest"],
        "conditions": conditions,
    }
