"""Which effects a study can distinguish: they must exceed the difference between two measurements of the same thing."""

import math
from collections.abc import Iterable

from sharebench.analysis.cells.baseline import Baseline
from sharebench.analysis.cells.metrics import MEAN
from sharebench.analysis.cells.rows import MeasuredCell, grouped
from sharebench.analysis.cells.slowdown import group_slowdown, ratio_of
from sharebench.analysis.statistics.intervals import Estimate, combined
from sharebench.core.strategies import is_again

# Logs that differ by less are equal but for rounding.
ROUNDING = 1e-9


class Separability:
    """The A/A ratios of a study, by workload: the control over the baseline, which is then without its control."""

    def __init__(self, cells: Iterable[MeasuredCell], baseline: Baseline) -> None:
        of_one = [cell for cell in cells if cell.valid and cell.tenant_workload]
        control = grouped((cell for cell in of_one if is_again(cell.strategy)), lambda cell: str(cell.tenant_workload))
        self._ratio = {(name, MEAN): group_slowdown(own, baseline)[0] for name, own in control.items()}
        self._pairs = {
            name: (
                own,
                [
                    cell
                    for cell in of_one
                    if baseline.includes(cell.strategy, cell.replicas) and cell.tenant_workload == name
                ],
            )
            for name, own in control.items()
        }

    def _control(self, tenant_workload: str, metric: str) -> Estimate | None:
        if (tenant_workload, metric) not in self._ratio and tenant_workload in self._pairs:
            self._ratio[tenant_workload, metric] = ratio_of(*self._pairs[tenant_workload], metric)
        return self._ratio.get((tenant_workload, metric))

    def verdict(self, tenant_workload: str, ratio: Estimate | None, metric: str = MEAN) -> str | None:
        """`yes` where the ratio differs from 1, and by more than the A/A ratio of the workload does; else `no`.

        The first where the ratio's interval leaves 1 out. The second where the interval (Welch) of the ratio over the
        A/A ratio does; the A/A ratio is turned to the same side of 1, for which of the two measurements was the control
        is chance. Both have the noise of the baseline in them, but a baseline that is the mean of both measurements
        does not correlate with their ratio. None where one of the two has no interval.
        """
        control = self._control(tenant_workload, metric)
        if ratio is None or control is None or ratio.low is None or ratio.high is None or control.low is None:
            return None
        beyond = abs(math.log(ratio.value)) - abs(math.log(control.value))
        parts = [(each.log_variance, each.degrees_of_freedom) for each in (ratio, control)]
        apart = combined(beyond, parts, ratio.n)
        if ratio.low <= 1 <= ratio.high or apart.low is None or math.log(apart.low) <= ROUNDING:
            return "no"
        return "yes"
