"""Ratios of groups of repeats, slowdown first, with the interval that their pairing allows."""

from collections.abc import Callable, Sequence

from sharebench.analysis.cells.baseline import Baseline
from sharebench.analysis.cells.metrics import MEAN, value_of
from sharebench.analysis.cells.rows import MeasuredCell
from sharebench.analysis.statistics.intervals import Estimate, log_interval, welch_ratio


def group_slowdown(cells: Sequence[MeasuredCell], baseline: Baseline) -> tuple[Estimate | None, str | None]:
    """Slowdown over `cells`, the valid repeats of one group, and a note where it or its interval is missing.

    All tenants of the group run one workload. The slowdown of a cell is the mean over them of mean latency /
    baseline's mean latency (same workload).

    * Paired, where every cell has a baseline cell of its own run and block and no two share one: the
      geometric mean of the cells' slowdowns against their partners, with Student's interval of these ratios.
    * Else the geometric mean over the cells over that of all valid baseline cells, with Welch's interval.

    The baseline's own slowdown is 1 by definition.
    """
    if not cells:
        return None, None
    if baseline.includes(cells[0].strategy, cells[0].replicas):
        return log_interval([1.0] * len(cells)), None
    baseline = baseline.seen_by(cells[0].strategy)
    paired = _paired_slowdowns(cells, baseline)
    if paired:
        return log_interval(paired), None
    slowdowns = _slowdowns(cells, lambda _, workload: baseline.mean_seconds(workload))
    if not slowdowns:
        return None, "no slowdown without a valid baseline"
    # Relative to their geometric mean, as the slowdowns are; Welch's interval does not depend on the unit.
    latencies = baseline.latencies_seconds(_workload(cells[0]))
    alone = [seconds / log_interval(latencies).value for seconds in latencies]
    note = "no interval of the slowdown against one baseline cell" if len(alone) == 1 else None
    return welch_ratio(slowdowns, alone), note


def cell_slowdowns(cells: Sequence[MeasuredCell], baseline: Baseline) -> list[float]:
    """Slowdown of each of the cells, paired as `group_slowdown` has it, else against the mean of the baseline."""
    if not cells:
        return []
    seen = baseline.seen_by(cells[0].strategy)
    return _paired_slowdowns(cells, seen) or _slowdowns(cells, lambda _, workload: seen.mean_seconds(workload))


def ratio_of(over: Sequence[MeasuredCell], under: Sequence[MeasuredCell], metric: str = MEAN) -> Estimate | None:
    """A metric of one group of valid repeats over that of another; None where one of them has none.

    The pairs (`are_paired`) are tested, else the groups (Welch). Of cells of several devices only the pairs count,
    however many there are.
    """
    tops, bottoms = _by_block(over, metric), _by_block(under, metric)
    is_split = len({cell.device for cell in (*over, *under)}) > 1
    if is_split or are_paired(over, under, metric):
        ratios = [tops[block] / bottoms[block] for block in tops.keys() & bottoms.keys()]
        return log_interval(ratios) if ratios else None
    all_tops, all_bottoms = ([value for cell in cells if (value := value_of(cell, metric))] for cells in (over, under))
    return welch_ratio(all_tops, all_bottoms) if all_tops and all_bottoms else None


def are_paired(over: Sequence[MeasuredCell], under: Sequence[MeasuredCell], metric: str = MEAN) -> bool:
    """Whether each cell has exactly one partner of its own run and block in the other group."""
    tops, bottoms = _by_block(over, metric), _by_block(under, metric)
    return bool(tops) and tops.keys() == bottoms.keys() and (len(tops), len(bottoms)) == (len(over), len(under))


def _by_block(cells: Sequence[MeasuredCell], metric: str) -> dict[tuple[str, int], float]:
    """A metric by run and block, of the cells that have it."""
    return {(cell.pairs_within, cell.block): value for cell in cells if (value := value_of(cell, metric))}


def _workload(cell: MeasuredCell) -> str:
    assert cell.tenant_workload is not None, "the group's tenants run several workloads"
    return cell.tenant_workload


def _paired_slowdowns(cells: Sequence[MeasuredCell], baseline: Baseline) -> list[float]:
    """Slowdown of each cell against its own partner; empty where one has none, or two share one."""
    found = _slowdowns(cells, baseline.partner_seconds)
    return found if len(found) == len(cells) == len({(cell.pairs_within, cell.block) for cell in cells}) else []


def _slowdowns(
    cells: Sequence[MeasuredCell], alone_seconds: Callable[[MeasuredCell, str], float | None]
) -> list[float]:
    """Slowdown of each cell for whose tenants there is a baseline."""
    found = []
    for cell in cells:
        alone, means = alone_seconds(cell, _workload(cell)), [row.latency_mean_seconds for row in cell.rows]
        if alone and all(means):
            found.append(sum(mean / alone for mean in means if mean) / len(means))
    return found
