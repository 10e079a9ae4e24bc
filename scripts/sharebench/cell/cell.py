"""One cell from start to finish, on any kind of node."""

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from sharebench import SCHEMA_VERSION
from sharebench.cell.window import detecting_dead_tenants, measure_window, settle
from sharebench.core.spec import (
    Calibration,
    Spec,
    WorkloadSpec,
    aggressor_index,
    job_iterations,
    parse_spec,
    runs_until_exit,
    tenant_workloads,
)
from sharebench.core.strategies import Strategy
from sharebench.gates import gates
from sharebench.nodes.contract import (
    Evidence,
    Grant,
    NodeError,
    PlannedLoad,
    Settings,
    State,
    Tenants,
    TenantsFailed,
    empty_measurements,
)
from sharebench.nodes.node import Node
from sharebench.records.telemetry import Row, Telemetry
from sharebench.records.types import (
    CellRecord,
    Outcome,
    PrometheusRecord,
    Status,
    TenantRecord,
    TenantStatus,
    Timing,
    UsedCalibration,
    Window,
    WorkloadReference,
)
from tenant.contract import Environment, Steadiness, TenantReport

# A cell's status when several tenants ended badly: the first of these that any of them has.
WORST_FIRST: tuple[TenantStatus, ...] = ("oom", "crashed", "killed", "hung")


class MeasuredCell(CellRecord):
    """A cell's record, and what its tenants ran in (None where nothing was measured)."""

    environment: Environment | None


class Stopwatch:
    def __init__(self) -> None:
        self.seconds = dict.fromkeys(Timing.__annotations__, 0.0)
        self._began = self._last = time.monotonic()

    def lap(self, part: str) -> None:
        """Everything since the last lap was this part."""
        now = time.monotonic()
        self.seconds[f"{part}_seconds"] += now - self._last
        self.seconds["total_seconds"] = now - self._began
        self._last = now


def planned_load(
    workload: WorkloadSpec, calibration: Calibration | None, repeat: int = 0, before: int = 0
) -> PlannedLoad:
    """The load in requests per second; a rate that is a share of capacity needs the workload's calibration.

    `before` tenants of the cell have a lower index and run another workload. Raises NodeError where a disturbed
    calibration has no capacity.
    """
    load, rate_hz = workload["load"], workload["load"].get("rate_hz")
    if (share := load.get("rate_of_capacity")) is not None:
        assert calibration is not None
        if calibration["capacity_hz"] is None:
            name, why = calibration["workload"], calibration["warning"]
            raise NodeError(f"the capacity of {name} is not known ({why}); --forcerun calibrate re-measures it")
        rate_hz = share * calibration["capacity_hz"]
    # Each repeat of each workload has arrivals of its own, and all strategies have the same.
    seed = zlib.crc32(f"{workload['name']}/{repeat}".encode())
    planned: PlannedLoad = {"arrival": load["arrival"], "seed": seed, "before": before}
    if (concurrency := load.get("concurrency")) is not None:
        planned["concurrency"] = concurrency
    return planned if rate_hz is None else {**planned, "rate_hz": rate_hz}


def unmeasured_tenant(index: int, workload: str, outcome: Outcome) -> TenantRecord:
    return {
        **empty_measurements(index, workload),
        "status": "not-measured" if outcome["status"] == "ok" else outcome["status"],
        "exit": outcome["exit"],
        "steady": None,
        "load": None,
        "output_digest": None,
    }


def cell_status(tenants: Sequence[TenantRecord], why: str | None) -> tuple[Status, str | None]:
    statuses = [tenant["status"] for tenant in tenants]
    for status in WORST_FIRST:
        if (count := statuses.count(status)) == 0:
            continue
        if status == "oom":
            return "oom", f"{len(statuses) - count} of {len(statuses)} tenants fit into memory"
        first = tenants[statuses.index(status)]["exit"]
        return cast(Status, status), f"{count} of {len(statuses)} tenants {status}: {first['reason'] if first else why}"
    return ("hung", why) if why else ("ok", None)


def tenant_record(record: TenantReport, steady: Steadiness, outcome: Outcome) -> TenantRecord:
    """A tenant's own record with what the driver knows: its status, and the verdict on steadiness."""
    load, job, reason = record["load"], record.get("job"), None
    if load["arrival"] == "closed" and load["censored"]:
        reason = "its last iteration did not end within the record's deadline"
    elif job and job["completion_seconds"] is None:
        reason = f"{job['completed']} of its job's {job['iterations']} iterations were done at the deadline"
    if reason is not None and outcome["status"] == "ok":
        outcome = {"status": "hung", "exit": {"code": None, "reason": reason, "log_tail": ""}}
    kept = {key: value for key, value in record.items() if key not in ("environment", "outside")}
    # A program that runs to its end has no warm-up.
    judged = None if record.get("measured_by") == "exit" else steady
    return cast(TenantRecord, {**kept, "steady": judged, **outcome})


def refuse_contradiction(strategy: Strategy, evidence: Evidence) -> None:
    """Raise NodeError when evidence contradicts the strategy: the cell's data are void.

    What was not observed is left to the gate: a tenant that hung has shown nothing.
    """
    for item in evidence:
        if not item["holds"] and item["observed"] is not None:
            expected = f"expected {item['expected']}, observed {item['observed']}"
            raise NodeError(f"{strategy.name} was not active: {item['name']}: {expected}")


@dataclass(frozen=True)
class Observation:
    """What was seen of tenants that had settled; `measured` has None for a tenant that delivered nothing.

    `ended` are the seconds from the window's start to a tenant's end, by its index, in a cell with a fault.
    """

    window: Window
    measured: Sequence[TenantReport | None]
    rows: list[Row]
    telemetry: Telemetry
    evidence: Evidence
    environment: Environment
    ended: Mapping[int, float] = field(default_factory=dict)
    prometheus: PrometheusRecord | None = None


class CellProcedure:
    """What happens to tenants that have settled: all of them are to be well throughout the window."""

    def __init__(self, node: Node, strategy: Strategy, spec: Spec, settings: Settings) -> None:
        self.node = node
        self.strategy = strategy
        self.spec = spec
        self.settings = settings
        self.deadline_seconds = settings["timeouts"]["record_seconds"]

    def observe(self, tenants: Tenants, grants: Sequence[Grant]) -> Observation:
        """Run the window and collect the evidence. Raises TenantsFailed, TenantUnreachable or NodeError."""
        sampler = self.node.sampler(tenants)
        window, measured, rows, telemetry = measure_window(
            tenants, sampler, self.spec["window_seconds"], self.deadline_seconds, job_iterations(self.spec)
        )
        evidence = self.node.evidence(self.strategy, grants, measured)
        environment = common_environment([report["environment"] for report in measured])
        return Observation(window, measured, rows, telemetry, evidence, environment)

    def complete(
        self, record: MeasuredCell, seen: Observation | None, state: State, grants: Sequence[Grant]
    ) -> MeasuredCell:
        """The complete record, once the tenants are gone: their status becomes the cell's."""
        status, reason = cell_status(record["tenants"], record["reason"])
        return {**record, "status": status, "reason": reason}


def used_calibration(spec: Spec, calibrations: Mapping[str, Calibration]) -> UsedCalibration:
    """The record's `calibration`: what the cell took from the calibration files of its workloads, by their names.

    A mix has digests and capacities by workload.
    """
    aggressor, used = aggressor_index(spec), dict[str, WorkloadReference]()
    tenants = [workload for index, workload in enumerate(tenant_workloads(spec)) if index != aggressor]
    workloads = [workload for workload in tenants if not runs_until_exit(workload)]
    for workload in workloads:
        alone = calibrations[workload["name"]]
        needs_capacity = workload["load"].get("rate_of_capacity") is not None
        capacity_hz = alone["capacity_hz"] if needs_capacity else None
        used[workload["name"]] = {"output_digest": alone["output_digest"], "capacity_hz": capacity_hz}
    first = workloads[0]["name"]
    is_mix = "tenants" in spec["workload"]
    common: UsedCalibration = {
        "output_digest": None if is_mix else used[first]["output_digest"],
        "capacity_hz": None if is_mix else used[first]["capacity_hz"],
        "roofs": calibrations[first]["roofs"],
        "idle_power_watts": calibrations[first]["idle_power_watts"],
    }
    return {**common, "workloads": used} if is_mix else common


def common_environment(environments: Sequence[Environment]) -> Environment:
    """Python and platform, which all tenants share, and the packages of all of them."""
    packages = {name: text for environment in environments for name, text in environment["packages"].items()}
    return {**environments[0], "packages": packages}


def run_cell(
    node: Node,
    strategy: Strategy,
    spec_text: str,
    block: int,
    settings: Settings,
    calibrations: Mapping[str, Calibration],
    procedure_class: type[CellProcedure] = CellProcedure,
) -> tuple[MeasuredCell, list[Row]]:
    """Measure one cell; returns its record, but for `code` and `provenance`, and the rows of telemetry.csv.

    `calibrations` holds the calibration file of each workload by its name, nothing while calibrating. Raises NodeError
    or TenantUnreachable when the harness, not the device or a tenant, is at fault; the tenants are gone in any case.
    """
    watch = Stopwatch()
    spec = parse_spec(spec_text)
    workloads = tenant_workloads(spec)
    replicas, names = len(workloads), [workload["name"] for workload in workloads]
    loads = [
        planned_load(each, calibrations.get(each["name"]), spec["repeat"], index - names[:index].count(each["name"]))
        for index, each in enumerate(workloads)
    ]
    blank: MeasuredCell = {
        "schema": SCHEMA_VERSION,
        "spec": spec_text,
        "cell": {
            "strategy": strategy.name,
            "workload": spec["workload"]["name"],
            "replicas": replicas,
            "repeat": spec["repeat"],
            "block": block,
        },
        "status": "ok",
        "reason": None,
        "node": node.facts(),
        "limits": strategy.limits(replicas),
        "evidence": [],
        "calibration": None,
        "switch": None,
        "window": None,
        "telemetry": None,
        "fault": None,
        "tenants": [],
        "timing": cast(Timing, watch.seconds),
        "gates": [],
        "environment": None,
    }
    if (why := node.infeasible(strategy, replicas, workloads)) is not None:
        return {**blank, "status": "infeasible", "reason": why}, []
    if (why := node.not_attempted(strategy, workloads)) is not None:
        return {**blank, "status": "not-measured", "reason": why}, []

    state = State(strategy, replicas if strategy.depends_on_replicas else None, block)
    node.ensure(state)
    switch = node.switched
    watch.lap("configure")
    grants = node.grants(strategy, replicas)
    procedure = procedure_class(node, strategy, spec, {**settings, "loads": loads})
    tenants = node.tenants(spec, procedure.settings)
    seen: Observation | None = None
    steady: list[Steadiness] = []
    try:
        tenants.sweep()
        tenants.start(grants)
        watch.lap("start")
        tenants.wait_ready()
        watch.lap("ready")
        with detecting_dead_tenants(tenants):
            is_alone = replicas == 1 and loads[0]["arrival"] == "closed"
            steady = settle(tenants, settings["timeouts"]["start_seconds"], as_warmed_up=is_alone)
            watch.lap("settle")
            seen = procedure.observe(tenants, grants)
            watch.lap("window")
        refuse_contradiction(strategy, seen.evidence)
    except TenantsFailed as failure:
        why = str(failure)
        node.mark_dirty()
    except Exception:
        # They are ended in the middle of whatever they do.
        node.mark_dirty()
        raise
    finally:
        try:
            outcomes = tenants.outcomes()
        finally:
            tenants.stop()
            watch.lap("stop")
    measured = [None] * replicas if seen is None else seen.measured
    unjudged: MeasuredCell = {
        **blank,
        # Tenants may have shown which device it is.
        "node": node.facts(),
        "reason": why,
        "evidence": seen.evidence if seen else [],
        "calibration": used_calibration(spec, calibrations) if calibrations else None,
        "switch": switch,
        "window": seen.window if seen else None,
        "telemetry": seen.telemetry if seen else None,
        "tenants": [
            unmeasured_tenant(i, name, outcomes[i]) if own is None else tenant_record(own, steady[i], outcomes[i])
            for i, (name, own) in enumerate(zip(names, measured, strict=True))
        ],
        "environment": seen.environment if seen else None,
    }
    record = procedure.complete(unjudged, seen, state, grants)
    if record["status"] == "hung":
        # With an iteration in flight to the end.
        node.mark_dirty()
    return {**record, "gates": gates.evaluate(record)}, seen.rows if seen else []
