"""Slowdown of a group of repeats against the baseline, with the interval that its pairing allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharebench.analysis.baseline import Baseline
from sharebench.analysis.reduction import MeasuredCell
from sharebench.analysis.statistics import Estimate, log_interval, welch_ratio


def group_slowdown(cells: Sequence[MeasuredCell], baseline: Baseline) -> tuple[Estimate | None, str | None]:
    """Slowdown over `cells`, the valid repeats of one group, and a note where it or its interval is missing.

    The slowdown of a cell is the mean over its tenants of mean latency / baseline's mean latency (same
    workload).

    * Paired, where every cell has a baseline cell of its own run and block and no two share one: the
      geometric mean of the cells' slowdowns against their partners, with Student's interval of these ratios.
    * Else the geometric mean over the cells over that of all valid baseline cells, with Welch's interval.
    * Else, with tenants of several workloads and so several baselines, the same without an interval.

    The baseline's own slowdown is 1 by definition.
    """
    if not cells:
        return None, None
    if baseline.includes(cells[0].strategy, cells[0].replicas):
        return log_interval([1.0] * len(cells)), None
    paired = _slowdowns(cells, baseline.partner_seconds)
    if len(paired) == len(cells) == len({(cell.run_id, cell.block) for cell in cells}):
        return log_interval(paired), None
    slowdowns = _slowdowns(cells, lambda _, workload: baseline.mean_seconds(workload))
    if not slowdowns:
        return None, "no slowdown without a valid baseline"
    workloads = {row.tenant_workload or cell.workload for cell in cells for row in cell.rows}
    if len(workloads) > 1:
        value = log_interval(slowdowns).value
        return Estimate(value, None, None, len(slowdowns)), "no interval of the slowdown against several baselines"
    # Relative to their geometric mean, as the slowdowns are; Welch's interval does not depend on the unit.
    latencies = baseline.latencies_seconds(*workloads)
    alone = [seconds / log_interval(latencies).value for seconds in latencies]
    note = "no interval of the slowdown against one baseline cell" if len(alone) == 1 else None
    return welch_ratio(slowdowns, alone), note


def _slowdowns(
    cells: Sequence[MeasuredCell], alone_seconds: Callable[[MeasuredCell, str], float | None]
) -> list[float]:
    """Slowdown of each cell for whose tenants there is a baseline."""
    found = []
    for cell in cells:
        ratios = []
        for row in cell.rows:
            alone = alone_seconds(cell, row.tenant_workload or cell.workload)
            if alone and row.latency_mean_seconds:
                ratios.append(row.latency_mean_seconds / alone)
        if len(ratios) == len(cell.rows):
            found.append(sum(ratios) / len(ratios))
    return found
