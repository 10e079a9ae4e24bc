"""One cell from start to finish, on any kind of node."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from sharebench import SCHEMA_VERSION
from sharebench.cell.window import measure, noticing_death, settle
from sharebench.core.spec import Spec, aggressor_of, job_iterations, parse, tenant_workloads
from sharebench.core.strategies import Strategy
from sharebench.gates import gates
from sharebench.nodes.contract import Evidence, Grant, NodeError, State, Tenants, TenantsFailed
from sharebench.nodes.node import Node
from sharebench.records.telemetry import Row, Telemetry
from sharebench.records.types import CellRecord, Outcome, Window
from tenant.contract import Environment, Steadiness, TenantReport

# A cell's status when several tenants ended badly: the first of these that any of them has.
WORST_FIRST = ("oom", "crashed", "killed", "hung")


class Stopwatch:
    """Seconds per part of a cell."""

    def __init__(self) -> None:
        parts = ("configure", "start", "ready", "settle", "window", "stop", "total")
        self.seconds = {f"{part}_seconds": 0.0 for part in parts}
        self._began = self._last = time.monotonic()

    def lap(self, part: str) -> None:
        """Everything since the last lap was this part."""
        now = time.monotonic()
        self.seconds[f"{part}_seconds"] += now - self._last
        self.seconds["total_seconds"] = now - self._began
        self._last = now


def planned_load(load: Mapping[str, Any], calibration: Mapping[str, Any] | None) -> dict[str, Any]:
    """The load in requests per second; a rate that is a share of capacity needs the workload's calibration.

    Raises NodeError where a disturbed calibration has no capacity.
    """
    planned = {key: value for key, value in load.items() if value is not None and key != "rate_of_capacity"}
    if load.get("rate_of_capacity") is not None:
        assert calibration is not None
        if calibration["capacity_hz"] is None:
            name, why = calibration["workload"], calibration["warning"]
            raise NodeError(f"the capacity of {name} is not known ({why}); --forcerun calibrate measures it again")
        planned["rate_hz"] = load["rate_of_capacity"] * calibration["capacity_hz"]
    return planned


def arrival_seed(workload: str, repeat: int) -> int:
    """Of an open load: each repeat of each workload has arrivals of its own, and all strategies have the same."""
    return zlib.crc32(f"{workload}/{repeat}".encode())


def empty_tenant(index: int, workload: str, outcome: Outcome) -> dict[str, Any]:
    """A tenant that measured nothing."""
    status = "not-measured" if outcome["status"] == "ok" else outcome["status"]
    blank = ("view", "startup", "steady", "min_seconds", "max_seconds", "device_histogram", "timeline", "load", "cpu")
    return {
        **dict.fromkeys((*blank, "memory_bytes", "output_digest", "work")),
        **{"index": index, "workload": workload, "status": status, "exit": outcome["exit"]},
        **{"count": 0, "sum_seconds": 0.0, "errors": 0, "histogram": {}, "stages": {}},
        **{"coverage_ratio": 0.0, "drain_seconds": 0.0},
    }


def judge(tenants: list[dict[str, Any]], why: str | None) -> tuple[str, str | None]:
    """Status and reason of a cell from its tenants'."""
    statuses = [tenant["status"] for tenant in tenants]
    for status in WORST_FIRST:
        if status in statuses:
            first = tenants[statuses.index(status)]
            detail = first["exit"]["reason"] if first["exit"] else why
            if status == "oom":
                fitting = len(statuses) - statuses.count("oom")
                return status, f"{fitting} of {len(statuses)} tenants fit into memory"
            return status, f"{statuses.count(status)} of {len(statuses)} tenants {status}: {detail}"
    return ("hung", why) if why else ("ok", None)


def finished(record: TenantReport, steady: Steadiness, outcome: Outcome) -> dict[str, Any]:
    """A tenant's own record with what the driver knows: its status, and the verdict on steadiness."""
    load = record["load"]
    if outcome["status"] == "ok" and load["arrival"] == "closed" and load["censored"]:
        reason = "its last iteration did not end within the record's deadline"
        outcome = {"status": "hung", "exit": {"code": None, "reason": reason, "log_tail": ""}}
    job = record.get("job")
    if outcome["status"] == "ok" and job and job["completion_seconds"] is None:
        reason = f"{job['completed']} of its job's {job['iterations']} iterations were done at the deadline"
        outcome = {"status": "hung", "exit": {"code": None, "reason": reason, "log_tail": ""}}
    kept = {key: value for key, value in record.items() if key not in ("environment", "outside")}
    return {**kept, "steady": steady, **outcome}


def refuse_contradiction(strategy: Strategy, evidence: Evidence) -> None:
    """Raise NodeError when what was seen contradicts the strategy: that is no data.

    What was not seen is left to the gate: a tenant that hung has shown nothing.
    """
    for item in evidence:
        if not item["holds"] and item["observed"] is not None:
            expected = f"expected {item['expected']}, observed {item['observed']}"
            raise NodeError(f"{strategy.name} was not in force: {item['name']}: {expected}")


class Observed(NamedTuple):
    """What was seen of tenants that had settled; `measured` has None for a tenant that delivered nothing."""

    window: Window
    measured: Sequence[TenantReport | None]
    rows: list[Row]
    telemetry: Telemetry
    evidence: Evidence
    environment: Environment


class Course:
    """What happens to tenants that have settled: all of them are to be well throughout the window."""

    def __init__(self, node: Node, strategy: Strategy, spec: Spec, settings: Mapping[str, Any]) -> None:
        self.node = node
        self.strategy = strategy
        self.spec = spec
        self.settings = settings
        self.deadline_seconds: float = settings["timeouts"]["record_seconds"]

    def observe(self, tenants: Tenants, grants: Sequence[Grant]) -> Observed:
        """Run the window, and see what was in force. Raises TenantsFailed, TenantUnreachable or NodeError."""
        sampler = self.node.sampler(tenants)
        window, measured, rows, telemetry = measure(
            tenants, sampler, self.spec["window_seconds"], self.deadline_seconds, job_iterations(self.spec)
        )
        evidence = self.node.evidence(self.strategy, grants, measured)
        environment = common_environment([report["environment"] for report in measured])
        return Observed(window, measured, rows, telemetry, evidence, environment)

    def after(self, record: dict[str, Any], state: State, grants: Sequence[Grant]) -> None:
        """Complete the record once the tenants are gone: their status becomes the cell's."""
        record["status"], record["reason"] = judge(record["tenants"], record["reason"])


def used_calibration(spec: Spec, calibrations: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The record's `calibration`: what the cell took from the calibration files of its workloads, by their names.

    A mix has digests and capacities by workload.
    """
    aggressor, used = aggressor_of(spec), {}
    workloads = [workload for index, workload in enumerate(tenant_workloads(spec)) if index != aggressor]
    for workload in workloads:
        alone = calibrations[workload["name"]]
        needs_capacity = workload["load"].get("rate_of_capacity") is not None
        used[workload["name"]] = {
            "output_digest": alone["output_digest"],
            "capacity_hz": alone["capacity_hz"] if needs_capacity else None,
        }
    first = workloads[0]["name"]
    of_device = {key: calibrations[first][key] for key in ("roofs", "idle_power_watts")}
    if "tenants" not in spec["workload"]:
        return used[first] | of_device
    return {"output_digest": None, "capacity_hz": None, "workloads": used} | of_device


def common_environment(environments: Sequence[Environment]) -> Environment:
    """Python and platform, which all tenants share, and the packages of all of them."""
    packages = {name: text for environment in environments for name, text in environment["packages"].items()}
    return {**environments[0], "packages": packages}


def run_cell(
    node: Node,
    strategy: Strategy,
    spec_text: str,
    block: int,
    settings: Mapping[str, Any],
    calibrations: Mapping[str, Mapping[str, Any]],
    course: type[Course] = Course,
) -> tuple[dict[str, Any], list[Row]]:
    """Measure one cell; returns its record, but for `code` and `provenance`, and the rows of telemetry.csv.

    `calibrations` holds the calibration file of each workload by its name, nothing while calibrating. Raises NodeError
    or TenantUnreachable when the harness, not the device or a tenant, is at fault; the tenants are gone in any case.
    """
    watch = Stopwatch()
    spec = parse(spec_text)
    replicas, workloads = spec["replicas"], tenant_workloads(spec)
    names = [workload["name"] for workload in workloads]
    loads = [
        planned_load(workload["load"], calibrations.get(workload["name"]))
        | {"seed": arrival_seed(workload["name"], spec["repeat"]), "before": index - names[:index].count(names[index])}
        for index, workload in enumerate(workloads)
    ]
    record: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "spec": spec_text,
        "cell": {
            "strategy": strategy.name,
            "workload": spec["workload"]["name"],
            "replicas": replicas,
            "repeat": spec["repeat"],
            "block": block,
        },
        "node": node.facts(),
        "limits": strategy.limits(replicas),
        "evidence": [],
        "calibration": None,
        "switch": None,
        "window": None,
        "telemetry": None,
        "fault": None,
    }
    environment: Environment | dict[str, Any] = {}
    rows: list[Row] = []
    reasons = {
        "infeasible": node.infeasible(strategy, replicas, workloads),
        "not-measured": node.not_attempted(strategy, workloads),
    }
    for status, why in reasons.items():
        if why is not None:
            record |= {"status": status, "reason": why, "tenants": [], "timing": watch.seconds, "gates": []}
            return record | {"environment": environment}, rows
    if calibrations:
        record["calibration"] = used_calibration(spec, calibrations)

    state = State(strategy, replicas if strategy.depends_on_replicas else None, block)
    node.ensure(state)
    record["switch"] = node.switched
    watch.lap("configure")
    grants = node.grants(strategy, replicas)
    settings = {**settings, "loads": loads}
    tenants = node.tenants(spec, settings)
    way = course(node, strategy, spec, settings)
    measured: Sequence[TenantReport | None] = [None] * replicas
    steady: list[Steadiness] = []
    try:
        tenants.sweep()
        tenants.start(grants)
        watch.lap("start")
        tenants.wait_ready()
        watch.lap("ready")
        with noticing_death(tenants):
            is_alone = replicas == 1 and loads[0]["arrival"] == "closed"
            steady = settle(tenants, settings["timeouts"]["start_seconds"], as_warmed_up=is_alone)
            watch.lap("settle")
            seen = way.observe(tenants, grants)
            watch.lap("window")
        record |= {"window": seen.window, "telemetry": seen.telemetry, "evidence": seen.evidence}
        refuse_contradiction(strategy, seen.evidence)
        measured, rows, environment = seen.measured, seen.rows, seen.environment
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
    record["tenants"] = [
        empty_tenant(i, workload["name"], outcomes[i])
        if (own := measured[i]) is None
        else finished(own, steady[i], outcomes[i])
        for i, workload in enumerate(workloads)
    ]
    record |= {"timing": watch.seconds, "reason": why}
    way.after(record, state, grants)
    if record["status"] == "hung":
        # With an iteration in flight to the end.
        node.mark_dirty()
    record["gates"] = gates.evaluate(cast(CellRecord, record))
    return record | {"environment": environment}, rows
