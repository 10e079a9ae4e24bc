"""The measurement of one cell from start to finish, on any kind of node."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from sharebench import SCHEMA_VERSION
from sharebench.measure.cell.loads import planned_loads
from sharebench.measure.cell.window import detecting_dead_tenants, measure_window, settle
from sharebench.measure.nodes.contract import (
    Evidence,
    Grant,
    NodeError,
    Settings,
    State,
    Tenants,
    TenantsFailed,
    empty_measurements,
)
from sharebench.measure.nodes.node import Node
from sharebench.model.records.telemetry import Row, Telemetry
from sharebench.model.records.types import (
    Calibration,
    CellRecord,
    Outcome,
    PrometheusRecord,
    Start,
    Status,
    Switch,
    TenantRecord,
    TenantStatus,
    Timing,
    UsedCalibration,
    Window,
    WorkloadReference,
)
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Mix
from tenant.contract import Environment, Steadiness, TenantReport

# When several tenants ended badly, the cell gets the first of these that any of them has.
WORST_FIRST: tuple[TenantStatus, ...] = ("oom", "crashed", "killed", "hung")


class MeasuredCell(CellRecord):
    """A cell's record, and the software environment of its tenants (None where nothing was measured)."""

    environment: Environment | None


Measured = tuple[MeasuredCell, list[Row]]


class Stopwatch:
    def __init__(self) -> None:
        self.seconds = dict.fromkeys(Timing.__annotations__, 0.0)
        self._began = self._last = time.monotonic()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to this part."""
        now = time.monotonic()
        self.seconds[f"{part}_seconds"] += now - self._last
        self.seconds["total_seconds"] = now - self._began
        self._last = now


def blank_tenant(index: int, workload: str, outcome: Outcome) -> TenantRecord:
    return {
        **empty_measurements(index, workload),
        "status": "not-measured" if outcome["status"] == "ok" else outcome["status"],
        "exit": outcome["exit"],
        "steady": None,
        "load": None,
        "output_digest": None,
    }


def cell_status(tenants: Sequence[TenantRecord], failure: str | None) -> tuple[Status, str | None]:
    """Status and reason of a cell from its tenants, and from the `failure` that ended it early, if any."""
    statuses = [tenant["status"] for tenant in tenants]
    for status in WORST_FIRST:
        if (count := statuses.count(status)) == 0:
            continue
        if status == "oom":
            return "oom", f"{len(statuses) - count} of {len(statuses)} tenants fit into memory"
        first = tenants[statuses.index(status)]["exit"]
        reason = first["reason"] if first else failure
        return cast(Status, status), f"{count} of {len(statuses)} tenants {status}: {reason}"
    return ("hung", failure) if failure else ("ok", None)


def tenant_record(record: TenantReport, steady: Steadiness, outcome: Outcome) -> TenantRecord:
    """A tenant's own report, with its status and its steadiness from the driver."""
    load, job, reason = record["load"], record.get("job"), None
    if load["arrival"] == "closed" and load["censored"]:
        reason = "its last iteration did not end within the record's deadline"
    elif job and job["completion_seconds"] is None:
        reason = f"{job['completed']} of its job's {job['iterations']} iterations were done at the deadline"
    if reason is not None and outcome["status"] == "ok":
        outcome = {"status": "hung", "exit": {"code": None, "reason": reason, "log_tail": ""}}
    kept = {key: value for key, value in record.items() if key not in ("environment", "outside")}
    # A program that runs until it exits has no warm-up.
    verdict = None if record.get("measured_by") == "exit" else steady
    return cast(TenantRecord, {**kept, "steady": verdict, **outcome})


def refuse_contradiction(strategy: Strategy, evidence: Evidence) -> None:
    """Raise NodeError when evidence contradicts the strategy: the cell's data are void.

    Missing observations contradict nothing: a hung tenant provides none.
    """
    for item in evidence:
        if not item["holds"] and item["observed"] is not None:
            expected = f"expected {item['expected']}, observed {item['observed']}"
            raise NodeError(f"{strategy.name} was not active: {item['name']}: {expected}")


@dataclass(frozen=True)
class Observation:
    """The results of a window; `measured` has None for a tenant that delivered no report.

    `ended` has the seconds from the window's start to a tenant's end, by its index, in a cell with a fault.
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
    """The part of a cell after all tenants are steady. Here every tenant must survive the window."""

    ends_tenants = False
    """Whether its tenants are not fit for another window."""

    def __init__(self, node: Node, strategy: Strategy, spec: Spec, settings: Settings) -> None:
        self.node = node
        self.strategy = strategy
        self.spec = spec
        self.settings = settings
        self.deadline_seconds = settings["timeouts"]["record_seconds"]

    def observe(self, tenants: Tenants, grants: Sequence[Grant]) -> Observation:
        """Run the window and collect the evidence. Raises TenantsFailed, TenantUnreachable or NodeError."""
        sampler = tenants.sampler()
        window, measured, rows, telemetry = measure_window(
            tenants, sampler, self.spec.window_seconds, self.deadline_seconds, self.spec.job_iterations
        )
        evidence = self.node.evidence(self.strategy, grants, measured)
        environment = common_environment([report["environment"] for report in measured])
        return Observation(window, measured, rows, telemetry, evidence, environment)

    def complete(
        self, record: MeasuredCell, observed: Observation | None, state: State, grants: Sequence[Grant]
    ) -> MeasuredCell:
        """The complete record, after the tenants have ended: their status becomes the cell's."""
        status, reason = cell_status(record["tenants"], record["reason"])
        return {**record, "status": status, "reason": reason}


def used_calibration(spec: Spec, calibrations: Mapping[str, Calibration]) -> UsedCalibration:
    """The record's `calibration`: the values that the cell used; for a mix, digests and capacities by workload."""
    aggressor, used = spec.aggressor, dict[str, WorkloadReference]()
    tenants = [workload for index, workload in enumerate(spec.workloads) if index != aggressor]
    workloads = [workload for workload in tenants if not workload.runs_until_exit]
    for workload in workloads:
        alone = calibrations[workload.name]
        reference: WorkloadReference = {"output_digest": alone["output_digest"], "capacity_hz": None}
        if workload.load.rate_of_capacity is not None:
            reference |= {"capacity_hz": alone["capacity_hz"], "conditions": alone["conditions"]}
        if answers := alone.get("answers"):
            reference["answers"] = answers
        used[workload.name] = reference
    first = calibrations[workloads[0].name]
    roofs, idle_power_watts = first["roofs"], first["idle_power_watts"]
    if not isinstance(spec.workload, Mix):
        own = used[workloads[0].name]
        return cast(UsedCalibration, {**own, "roofs": roofs, "idle_power_watts": idle_power_watts})
    none: WorkloadReference = {"output_digest": None, "capacity_hz": None}
    return {**none, "roofs": roofs, "idle_power_watts": idle_power_watts, "workloads": used}


def common_environment(environments: Sequence[Environment]) -> Environment:
    """The Python and platform that all tenants share, and the packages of all of them."""
    packages = {name: text for environment in environments for name, text in environment["packages"].items()}
    return {**environments[0], "packages": packages}


@dataclass
class Tenancy:
    """Running tenants; `windows` is the number of cells that they have been measured in."""

    tenants: Tenants
    grants: list[Grant]
    windows: int = 0
    id: str = field(default_factory=partial(secrets.token_hex, 8))


class CellRun:
    """One cell: its steps in order, and its record.

    `calibrations` has the calibration of each workload by name, and is empty while calibrating.
    """

    def __init__(
        self,
        node: Node,
        strategy: Strategy,
        spec: Spec,
        block: int,
        settings: Settings,
        calibrations: Mapping[str, Calibration],
        procedure: type[CellProcedure] = CellProcedure,
    ) -> None:
        self.node, self.strategy, self.spec, self.calibrations = node, strategy, spec, calibrations
        self.workloads = spec.workloads
        self.replicas = len(self.workloads)
        self.state = State(strategy, self.replicas if strategy.depends_on_replicas else None, block)
        loads = planned_loads(spec, calibrations)
        self.is_alone_in_a_loop = self.replicas == 1 and loads[0]["arrival"] == "closed"
        self.procedure = procedure(node, strategy, spec, {**settings, "loads": loads})
        self.watch = Stopwatch()
        self.steady: list[Steadiness] = []
        self.observed: Observation | None = None
        self.start: Start | None = None
        self.tenancy: Tenancy | None = None
        """Its tenants, if they run on."""

    def measure(self, tenancy: Tenancy | None = None, cells_left: int = 0) -> Measured:
        """The cell's record, without `code` and `provenance`, and the rows of telemetry.csv.

        Where `tenancy` is None, new tenants are started. If all went well and `cells_left` cells follow, they run on as
        `self.tenancy`, and are ended otherwise. Raises NodeError or TenantUnreachable when the harness is at fault, not
        the device or a tenant.
        """
        self.watch = Stopwatch()
        if (obstacle := self._obstacle()) is not None:
            status, reason = obstacle
            return {**self._blank(), "status": status, "reason": reason}, []
        switch = None
        if tenancy is None:
            switch, grants = self._configure()
            settings: Settings = {**self.procedure.settings, "windows": cells_left + 1}
            tenancy = Tenancy(self.node.tenants(self.spec, settings), grants)
        try:
            failure = self._run(tenancy)
            unfinished = self._measured(tenancy.tenants.outcomes())
            are_well = failure is None and all(tenant["status"] == "ok" for tenant in unfinished["tenants"])
            if cells_left and are_well and not self.procedure.ends_tenants:
                self.tenancy = tenancy
        finally:
            if self.tenancy is None:
                tenancy.tenants.stop()
                self.watch.lap("stop")
        unfinished |= {"reason": failure, "switch": switch}
        record = self.procedure.complete(unfinished, self.observed, self.state, tenancy.grants)
        if record["status"] == "hung":
            # The tenant was killed with an iteration in flight.
            self.node.mark_dirty()
        return record, self.observed.rows if self.observed else []

    def _obstacle(self) -> tuple[Status, str] | None:
        """Status and reason of a cell that is not tried; None if it is."""
        if (reason := self.node.infeasible(self.strategy, self.replicas, self.workloads)) is not None:
            return "infeasible", reason
        if (reason := self.node.not_attempted(self.strategy, self.workloads)) is not None:
            return "not-measured", reason
        return None

    def _configure(self) -> tuple[Switch | None, list[Grant]]:
        """Put the node into the cell's state; returns the change, if there was one, and the tenants' grants."""
        self.node.ensure(self.state)
        switch = self.node.switched
        self.watch.lap("configure")
        return switch, self.node.grants(self.strategy, self.replicas)

    def _run(self, tenancy: Tenancy) -> str | None:
        """Take the tenants through their window; returns why they failed, if they did. Raises as `measure`."""
        try:
            self._start(tenancy)
            with detecting_dead_tenants(tenancy.tenants):
                self._settle(tenancy.tenants)
                self.observed = self._observe(tenancy)
            refuse_contradiction(self.strategy, self.observed.evidence)
        except TenantsFailed as failed:
            self.node.mark_dirty()
            return str(failed)
        except Exception:
            # The tenants are killed in the middle of their work.
            self.node.mark_dirty()
            raise
        return None

    def _start(self, tenancy: Tenancy) -> None:
        """Start the tenants, or change their load if they run, and wait until they are warm."""
        tenants = tenancy.tenants
        self.start = {"id": tenancy.id, "position": tenancy.windows}
        if tenancy.windows:
            with detecting_dead_tenants(tenants):
                tenants.change_load(self.spec, self.procedure.settings)
        else:
            tenants.sweep()
            tenants.start(tenancy.grants)
        tenancy.windows += 1
        self.watch.lap("start")
        tenants.wait_ready()
        self.watch.lap("ready")

    def _settle(self, tenants: Tenants) -> None:
        seconds = self.procedure.settings["timeouts"]["start_seconds"]
        self.steady = settle(tenants, seconds, as_warmed_up=self.is_alone_in_a_loop)
        self.watch.lap("settle")

    def _observe(self, tenancy: Tenancy) -> Observation:
        observed = self.procedure.observe(tenancy.tenants, tenancy.grants)
        self.watch.lap("window")
        return observed

    def _blank(self) -> MeasuredCell:
        """The record of a cell that was not tried."""
        return {
            "schema": SCHEMA_VERSION,
            "spec": self.spec.text,
            "cell": {
                "strategy": self.strategy.name,
                "workload": self.spec.workload.name,
                "replicas": self.replicas,
                "repeat": self.spec.repeat,
                "block": self.state.block,
            },
            "status": "ok",
            "reason": None,
            # After the window tenants may have reported which device it is.
            "node": self.node.facts(),
            "host": self.node.host_facts(),
            "limits": self.strategy.limits(self.replicas),
            "evidence": [],
            "calibration": None,
            "switch": None,
            "start": self.start,
            "window": None,
            "telemetry": None,
            "fault": None,
            "tenants": [],
            "timing": cast(Timing, self.watch.seconds),
            "environment": None,
        }

    def _measured(self, outcomes: Sequence[Outcome]) -> MeasuredCell:
        """The record with what was observed, if anything."""
        record, observed = self._blank(), self.observed
        reports = observed.measured if observed else [None] * self.replicas
        record["calibration"] = used_calibration(self.spec, self.calibrations) if self.calibrations else None
        record["tenants"] = [
            blank_tenant(index, self.workloads[index].name, outcomes[index])
            if report is None
            else tenant_record(report, self.steady[index], outcomes[index])
            for index, report in enumerate(reports)
        ]
        if self.start and self.start["position"]:
            # These tenants were started for another cell.
            record["tenants"] = [{**tenant, "startup": None} for tenant in record["tenants"]]
        if observed:
            record |= {"evidence": observed.evidence, "window": observed.window, "telemetry": observed.telemetry}
            record["environment"] = observed.environment
        return record
