"""Gates of a window whose latency changes: drift between its halves, and shifts of the level."""

import itertools
import math
from collections.abc import Iterable, Sequence
from statistics import median

from sharebench.model.records.types import CellRecord, TenantRecord
from sharebench.read.gates.verdict import Judged, Verdict, is_closed_loop, judge_tenants, load_of

# Less drift than this changes no answer.
DRIFT_RATIO = 0.10
# Number of slot groups per half of the window, finest first, each with the two-sided 0.1 % point of Student's t
# (scipy.stats.t is too heavy to import here). The variance comes from 2 (groups - 1) differences of neighbours, and has
# two thirds as many degrees of freedom.
DRIFT_T = {10: 4.32, 5: 6.51}
# Median of the square of a standard normal variable.
MEDIAN_OF_SQUARES = 0.4549
# Neighbouring slots of an open load share a queue, so that only the means of long groups are nearly independent. Their
# Student's t has one degree of freedom less than there are groups, and the level is 0.01 %.
OPEN_DRIFT_T = {5: 15.54}
# A tenth of the window at another level is more than a stall, and the mean depends on its length.
LEVEL_RATIO = 0.10
# A group of slots is off the level if its mean differs by this many standard errors, and by DRIFT_RATIO.
LEVEL_DEVIATIONS = 5.0


@judge_tenants(
    "in {value:.0%} of the window the mean latency of tenant {tenant} is off its usual one by more than a tenth",
    of=is_closed_loop,
    unknown=Verdict(None, LEVEL_RATIO, True, "too few iterations to tell levels from noise"),
)
def level_shift(_: CellRecord, tenant: TenantRecord) -> Judged:
    """Share of the window in which a tenant's mean latency is not at its usual level.

    `drift` does not see a tenant that alternates between two levels, since the halves then have the same mean.
    """
    if (groups := _finest_groups(tenant, DRIFT_T)) is None:
        return None
    counts, sums = groups
    means = [part / count for part, count in zip(sums, counts, strict=True)]
    usual = median(means)
    variance = median(_neighbour_variances(counts, sums)) / MEDIAN_OF_SQUARES
    off = [
        abs(mean - usual) > max(DRIFT_RATIO * usual, LEVEL_DEVIATIONS * math.sqrt(variance / count))
        for mean, count in zip(means, counts, strict=True)
    ]
    return sum(off) / len(off), LEVEL_RATIO


@judge_tenants(
    "mean latency of tenant {tenant} changed by {value:.1%} between the halves of the window",
    unknown=Verdict(None, DRIFT_RATIO, True, "too few iterations to tell drift from noise"),
)
def drift(_: CellRecord, tenant: TenantRecord) -> Judged:
    """Relative change of the mean latency between the halves; the limit is what noise explains, or DRIFT_RATIO."""
    is_closed = load_of(tenant)["arrival"] == "closed"
    criticals = DRIFT_T if is_closed else OPEN_DRIFT_T
    # A job is faster once its neighbours have finished.
    if tenant.get("job") or (groups := _finest_groups(tenant, criticals)) is None:
        return None
    counts, sums = groups
    half = len(counts) // 2
    halves = [(counts[part], sums[part]) for part in (slice(half), slice(half, None))]
    before, after = (sum(half_sums) / sum(half_counts) for half_counts, half_sums in halves)
    if is_closed:
        variances = [variance for part in halves for variance in _neighbour_variances(*part)]
        variance = sum(variances) / len(variances) * sum(1 / sum(half_counts) for half_counts, _ in halves)
    else:
        variance = sum(_ratio_variance(*part) for part in halves)
    return abs(after / before - 1), max(DRIFT_RATIO, criticals[half] * math.sqrt(variance) / before)


def _finest_groups(tenant: TenantRecord, per_half: Iterable[int]) -> tuple[list[float], list[float]] | None:
    """Counts and sums of the finest of these groupings of slots that has no empty group; None without one."""
    if (timeline := tenant["timeline"]) is not None:
        for groups in per_half:
            counts, sums = (group_sums(values, 2 * groups) for values in (timeline["count"], timeline["sum_seconds"]))
            if min(counts) > 0 and min(sums) > 0:
                return counts, sums
    return None


def _neighbour_variances(counts: list[float], sums: list[float]) -> list[float]:
    """Estimates of the variance of single iterations, one from each difference between neighbouring groups' means.

    A drift hardly affects their mean (von Neumann, Annals of Mathematical Statistics 12, 1941), and a few shifts of
    the level do not affect their median.
    """
    pairs = zip(itertools.pairwise(counts), itertools.pairwise(sums), strict=True)
    return [
        (after_sum / after - before_sum / before) ** 2 / (1 / before + 1 / after)
        for (before, after), (before_sum, after_sum) in pairs
    ]


def group_sums(values: Sequence[float], groups: int) -> list[float]:
    """Sums over `groups` runs of neighbouring slots of nearly equal length."""
    edges = [round(position * len(values) / groups) for position in range(groups + 1)]
    return [sum(values[low:high]) for low, high in itertools.pairwise(edges)]


def _ratio_variance(counts: list[float], sums: list[float]) -> float:
    """Variance of the mean latency over the groups, a ratio estimator (Cochran, Sampling Techniques, §2.11)."""
    total, groups = sum(counts), len(counts)
    mean = sum(sums) / total
    scatter = sum((part - mean * count) ** 2 for part, count in zip(sums, counts, strict=True))
    return groups / (groups - 1) * scatter / total**2
