"""What every slowdown refers to: the cells of the baseline strategy at one tenant."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from sharebench.analysis.cells.rows import MeasuredCell, grouped
from sharebench.analysis.statistics.intervals import log_interval
from sharebench.core.strategies import AGAIN, again

# Workload, run and block.
Block = tuple[str, str, int]


class Baseline:
    """The valid cells of `strategy` at one tenant, by workload; empty when `strategy` is None.

    Where a block has one valid cell of the A/A control too, the block's baseline is the geometric mean of the two. The
    two themselves are compared without it (`seen_by`): a control in its own baseline would differ by half.
    """

    def __init__(self, cells: Iterable[MeasuredCell], strategy: str | None, has_control: bool = True) -> None:
        self._strategy = strategy
        self._devices: set[str] = set()
        self._all: dict[str, list[float]] = defaultdict(list)
        self._in_block: dict[Block, list[float]] = defaultdict(list)
        known = [cell for cell in cells if cell.valid and cell.latency_mean_seconds and cell.replicas == 1]
        own = [cell for cell in known if cell.strategy == strategy]
        is_control = has_control and strategy is not None
        control = grouped((cell for cell in known if is_control and cell.strategy == again(strategy or "")), _block)
        for block, of_block in grouped(own, _block).items():
            for cell in of_block:
                seconds = cell.latency_mean_seconds or 0.0
                if len(of_block) == len(control[block]) == 1:
                    seconds = math.sqrt(seconds * (control[block][0].latency_mean_seconds or 0.0))
                self._devices.add(cell.device)
                self._all[cell.workload].append(seconds)
                self._in_block[block].append(seconds)
        self._mean = {workload: log_interval(values).value for workload, values in self._all.items()}
        self._alone = Baseline(own, strategy, has_control=False) if has_control else self

    def seen_by(self, strategy: str) -> Baseline:
        """What cells of a strategy are compared with: without the control for the control and the baseline itself."""
        return self._alone if self._strategy is not None and strategy.removesuffix(AGAIN) == self._strategy else self

    def includes(self, strategy: str, replicas: int) -> bool:
        return strategy == self._strategy and replicas == 1

    def latencies_seconds(self, workload: str) -> Sequence[float]:
        """Mean latency of each valid baseline cell of the workload, with its control."""
        return self._all.get(workload, [])

    def mean_seconds(self, workload: str) -> float | None:
        """Their geometric mean; None when there is none, or when it would be one over several devices."""
        return self._mean.get(workload) if len(self._devices) < 2 else None

    def partner_seconds(self, cell: MeasuredCell, workload: str) -> float | None:
        """Mean latency of the one baseline cell of that run and block; None if there are none or several."""
        found = self._in_block.get((workload, cell.pairs_within, cell.block), [])
        return found[0] if len(found) == 1 else None


def _block(cell: MeasuredCell) -> Block:
    return cell.workload, cell.pairs_within, cell.block
