"""What the study can tell apart: an effect must be larger than the difference of two measurements of the same thing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from sharebench.analysis.baseline import Baseline
from sharebench.analysis.reduction import MeasuredCell
from sharebench.analysis.slowdown import group_slowdown
from sharebench.strategies import is_again

# Logs that differ by less are equal but for rounding.
ROUNDING = 1e-9


class Separability:
    """The A/A differences of a study, by workload: the baseline measured again against the baseline."""

    def __init__(self, cells: Iterable[MeasuredCell], baseline: Baseline) -> None:
        again: dict[str, list[MeasuredCell]] = defaultdict(list)
        for cell in cells:
            if cell.valid and cell.tenant_workload and is_again(cell.strategy):
                again[cell.tenant_workload].append(cell)
        found = {workload: group_slowdown(own, baseline)[0] for workload, own in again.items()}
        self._log_ratio = {name: abs(math.log(each.value)) for name, each in found.items() if each}

    def verdict(self, tenant_workload: str, ratio: float | None) -> str | None:
        """`no` where the A/A ratio of the workload differs from 1 as much as `ratio` does or more, else `yes`.

        None without an A/A ratio, or without a ratio. Differences are those of logs, so that twice is as far as half.
        """
        floor = self._log_ratio.get(tenant_workload)
        if floor is None or ratio is None:
            return None
        return "yes" if abs(math.log(ratio)) > floor + ROUNDING else "no"
