"""Calibration: a workload alone for a short window. Its capacity, and the runs that cannot be a reference."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

from sharebench.cell.cell import MeasuredCell
from sharebench.core.spec import WorkloadSpec
from sharebench.core.strategies import Strategy
from sharebench.nodes.node import Node
from sharebench.records.types import GateVerdict, TenantRecord

# What spoils a calibration (a burst of steal, a throttled CPU) is usually gone a second later.
ATTEMPTS = 3
# Its own digest has nothing to be compared with yet, and it is short, but its capacity does not count iterations.
IGNORED_GATES = ("output_digest", "window_length")
# What makes its rate doubtful and leaves its output as it is: the digest holds, the capacity does not.
RATE_GATES = (
    *("cpu_stolen", "cpu_throttled", "cpu_contention", "gpu_slowdown", "window_coverage", "clock_error"),
    *("scrape_error", "generator_bound", "generator_late"),
)


class CalibrationError(Exception):
    """The workload has no reference; one line."""


def pick_strategy(
    strategies: Mapping[str, Strategy], asked: Iterable[str], node: Node, workload: WorkloadSpec
) -> Strategy:
    """How one tenant gets most of the device: exclusive, or on a GPU in MIG mode the largest instance that is `asked`.

    `strategies` is the whole catalogue.
    """
    known = (strategies[name] for name in strategies if name in set(asked))
    # Another access may have the whole device where that of `exclusive` is not there.
    by_size = sorted(known, key=lambda each: (each.mechanisms == ("exclusive",), each.tenant_slices()))
    options = [strategies["exclusive"], *reversed(by_size)]
    return next((each for each in options if node.infeasible(each, 1, [workload]) is None), options[0])


class CalibrationResult(TypedDict):
    """What calibration/{workload}.json takes from a run alone; `warning` is why there is no capacity."""

    capacity_hz: float | None
    output_digest: list[float | None] | None
    warning: str | None


def fatal_gates(gates: Sequence[GateVerdict]) -> list[GateVerdict]:
    """The failed gates that keep a run from being a reference."""
    return [
        gate
        for gate in gates
        if gate["severity"] == "invalid" and not gate["passed"] and gate["name"] not in IGNORED_GATES
    ]


def capacity_hz(tenant: TenantRecord) -> float:
    """Iterations per second of a tenant that runs alone: back to back, one over their mean latency.

    With several requests always in flight it is that number of times as much (Little's law). The number of iterations
    that began in the window would be off by up to one: of ten, by a tenth.
    """
    load = tenant["load"]
    if load and (tenant.get("measured_by") == "scrape" or tenant["errors"]):
        # How many it works on at once is not known; nor for how long it has worked on those that failed.
        return load["achieved_rate_hz"]
    in_flight = (load.get("concurrency") if load else None) or 1
    return in_flight * tenant["count"] / tenant["sum_seconds"]


def measure_reference(
    workload: str, measure: Callable[[bool], MeasuredCell], needs_capacity: bool
) -> tuple[MeasuredCell, CalibrationResult]:
    """The record of a run alone, and what is taken from it.

    `measure` makes a record, with True in a window as long as that of the study's cells. A run whose rate is doubtful
    is repeated. After ATTEMPTS its digest still holds, so that the study goes on with a warning and no capacity;
    not where a load is a share of the capacity (`needs_capacity`). Raises CalibrationError.
    """
    is_long = False
    for attempt in range(1, ATTEMPTS + 1):
        measured = measure(is_long)
        if measured["status"] != "ok":
            raise CalibrationError(f"{workload} does not run alone: {measured['status']}: {measured['reason']}")
        tenant = measured["tenants"][0]
        spoilt = fatal_gates(measured["gates"])
        # Whether an iteration begins in a window that is shorter than it is chance.
        is_long = is_long or not tenant["count"]
        if not spoilt or (not tenant["count"] and tenant["errors"]):
            break
        if attempt < ATTEMPTS:
            print(f"  calibrating again: {spoilt[0]['message']}", flush=True)
    if not tenant["count"]:
        line = next((gate["message"] for gate in spoilt if gate["name"] == "nothing_finished"), "it finished nothing")
        raise CalibrationError(f"{workload} does not run alone: {line.removeprefix('tenant 0: ')}")
    # A user's program has none.
    if tenant["output_digest"] is None and "measured_by" not in tenant:
        raise CalibrationError(f"{workload} did not sum up its output in time; allow more with timeouts.record_seconds")
    if None in (tenant["output_digest"] or []):
        raise CalibrationError(f"{workload} computes NaN or infinity when it runs alone")
    warning = f"{spoilt[0]['name']}: {spoilt[0]['message']}" if spoilt else None
    if warning and (needs_capacity or any(gate["name"] not in RATE_GATES for gate in spoilt)):
        raise CalibrationError(f"{workload} cannot be calibrated: {warning}")
    if warning:
        print(f"  calibrated with a warning, without capacity: {warning}", flush=True)
    taken: CalibrationResult = {
        "capacity_hz": None if warning else capacity_hz(tenant),
        "output_digest": tenant["output_digest"],
        "warning": warning,
    }
    return measured, taken
