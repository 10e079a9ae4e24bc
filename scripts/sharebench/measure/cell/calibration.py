"""Calibration: a workload runs alone for a short window, which gives its capacity and reference output."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

from sharebench.measure.cell.cell import MeasuredCell
from sharebench.measure.nodes.node import Node
from sharebench.model.records.types import GateVerdict, TenantRecord
from sharebench.model.spec import WorkloadSpec
from sharebench.model.strategies import Strategy

# A disturbance (a burst of steal, a throttled CPU) is usually over a second later.
ATTEMPTS = 3
# There is no reference for the digest yet, and a short window does not matter: capacity comes from the mean latency.
IGNORED_GATES = ("output_digest", "window_length")
# Gates about the rate only: when one fails, the digest is still valid, the capacity is not.
RATE_GATES = (
    *("cpu_stolen", "cpu_throttled", "cpu_contention", "gpu_slowdown", "window_coverage", "clock_error"),
    *("scrape_error", "generator_bound", "generator_late"),
)


class CalibrationError(Exception):
    """The workload has no reference; the message is one line."""


def pick_strategy(
    strategies: Mapping[str, Strategy], asked: Iterable[str], node: Node, workload: WorkloadSpec
) -> Strategy:
    """The strategy that gives one tenant most of the device: exclusive, or in MIG mode the largest `asked` instance.

    `strategies` is the whole catalogue.
    """
    candidates = (strategies[name] for name in strategies if name in set(asked))
    # Another access may give the whole device where that of `exclusive` is missing.
    by_size = sorted(candidates, key=lambda each: (each.mechanisms == ("exclusive",), each.tenant_slices()))
    options = [strategies["exclusive"], *reversed(by_size)]
    return next((each for each in options if node.infeasible(each, 1, [workload]) is None), options[0])


class CalibrationResult(TypedDict):
    """The part of calibration/{workload}.json from a run alone; `warning` is the reason for a missing capacity."""

    capacity_hz: float | None
    output_digest: list[float | None] | None
    warning: str | None


def fatal_gates(gates: Sequence[GateVerdict]) -> list[GateVerdict]:
    """The failed gates that disqualify a run as a reference."""
    return [
        gate
        for gate in gates
        if gate["severity"] == "invalid" and not gate["passed"] and gate["name"] not in IGNORED_GATES
    ]


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


def measure_reference(
    workload: str, measure: Callable[[bool], MeasuredCell], needs_capacity: bool
) -> tuple[MeasuredCell, CalibrationResult]:
    """The record of a run alone, and the calibration from it.

    `measure` returns a record; with True its window is as long as those of the study's cells. A disturbed run is
    repeated. If all ATTEMPTS are disturbed, the calibration has a warning and no capacity, which is an error where a
    load is a share of the capacity (`needs_capacity`). Raises CalibrationError.
    """
    is_long = False
    for attempt in range(1, ATTEMPTS + 1):
        measured = measure(is_long)
        if measured["status"] != "ok":
            raise CalibrationError(f"{workload} does not run alone: {measured['status']}: {measured['reason']}")
        tenant = measured["tenants"][0]
        failed = fatal_gates(measured["gates"])
        # A window shorter than an iteration may contain no start of one.
        is_long = is_long or not tenant["count"]
        if not failed or (not tenant["count"] and tenant["errors"]):
            break
        if attempt < ATTEMPTS:
            print(f"  calibrating again: {failed[0]['message']}", flush=True)
    if not tenant["count"]:
        line = next((gate["message"] for gate in failed if gate["name"] == "nothing_finished"), "it finished nothing")
        raise CalibrationError(f"{workload} does not run alone: {line.removeprefix('tenant 0: ')}")
    # A user program has no digest.
    if tenant["output_digest"] is None and "measured_by" not in tenant:
        raise CalibrationError(f"{workload} did not digest its output in time; allow more with timeouts.record_seconds")
    if None in (tenant["output_digest"] or []):
        raise CalibrationError(f"{workload} computes NaN or infinity when it runs alone")
    warning = f"{failed[0]['name']}: {failed[0]['message']}" if failed else None
    if warning and (needs_capacity or any(gate["name"] not in RATE_GATES for gate in failed)):
        raise CalibrationError(f"{workload} cannot be calibrated: {warning}")
    if warning:
        print(f"  calibrated with a warning, without capacity: {warning}", flush=True)
    result: CalibrationResult = {
        "capacity_hz": None if warning else capacity_hz(tenant),
        "output_digest": tenant["output_digest"],
        "warning": warning,
    }
    return measured, result
