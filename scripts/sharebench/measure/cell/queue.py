"""A cell of a queue: jobs one after another, each measured as a cell with one tenant, joined into one record.

Each job has the exclusive device from the launch of its tenant to its end; then the next one is launched. Every
measuring job starts this module, so it imports nothing heavy.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from sharebench.measure.cell.cell import (
    MeasuredCell,
    blank_tenant,
    cell_status,
    common_environment,
    run_cell,
    used_calibration,
)
from sharebench.measure.nodes.contract import Settings
from sharebench.measure.nodes.node import Node
from sharebench.model.records.telemetry import Row, Telemetry
from sharebench.model.records.types import EvidenceItem, Outcome, TenantRecord, Timing, Window
from sharebench.model.spec import Calibration, parse_spec, tenant_workloads
from sharebench.model.strategies import Strategy

# How the jobs' telemetry becomes the queue's; the other keys are in `_queue_telemetry`.
MEAN_KEYS = (
    *("utilisation_mean_percent", "power_mean_watts", "sm_clock_mean_mhz", "memory_clock_mean_mhz"),
    *("sm_active_mean_percent", "sm_occupancy_mean_percent", "dram_active_mean_percent", "sampler_cpu_percent"),
    *("host_steal_percent", "host_throttled_percent", "foreign_cpu_percent"),
)
MAX_KEYS = ("memory_used_max_mib", "server_memory_mib", "sm_clock_cv", "temperature_max_celsius")
SUM_KEYS = ("energy_joules", "energy_error_joules")


def run_queue(
    node: Node,
    strategy: Strategy,
    spec_text: str,
    block: int,
    settings: Settings,
    calibrations: Mapping[str, Calibration],
) -> tuple[MeasuredCell, list[Row]]:
    """Measure one cell of a queue, like `cell.run_cell`; a job that does not end well ends the queue."""
    spec = parse_spec(spec_text)
    jobs: list[tuple[MeasuredCell, list[Row]]] = []
    for workload in tenant_workloads(spec):
        alone = json.dumps({**spec, "workload": workload, "replicas": 1})
        used = {name: each for name, each in calibrations.items() if name == workload["name"]}
        jobs.append(run_cell(node, strategy, alone, block, settings, used))
        if jobs[-1][0]["status"] != "ok":
            break
    record = join_jobs(spec_text, [job for job, _ in jobs], calibrations)
    began = [job["window"]["start_monotonic_seconds"] if job["window"] else None for job, _ in jobs]
    return record, [
        row | {"t_seconds": round(float(row["t_seconds"] or 0) + start - (began[0] or 0), 3)}
        for (_, rows), start in zip(jobs, began, strict=True)
        if start is not None
        for row in rows
    ]


def join_jobs(spec_text: str, jobs: Sequence[MeasuredCell], calibrations: Mapping[str, Calibration]) -> MeasuredCell:
    """The record of the queue from its jobs' records, in order; the last job may have ended badly."""
    spec, first = parse_spec(spec_text), jobs[0]
    timing = {part: sum(job["timing"][part] for job in jobs) for part in Timing.__annotations__}  # type: ignore[literal-required]
    record: MeasuredCell = {
        **first,
        "spec": spec_text,
        "cell": {**first["cell"], "workload": spec["workload"]["name"], "replicas": spec["replicas"]},
        "timing": cast(Timing, timing),
    }
    if not first["tenants"]:
        return record
    never = Outcome(status="ok", exit=None)
    tenants: list[TenantRecord] = [
        {**jobs[index]["tenants"][0], "index": index}
        if index < len(jobs) and jobs[index]["tenants"]
        else blank_tenant(index, workload["name"], never)
        for index, workload in enumerate(tenant_workloads(spec))
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
        "telemetry": _queue_telemetry(parts, list(map(_seconds, windows)), spec["replicas"]) if parts else None,
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
    """The summary over all jobs: sums, largest values, and means weighted by the jobs' durations."""

    def mean(values: Sequence[float]) -> float:
        return sum(value * weight for value, weight in zip(values, seconds, strict=True)) / sum(seconds)

    def combine(key: str, reduce: Callable[[list[float]], float] = mean) -> float | None:
        known = [cast(Mapping[str, float | None], part)[key] for part in parts]
        return None if None in known else float(reduce(cast(list[float], known)))

    def by_name(key: str, reduce: Callable[[list[float]], float]) -> Any:
        counted = [cast(Mapping[str, dict[str, float] | None], part)[key] for part in parts]
        known = [each for each in counted if each is not None]
        names = sorted({name for each in known for name in each})
        reduced = {name: reduce([each.get(name, 0) for each in known]) for name in names}
        return reduced if len(known) == len(parts) else None

    memory = [part["tenant_memory_mib"] for part in parts]
    known = [mib for each in memory for mib in each or ()]
    merged: dict[str, Any] = {
        **{key: combine(key) for key in MEAN_KEYS},
        **{key: combine(key, max) for key in MAX_KEYS},
        **{key: combine(key, sum) for key in SUM_KEYS},
        **{key: parts[0].get(key) for key in ("source", "reason", "activity_reason", "temperature_start_celsius")},
        "temperature_end_celsius": parts[-1]["temperature_end_celsius"],
        "samples": sum(part["samples"] for part in parts),
        "tenant_memory_mib": None if None in memory else known + [None] * (replicas - len(known)),
        "throttle_reasons": by_name("throttle_reasons", mean),
        "foreign_processes": by_name("foreign_processes", max),
    }
    return cast(Telemetry, merged)
