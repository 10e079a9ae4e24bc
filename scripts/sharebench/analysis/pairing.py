"""Studies whose blocks were measured on several devices of one product: no ratio may mix two of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sharebench.analysis.cells.baseline import Baseline
from sharebench.analysis.cells.rows import MeasuredCell
from sharebench.analysis.tables.jobs import JobCell
from sharebench.core import faults

ALONE = "no valid baseline in its block, and those of other blocks are of another device"


def devices(cells: Iterable[MeasuredCell]) -> list[str]:
    """The hashed identities of the devices that the cells were measured on."""
    return sorted({cell.device for cell in cells})


def remark(count: int) -> str:
    """What tables and figures say of it; empty for one device."""
    return (
        f"Blocks were measured on {count} devices of this product; every ratio is of one device." if count > 1 else ""
    )


def paired_by_device(cells: Sequence[MeasuredCell], strategy: str | None) -> list[MeasuredCell]:
    """The cells, in a study on several devices with the device in place of the run, so that a block pairs within it.

    A block is on one device, whatever the number of runs that measured it. A cell without a valid cell of the baseline
    `strategy` in its block has nothing to be compared with, and is excluded, but for cells with a fault, whose victims
    are compared with themselves. With one device the cells are as they were.
    """
    if len(devices(cells)) < 2:
        return list(cells)
    own = [replace(cell, pairs_within=cell.device) for cell in cells]
    baseline = Baseline(own, strategy)

    def has_partner(cell: MeasuredCell) -> bool:
        names = {row.tenant_workload for row in cell.all_rows if row.tenant_workload}
        return any(map(faults.kind_of, names)) or all(baseline.partner_seconds(cell, name) for name in names)

    is_kept = (strategy is None or not cell.valid or has_partner(cell) for cell in own)
    return [cell if kept else replace(cell, valid=False, reason=ALONE) for cell, kept in zip(own, is_kept, strict=True)]


def jobs_by_device(jobs: Sequence[JobCell], cells: Sequence[MeasuredCell], queues: Iterable[str]) -> list[JobCell]:
    """The same of jobs, whose speedup refers to the first of `queues`; `cells` say on which device each run was."""
    if len(devices(cells)) < 2:
        return list(jobs)
    device_of = {cell.run_id: cell.device for cell in cells}
    own = [replace(job, run_id=device_of[job.run_id]) for job in jobs]
    queue = next(iter(queues), "")
    there = {(job.workload, job.replicas, job.block) for job in own if job.strategy == queue and job.valid}
    return [
        job
        if not job.valid or not there or (job.workload, job.replicas, job.block) in there
        else replace(job, valid=False, reason=ALONE)
        for job in own
    ]
