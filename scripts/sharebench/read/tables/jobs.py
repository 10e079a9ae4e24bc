"""tables/jobs.csv: how long jobs take side by side and one after another.

The *makespan* is the time from the common start of all jobs of a cell to the end of the last. In a queue it is the sum
of the jobs' own times without their start-up, which `makespan_with_startup_seconds` includes. For a program that runs
until it exits, start-up is part of the work, and the two are the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sharebench.model.records.types import Record, TenantRecord
from sharebench.model.spec import parse_spec
from sharebench.read.cells.gpu_columns import device_columns, tenant_memory_mib
from sharebench.read.cells.rows import outcome_columns
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.gates.gates import is_valid
from sharebench.read.grouping import group_by
from sharebench.read.statistics.intervals import Estimate, Place, log_interval, welch_ratio
from sharebench.study.cells import Cell

JobKey = tuple[str, str, int]
ESTIMATES = ("completion_mean_seconds", "makespan_seconds", "energy_per_job_joules")
"""Columns with an interval over the repeats; every other one is a mean, or this extreme."""
EXTREMES: Mapping[str, Callable[[list[float]], float]] = {"completion_min_seconds": min, "completion_max_seconds": max}


@dataclass(frozen=True, slots=True)
class JobCell:
    """One cell of jobs; `values` has the known values by column of the table."""

    strategy: str
    workload: str
    replicas: int
    repeat: int
    block: int
    run_id: str
    place: Place
    status: str
    reason: str | None
    valid: bool
    values: Mapping[str, float]


def job_cell(record: Record) -> JobCell | None:
    """The part of a record that the table needs; None if it has no jobs."""
    if not parse_spec(record["spec"]).runs_jobs:
        return None
    jobs = (tenant.get("job") for tenant in record["tenants"])
    ends = [job["completion_seconds"] if job else None for job in jobs]
    completions = [end for end in ends if end is not None]
    valid, host = is_valid(record) and len(completions) == len(ends), record.get("host")
    return JobCell(
        **record["cell"],
        run_id=record["provenance"]["run_id"],
        place=Place(record["node"]["device"], host["machine"] if host else None),
        status=record["status"],
        reason=record["reason"] if valid or not is_valid(record) else "not every job has an end",
        valid=valid,
        values=_values(record, completions) if valid else {},
    )


def _values(record: Record, completions: Sequence[float]) -> dict[str, float]:
    tenants, telemetry, window = record["tenants"], record["telemetry"], record["window"]
    is_queue = window is not None and "turns" in window
    startups = [seconds for tenant in tenants if (seconds := _startup_seconds(tenant)) is not None]
    in_all = sum(startups) if is_queue else max(startups, default=0.0)
    makespan = sum(completions) if is_queue else max(completions)
    memory = [mib for mib in tenant_memory_mib(record) if mib is not None]
    device = device_columns(record, 0)
    values: dict[str, float | None] = {
        "completion_min_seconds": min(completions),
        "completion_max_seconds": max(completions),
        "completion_mean_seconds": sum(completions) / len(completions),
        "makespan_seconds": makespan,
        "makespan_with_startup_seconds": makespan + in_all if len(startups) == len(tenants) else None,
        "gpu_util_percent": telemetry["utilisation_mean_percent"] if telemetry else None,
        "memory_per_tenant_mib": sum(memory) / len(memory) if memory else None,
        "server_memory_mib": device["server_memory_mib"],
        "power_mean_watts": device["power_mean_watts"],
        "energy_per_job_joules": device["energy_joules"] / len(tenants) if device["energy_joules"] else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _startup_seconds(tenant: TenantRecord) -> float | None:
    """Start-up of a job without warm-up, which only the measurement needs; 0 for a program, which includes it."""
    if tenant.get("measured_by") == "exit":
        return 0.0
    if (own := tenant["startup"]) is None:
        return None
    return own["process_seconds"] + own["import_seconds"] + own["context_seconds"] + own["load_seconds"]


def jobs_table(cells: Iterable[JobCell], expected: Iterable[Cell], queues: Iterable[str]) -> pd.DataFrame:
    """One row per strategy, workload and number of jobs of `expected`, in its order.

    `queues` are the strategies that run jobs one after another, to the first of which `speedup` refers.
    """
    wanted = group_by(expected, _job_key)
    found = group_by(cells, _job_key)
    queue = next(iter(queues), "")
    return table_frame(
        "jobs", (_row(group, cells, found[group], found[(queue, *group[1:])]) for group, cells in wanted.items())
    )


def _job_key(cell: Cell | JobCell) -> JobKey:
    return cell.strategy, cell.workload, cell.replicas


def _row(group: JobKey, expected: Sequence[Cell], cells: Sequence[JobCell], queue: Sequence[JobCell]) -> TableRow:
    valid = [cell for cell in cells if cell.valid]
    row: TableRow = {
        **dict(zip(("strategy", "workload", "replicas"), group, strict=True)),
        **outcome_columns((cell.status for cell in cells), (cell.reason for cell in cells), len(expected), valid),
    }
    for name in dict.fromkeys(name for cell in valid for name in cell.values):
        own = [cell for cell in valid if name in cell.values]
        values = [cell.values[name] for cell in own]
        if name in ESTIMATES:
            row |= log_interval(values, [cell.place for cell in own]).columns(name)
        else:
            row[name] = EXTREMES[name](values) if name in EXTREMES else sum(values) / len(values)
    estimate = speedup(valid, [cell for cell in queue if cell.valid])
    return row | (estimate.columns("speedup") if estimate else {})


def speedup(cells: Sequence[JobCell], queue: Sequence[JobCell]) -> Estimate | None:
    """Makespan of the queue over that of `cells`, both valid repeats with the same jobs; None where one is missing.

    The interval is paired by run and block where every cell has a partner of its own, else Welch's, both on the log
    scale. The queue's own speedup is 1 by definition.
    """
    if not cells or not queue:
        return None
    if cells[0].strategy == queue[0].strategy:
        return log_interval([1.0] * len(cells))
    name = "makespan_seconds"
    partners = {(each.run_id, each.block): each.values[name] for each in queue}
    makespans = {(each.run_id, each.block): each.values[name] for each in cells}
    places = [each.place for each in cells]
    if len(makespans) == len(cells) and len(partners) == len(queue) and makespans.keys() <= partners.keys():
        return log_interval([partners[key] / value for key, value in makespans.items()], places)
    both_places = ([each.place for each in queue], places)
    return welch_ratio([each.values[name] for each in queue], [each.values[name] for each in cells], both_places)
