"""Studies on several devices of one product, where no ratio may mix two devices.

tables/devices.csv compares the devices, and the spread between them with that of repeats on one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from sharebench.model import faults
from sharebench.model.strategies import CONTROL_SUFFIX, is_control
from sharebench.model.study_config import StudyConfig
from sharebench.read.cells.rows import GROUP_COLUMNS, GroupKey, MeasuredCell
from sharebench.read.cells.slowdown import Baseline, cell_slowdowns
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.grouping import group_by
from sharebench.read.statistics.intervals import log_interval
from sharebench.read.statistics.spread import measure_spread
from sharebench.read.tables.jobs import JobCell

UNPAIRED = "no valid baseline in its block, and those of other blocks are of another device"


def closed_loop_workloads(config: StudyConfig) -> set[str]:
    """The workloads whose latency depends on the device alone; under an open load it depends on random arrivals."""
    return {name for name, entry in config["workload_catalogue"].items() if entry.load.arrival == "closed"}


def devices_table(cells: Iterable[MeasuredCell], baseline: Baseline, busy: Collection[str]) -> pd.DataFrame:
    """One row per strategy, workload, number of tenants and device, where two devices or more have valid cells.

    Only tenants that run one of the workloads `busy` count. The A/A control counts as the baseline, as two measurements
    in one block show the spread within a device.
    """
    known = (cell for cell in cells if cell.valid and cell.latency_mean_seconds and cell.tenant_workload in busy)
    groups = group_by(known, lambda cell: (cell.strategy.removesuffix(CONTROL_SUFFIX), *cell.group[1:]))
    by_device = ((key, group_by(own, lambda cell: cell.device)) for key, own in groups.items())
    return table_frame("devices", (row for key, own in by_device if len(own) > 1 for row in _rows(key, own, baseline)))


def _rows(key: GroupKey, found: Mapping[str, Sequence[MeasuredCell]], baseline: Baseline) -> Iterator[TableRow]:
    latencies = {device: [cell.latency_mean_seconds or 0.0 for cell in own] for device, own in found.items()}
    means = {device: log_interval(own).value for device, own in latencies.items()}
    middle, spread = log_interval(list(means.values())).value, measure_spread(latencies.values())
    for device in sorted(found):
        own = [cell for cell in found[device] if not is_control(cell.strategy)]
        slowdowns = [slowdown for slowdown in cell_slowdowns(own, baseline) if slowdown is not None]
        yield {
            **dict(zip(GROUP_COLUMNS, key, strict=True)),
            "device": device,
            "n": len(found[device]),
            "latency_mean_seconds": means[device],
            "over_all_devices": means[device] / middle,
            "slowdown": log_interval(slowdowns).value if slowdowns else None,
            "between_devices_percent": spread.between_percent,
            "within_device_percent": spread.within_percent,
            "p_devices": spread.probability,
        }


def device_remark(count: int) -> str:
    """The remark of tables and figures on the number of devices; empty for one."""
    return (
        f"Blocks were measured on {count} devices of this product; every ratio is of one device." if count > 1 else ""
    )


def pair_by_device(cells: Sequence[MeasuredCell], strategy: str | None) -> list[MeasuredCell]:
    """The cells; in a study on several devices with the device as `pairing_scope` in place of the run.

    A block is on one device, whatever the number of runs that measured it. A cell without a valid cell of the baseline
    `strategy` in its block has no reference and is excluded. Cells with a fault are kept, as their victims are compared
    with themselves.
    """
    if len({cell.device for cell in cells}) < 2:
        return list(cells)
    own = [replace(cell, pairing_scope=cell.device) for cell in cells]
    baseline = Baseline(own, strategy)

    def has_partner(cell: MeasuredCell) -> bool:
        names = {row.tenant_workload for row in cell.all_rows if row.tenant_workload}
        return any(map(faults.fault_kind, names)) or all(baseline.has_block(cell, name) for name in names)

    is_kept = (strategy is None or not cell.valid or has_partner(cell) for cell in own)
    return [
        cell if kept else replace(cell, valid=False, reason=UNPAIRED) for cell, kept in zip(own, is_kept, strict=True)
    ]


def pair_jobs_by_device(jobs: Sequence[JobCell], cells: Sequence[MeasuredCell], queues: Iterable[str]) -> list[JobCell]:
    """`pair_by_device` for jobs, whose speedup refers to the first of `queues`; `cells` are all of the study."""
    if len({cell.device for cell in cells}) < 2:
        return list(jobs)
    own = [replace(job, run_id=job.place.device) for job in jobs]
    queue = next(iter(queues), "")
    queued = {(job.workload, job.replicas, job.block) for job in own if job.strategy == queue and job.valid}
    return [
        job
        if not job.valid or not queued or (job.workload, job.replicas, job.block) in queued
        else replace(job, valid=False, reason=UNPAIRED)
        for job in own
    ]
