"""A cell of a queue: jobs one after another, each measured as a cell with one tenant, joined into one record.

Each job has the exclusive device from the launch of its tenant to its end; then the next one is launched. Every
measuring job starts this module, so it imports nothing heavy.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, cast, get_args, get_origin, get_type_hints

from sharebench.measure.cell.cell import (
    CellRun,
    MeasuredCell,
    blank_tenant,
    cell_status,
    common_environment,
    used_calibration,
)
from sharebench.measure.nodes.contract import Settings
from sharebench.measure.nodes.node import Node
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, Row, Telemetry, listed
from sharebench.model.records.types import Calibration, EvidenceItem, Outcome, TenantRecord, Timing, Window
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy


def run_queue(
    node: Node,
    strategy: Strategy,
    spec: Spec,
    block: int,
    settings: Settings,
    calibrations: Mapping[str, Calibration],
) -> tuple[MeasuredCell, list[Row]]:
    """Measure one cell of a queue, like `CellRun`; a job that does not end well ends the queue."""
    jobs: list[tuple[MeasuredCell, list[Row]]] = []
    for workload in spec.workloads:
        alone = spec.changed(workload=workload, replicas=1)
        used = {name: each for name, each in calibrations.items() if name == workload.name}
        jobs.append(CellRun(node, strategy, alone, block, settings, used).measure())
        if jobs[-1][0]["status"] != "ok":
            break
    record = join_jobs(spec, [job for job, _ in jobs], calibrations)
    began = [job["window"]["start_monotonic_seconds"] if job["window"] else None for job, _ in jobs]
    return record, [
        row | {"t_seconds": round(float(row["t_seconds"] or 0) + start - (began[0] or 0), 3)}
        for (_, rows), start in zip(jobs, began, strict=True)
        if start is not None
        for row in rows
    ]


def join_jobs(spec: Spec, jobs: Sequence[MeasuredCell], calibrations: Mapping[str, Calibration]) -> MeasuredCell:
    """The record of the queue from its jobs' records, in order; the last job may have ended badly."""
    first = jobs[0]
    timing = {part: sum(job["timing"][part] for job in jobs) for part in Timing.__annotations__}  # type: ignore[literal-required]
    record: MeasuredCell = {
        **first,
        "spec": spec.text,
        "cell": {**first["cell"], "workload": spec.workload.name, "replicas": spec.replicas},
        "timing": cast(Timing, timing),
        "start": None,
    }
    if not first["tenants"]:
        return record
    never = Outcome(status="ok", exit=None)
    tenants: list[TenantRecord] = [
        {**jobs[index]["tenants"][0], "index": index}
        if index < len(jobs) and jobs[index]["tenants"]
        else blank_tenant(index, workload.name, never)
        for index, workload in enumerate(spec.workloads)
    ]
    status, reason = cell_status(tenants, jobs[-1]["reason"] if jobs[-1]["status"] != "ok" else None)
    windows = [job["window"] for job in jobs if job["window"] is not None]
    parts = [job["telemetry"] for job in jobs if job["telemetry"] is not None]
    environments = [job["environment"] for job in jobs if job["environment"] is not None]
    evidence: list[EvidenceItem] = [
        {**item, "source": item["source"] if item["source"] == "node" else f"tenant {index}"}
        for index, job in enumerate(jobs)
        for item in job["evidence"]
    ]
    return {
        **record,
        "tenants": tenants,
        "status": status,
        "reason": reason,
        "calibration": used_calibration(spec, calibrations) if calibrations else None,
        "evidence": evidence,
        "window": _queue_window(windows) if windows else None,
        "telemetry": _queue_telemetry(parts, list(map(_seconds, windows)), spec.replicas) if parts else None,
        "environment": common_environment(environments) if environments else None,
    }


def _seconds(window: Window) -> float:
    return window["end_monotonic_seconds"] - window["start_monotonic_seconds"]


def _queue_window(windows: Sequence[Window]) -> Window:
    return {
        **windows[0],
        "end_monotonic_seconds": windows[-1]["end_monotonic_seconds"],
        "end_epoch_seconds": windows[-1]["end_epoch_seconds"],
        "clock_error_seconds": max(window["clock_error_seconds"] for window in windows),
        "turns": [[window["start_monotonic_seconds"], window["end_monotonic_seconds"]] for window in windows],
    }


def _queue_telemetry(parts: Sequence[Telemetry], seconds: Sequence[float], replicas: int) -> Telemetry:
    """The summary over all jobs, each value by the function at its key; None where a job does not know it."""
    hints, joined = get_type_hints(Telemetry, include_extras=True), dict[str, Any]()
    for key in UNKNOWN_TELEMETRY:
        hint = get_args(hints[key])[0] if get_origin(hints[key]) is NotRequired else hints[key]
        values: list[Any] = [cast(Mapping[str, Any], part).get(key) for part in parts]
        join = getattr(hint, "__metadata__", (None,))[0]
        if join is None:
            joined[key] = values[0]
        elif None in values:
            joined[key] = None
        elif isinstance(values[0], dict):
            names = sorted({name for value in values for name in value})
            joined[key] = {name: join([value.get(name, 0) for value in values], seconds) for name in names}
        else:
            joined[key] = join(values, seconds)
        if join is listed and joined[key] is not None:
            joined[key] += [None] * (replicas - len(parts))
    return cast(Telemetry, joined)
