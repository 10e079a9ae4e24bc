"""Ratios between groups of repeats, with the interval that their pairing allows, and whether they are separable.

A slowdown refers to the cells of the baseline strategy at one tenant. An effect is separable if it exceeds the
difference between two measurements of the same thing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sharebench.model.strategies import CONTROL_SUFFIX, control_name, is_control
from sharebench.read.cells.metrics import MEAN, cell_value
from sharebench.read.cells.rows import MeasuredCell, TenantRow
from sharebench.read.grouping import group_by
from sharebench.read.statistics.intervals import Estimate, log_interval, welch_ratio

# Workload, run and block.
BlockKey = tuple[str, str, int]
AloneSeconds = Callable[[MeasuredCell, str], float | None]
"""Mean latency of a workload alone, for comparison with a cell."""
Value = TypeVar("Value")
# Logarithms that differ by less are equal up to rounding.
ROUNDING = 1e-9


class Baseline:
    """The valid cells of `strategy` at one tenant, by workload; empty when `strategy` is None.

    Where a block has one valid cell of the A/A control too, the block's baseline is the geometric mean of both. Those
    two are compared with the baseline alone (`for_strategy`): a control in its own baseline halves the difference.
    """

    def __init__(self, cells: Iterable[MeasuredCell], strategy: str | None, has_control: bool = True) -> None:
        self._strategy = strategy
        self._on_device: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._in_block: dict[BlockKey, list[float]] = defaultdict(list)
        known = [cell for cell in cells if cell.valid and cell.latency_mean_seconds and cell.replicas == 1]
        own = [cell for cell in known if cell.strategy == strategy]
        again = control_name(strategy) if has_control and strategy else None
        control = group_by((cell for cell in known if cell.strategy == again), _block)
        for block, block_cells in group_by(own, _block).items():
            for cell in block_cells:
                seconds = cell.latency_mean_seconds or 0.0
                if len(block_cells) == len(control[block]) == 1:
                    seconds = math.sqrt(seconds * (control[block][0].latency_mean_seconds or 0.0))
                self._on_device[cell.workload][cell.device].append(seconds)
                self._in_block[block].append(seconds)
        self._without_control = Baseline(own, strategy, has_control=False) if has_control else self

    def for_strategy(self, strategy: str) -> Baseline:
        """The baseline of a strategy's cells; without the control for the control and for the baseline itself."""
        return self._without_control if strategy.removesuffix(CONTROL_SUFFIX) == self._strategy else self

    def includes(self, strategy: str, replicas: int) -> bool:
        return strategy == self._strategy and replicas == 1

    def latencies_seconds(self, workload: str) -> Sequence[float]:
        """Mean latency of each valid baseline cell of the workload, averaged with its control."""
        return [seconds for own in self._on_device.get(workload, {}).values() for seconds in own]

    def spans_devices(self, workload: str) -> bool:
        """Whether the workload's baseline cells are on several devices, so that a ratio to all would mix devices."""
        return len(self._on_device.get(workload, ())) > 1

    def mean_seconds(self, cell: MeasuredCell, workload: str) -> float | None:
        """Geometric mean of the workload's baseline cells (of those on the cell's device, if several); None without."""
        known = self._on_device.get(workload, {})
        found = known.get(cell.device, []) if self.spans_devices(workload) else self.latencies_seconds(workload)
        return log_interval(found).value if found else None

    def has_block(self, cell: MeasuredCell, workload: str) -> bool:
        """Whether the baseline has cells of the cell's run and block."""
        return (workload, *cell.pair) in self._in_block

    def partner_seconds(self, cell: MeasuredCell, workload: str) -> float | None:
        """Mean latency of the one baseline cell of the cell's run and block; None if there is none or several."""
        found = self._in_block.get((workload, *cell.pair), [])
        return found[0] if len(found) == 1 else None


def _block(cell: MeasuredCell) -> BlockKey:
    return cell.workload, *cell.pair


def group_slowdown(cells: Sequence[MeasuredCell], baseline: Baseline) -> tuple[Estimate | None, str | None]:
    """Slowdown over `cells`, the valid repeats of one group, and a note where it or its interval is missing.

    All tenants of the group run one workload. The slowdown of a cell is the mean over its tenants of mean latency over
    the baseline's mean latency.

    * Where every cell has a baseline cell of its own run and block, and no two share one, it is the geometric mean of
      the cells' slowdowns against their partners, with Student's interval over cells, or over places (paired).
    * Otherwise it is the geometric mean of the cells over that of all valid baseline cells, with Welch's interval. With
      baselines on several devices each cell refers to its own device's, with Student's interval over the places.

    The baseline's own slowdown is 1 by definition.
    """
    if not cells:
        return None, None
    if baseline.includes(cells[0].strategy, cells[0].replicas):
        return log_interval([1.0] * len(cells)), None
    baseline = baseline.for_strategy(cells[0].strategy)
    if paired := paired_values(cells, _slowdowns(cells, baseline.partner_seconds)):
        return log_interval(paired, [cell.place for cell in cells]), None
    at_mean = zip(_slowdowns(cells, baseline.mean_seconds), cells, strict=True)
    known = [(slowdown, cell.place) for slowdown, cell in at_mean if slowdown is not None]
    slowdowns = [slowdown for slowdown, _ in known]
    if not slowdowns:
        return None, "no slowdown without a valid baseline"
    if baseline.spans_devices(_tenant_workload(cells[0])):
        return log_interval(slowdowns, [place for _, place in known]), None
    # Baselines are taken relative to their geometric mean, like the slowdowns; Welch's interval has no unit.
    latencies = baseline.latencies_seconds(_tenant_workload(cells[0]))
    alone = [seconds / log_interval(latencies).value for seconds in latencies]
    note = "no interval of the slowdown against one baseline cell" if len(alone) == 1 else None
    return welch_ratio(slowdowns, alone), note


def cell_slowdowns(cells: Sequence[MeasuredCell], baseline: Baseline) -> Sequence[float | None]:
    """Slowdown of each cell, paired as in `group_slowdown`, else against the baseline's mean; None without one."""
    if not cells:
        return []
    seen = baseline.for_strategy(cells[0].strategy)
    paired = paired_values(cells, _slowdowns(cells, seen.partner_seconds))
    return paired or _slowdowns(cells, seen.mean_seconds)


def group_ratio(over: Sequence[MeasuredCell], under: Sequence[MeasuredCell], metric: str = MEAN) -> Estimate | None:
    """Ratio of a metric between two groups of valid repeats; None where one of them has no value.

    Paired groups (`are_paired`) have the interval of their pairs, others Welch's. On several devices only pairs count,
    however many there are.
    """
    tops, bottoms = _values_by_block(over, metric), _values_by_block(under, metric)
    spans_devices = len({cell.device for cell in (*over, *under)}) > 1
    if spans_devices or are_paired(over, under, metric):
        places = {cell.pair: cell.place for cell in over}
        blocks = tops.keys() & bottoms.keys()
        ratios = [tops[block] / bottoms[block] for block in blocks]
        return log_interval(ratios, [places[block] for block in blocks]) if ratios else None
    all_tops, all_bottoms = ([v for cell in cells if (v := cell_value(cell, metric))] for cells in (over, under))
    return welch_ratio(all_tops, all_bottoms) if all_tops and all_bottoms else None


def are_paired(over: Sequence[MeasuredCell], under: Sequence[MeasuredCell], metric: str = MEAN) -> bool:
    """Whether each cell has exactly one partner of its own run and block in the other group."""
    tops, bottoms = _values_by_block(over, metric), _values_by_block(under, metric)
    return bool(tops) and tops.keys() == bottoms.keys() and (len(tops), len(bottoms)) == (len(over), len(under))


def _values_by_block(cells: Sequence[MeasuredCell], metric: str) -> dict[tuple[str, int], float]:
    """The metric by run and block, for cells that have it."""
    return {cell.pair: value for cell in cells if (value := cell_value(cell, metric))}


def _tenant_workload(cell: MeasuredCell) -> str:
    assert cell.tenant_workload is not None, "the group's tenants run several workloads"
    return cell.tenant_workload


def paired_values(cells: Sequence[MeasuredCell], against_partners: Sequence[Value | None]) -> list[Value]:
    """The cells' values against their partners; empty where a cell has none, or two share one."""
    known = [value for value in against_partners if value is not None]
    return known if len(known) == len(cells) == len({cell.pair for cell in cells}) else []


def tenant_slowdowns(
    cell: MeasuredCell, tenants: Sequence[TenantRow], alone_seconds: AloneSeconds
) -> list[float] | None:
    """Slowdown of each of these tenants of the cell; None if any is not known."""
    slowdowns = []
    for row in tenants:
        alone = alone_seconds(cell, row.tenant_workload) if row.tenant_workload else None
        if not alone or not row.latency_mean_seconds:
            return None
        slowdowns.append(row.latency_mean_seconds / alone)
    return slowdowns


def _slowdowns(cells: Sequence[MeasuredCell], alone_seconds: AloneSeconds) -> list[float | None]:
    """Slowdown of each cell; None where its tenants have no baseline."""
    own = [tenant_slowdowns(cell, cell.rows, alone_seconds) for cell in cells]
    return [None if each is None else sum(each) / len(each) for each in own]


class Separability:
    """The A/A ratios of a study by workload: the control over the baseline alone."""

    def __init__(self, cells: Iterable[MeasuredCell], baseline: Baseline) -> None:
        plain = [cell for cell in cells if cell.valid and cell.tenant_workload]
        control = group_by((cell for cell in plain if is_control(cell.strategy)), _tenant_workload)
        alone = group_by((cell for cell in plain if baseline.includes(cell.strategy, cell.replicas)), _tenant_workload)
        self._ratio = {(name, MEAN): group_slowdown(own, baseline)[0] for name, own in control.items()}
        self._pairs = {name: (own, alone[name]) for name, own in control.items()}

    def _control(self, tenant_workload: str, metric: str) -> Estimate | None:
        if (tenant_workload, metric) not in self._ratio and tenant_workload in self._pairs:
            self._ratio[tenant_workload, metric] = group_ratio(*self._pairs[tenant_workload], metric)
        return self._ratio.get((tenant_workload, metric))

    def verdict(self, tenant_workload: str, ratio: Estimate | None, metric: str = MEAN) -> str | None:
        """`yes` where the ratio's interval excludes 1, and it is further from 1 than the A/A ratio; else `no`.

        On which side of 1 the A/A ratio lies does not count, as chance decides which measurement is the control. None
        where either has no interval. A test of the one ratio against the other would find a third fewer differences of
        2 % in three repeats (docs/method.md, "The A/A control").
        """
        control = self._control(tenant_workload, metric)
        if ratio is None or control is None or ratio.low is None or ratio.high is None or control.low is None:
            return None
        beyond = abs(math.log(ratio.value)) - abs(math.log(control.value))
        return "no" if ratio.low <= 1 <= ratio.high or beyond <= ROUNDING else "yes"
