"""What every slowdown refers to: the cells of the baseline strategy at one tenant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sharebench.analysis.reduction import MeasuredCell
from sharebench.analysis.statistics import log_interval


class Baseline:
    """The valid cells of `strategy` at one tenant, by workload; empty when `strategy` is None."""

    def __init__(self, cells: Iterable[MeasuredCell], strategy: str | None) -> None:
        self._strategy = strategy
        self._devices: set[str] = set()
        self._all: dict[str, list[float]] = defaultdict(list)
        self._in_block: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        for cell in cells:
            if self.includes(cell.strategy, cell.replicas) and cell.valid and cell.latency_mean_seconds:
                self._all[cell.workload].append(cell.latency_mean_seconds)
                self._in_block[cell.workload, cell.run_id, cell.block].append(cell.latency_mean_seconds)
                self._devices |= {row.device for row in cell.rows}
        self._mean = {workload: log_interval(values).value for workload, values in self._all.items()}

    def includes(self, strategy: str, replicas: int) -> bool:
        """Whether such cells are the baseline."""
        return strategy == self._strategy and replicas == 1

    def latencies_seconds(self, workload: str) -> Sequence[float]:
        """Mean latency of each valid baseline cell of the workload."""
        return self._all.get(workload, [])

    def mean_seconds(self, workload: str) -> float | None:
        """Their geometric mean; None when there is none, or when it would be one over several devices."""
        return self._mean.get(workload) if len(self._devices) < 2 else None

    def partner_seconds(self, cell: MeasuredCell, workload: str) -> float | None:
        """Mean latency of the one baseline cell of that run and block; None if there are none or several."""
        found = self._in_block.get((workload, cell.run_id, cell.block), [])
        return found[0] if len(found) == 1 else None
