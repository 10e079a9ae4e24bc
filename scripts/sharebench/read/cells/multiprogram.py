"""Multiprogram metrics: how well a device is shared, from the slowdowns of all tenants of a cell.

With T_i the mean latency of tenant i in the cell and A_i that of its own workload alone, x_i = T_i / A_i is its
slowdown and 1 / x_i its progress. Tenants of a mix are each compared with their own workload.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sharebench.read.cells.rows import MeasuredCell
from sharebench.read.cells.slowdown import AloneSeconds, Baseline, paired_values, tenant_slowdowns
from sharebench.read.statistics.intervals import Estimate, log_interval, mean_of_logs, welch_estimate

Floats = NDArray[np.float64]

# Step in the logarithm of a baseline's mean, for the numerical derivative of a metric.
STEP = 1e-4


def antt(slowdowns: Floats) -> Floats:
    """Average normalised turnaround time, (1/n) Σ x_i, over the last axis: how a user sees it; lower is better.

    Eyerman and Eeckhout, System-Level Performance Metrics for Multiprogram Workloads, IEEE Micro 28(3), 2008.
    """
    return np.asarray(slowdowns.mean(axis=-1))


def stp(slowdowns: Floats) -> Floats:
    """System throughput, Σ 1/x_i, over the last axis: the work done, in devices with one tenant each.

    Eyerman and Eeckhout, 2008; the weighted speed-up of Snavely and Tullsen (ASPLOS 2000).
    """
    return np.asarray((1 / slowdowns).sum(axis=-1))


def harmonic_speedup(slowdowns: Floats) -> Floats:
    """Harmonic mean of the tenants' progress, n / Σ x_i, over the last axis: throughput and balance in one number.

    Luo, Gummaraju and Franklin, Balancing Throughput and Fairness in SMT Processors, ISPASS 2001.
    """
    return 1 / antt(slowdowns)


def jain_index(slowdowns: Floats) -> Floats:
    """Fairness of progress p_i = 1/x_i, (Σ p_i)² / (n Σ p_i²), over the last axis: 1 if all are equal, 1/n at worst.

    Jain, Chiu and Hawe, A Quantitative Measure of Fairness and Discrimination, DEC TR-301, 1984.
    """
    progress = 1 / slowdowns
    return np.asarray(progress.sum(axis=-1) ** 2 / (slowdowns.shape[-1] * (progress**2).sum(axis=-1)))


def worst_slowdown(slowdowns: Floats) -> Floats:
    """The largest x_i over the last axis: the tenant that suffers most."""
    return np.asarray(slowdowns.max(axis=-1))


FORMULAS: Mapping[str, Callable[[Floats], Floats]] = {
    formula.__name__: formula for formula in (antt, stp, harmonic_speedup, jain_index, worst_slowdown)
}


def group_metrics(cells: Sequence[MeasuredCell], baseline: Baseline) -> dict[str, Estimate | None]:
    """Each of FORMULAS over `cells`, the valid repeats of one group; None where a tenant has no baseline.

    * Where every cell has a baseline cell of its own run and block for each of its workloads, and no two share one, the
      interval is Student's over the cells' own values on the log scale (paired).
    * Otherwise the values refer to the means of the baselines, whose variances are added (`_unpaired`).

    The baseline's own value is that of a slowdown of exactly 1.
    """
    if not cells:
        return dict.fromkeys(FORMULAS)
    if baseline.includes(cells[0].strategy, cells[0].replicas):
        ones = np.ones((len(cells), 1))
        return {name: log_interval(formula(ones).tolist()) for name, formula in FORMULAS.items()}
    baseline = baseline.for_strategy(cells[0].strategy)
    if paired := paired_values(cells, _slowdowns(cells, baseline.partner_seconds)):
        return _over_repeats(paired, cells)
    known = [each for each in _slowdowns(cells, baseline.mean_seconds) if each is not None]
    if len(known) < len(cells):
        return dict.fromkeys(FORMULAS)
    if any(row.tenant_workload and baseline.spans_devices(row.tenant_workload) for row in cells[0].all_rows):
        return _over_repeats(known, cells)
    return {
        name: _clip_index(name, _unpaired(formula, known, cells, baseline), cells[0])
        for name, formula in FORMULAS.items()
    }


def _over_repeats(slowdowns: Sequence[Floats], cells: Sequence[MeasuredCell]) -> dict[str, Estimate | None]:
    """Student's interval of each metric over these cells, or over their places where these are several."""
    values = {name: [float(formula(each)) for each in slowdowns] for name, formula in FORMULAS.items()}
    places = [cell.place for cell in cells]
    return {name: _clip_index(name, log_interval(each, places), cells[0]) for name, each in values.items()}


def _unpaired(
    formula: Callable[[Floats], Floats], slowdowns: Sequence[Floats], cells: Sequence[MeasuredCell], baseline: Baseline
) -> Estimate:
    """Welch's interval of a metric whose cells share baselines that were measured apart from them.

    The variance is that of the mean log of the cells' values, plus for each workload that of the mean log of its
    baseline times the square of the metric's derivative, with Satterthwaite's degrees of freedom. Where all tenants run
    the same workload, this is the interval of the slowdown.
    """
    mean, variance = mean_of_logs([float(formula(each)) for each in slowdowns])
    parts = [(variance, len(cells) - 1)]
    for workload in dict.fromkeys(row.tenant_workload for cell in cells for row in cell.all_rows):
        assert workload is not None, "a tenant without a workload has no slowdown"
        runs_workload = [np.array([row.tenant_workload == workload for row in cell.all_rows]) for cell in cells]
        ends = []
        for step in (-STEP, STEP):
            # A longer baseline makes the slowdowns smaller.
            shifted = (each * np.exp(-step * own) for each, own in zip(slowdowns, runs_workload, strict=True))
            ends.append(mean_of_logs([float(formula(each)) for each in shifted])[0])
        derivative = (ends[1] - ends[0]) / (2 * STEP)
        alone = baseline.latencies_seconds(workload)
        alone_variance = mean_of_logs(alone)[1]
        parts.append((None if alone_variance is None else derivative**2 * alone_variance, len(alone) - 1))
    return welch_estimate(mean, parts, len(cells))


def _clip_index(name: str, estimate: Estimate, cell: MeasuredCell) -> Estimate:
    """The estimate; the ends of Jain's index are clipped to [1/n, 1] for n tenants."""
    if name != "jain_index" or estimate.low is None or estimate.high is None:
        return estimate
    least = 1 / len(cell.all_rows)
    return Estimate(estimate.value, max(estimate.low, least), min(estimate.high, 1.0), estimate.n)


def _slowdowns(cells: Sequence[MeasuredCell], alone_seconds: AloneSeconds) -> list[Floats | None]:
    """Slowdowns of the tenants of each whole cell, shape (tenants,); None if any is not known."""
    known = (tenant_slowdowns(cell, cell.all_rows, alone_seconds) for cell in cells)
    return [None if each is None else np.array(each) for each in known]
