"""Gates of a window that changes: drift between its halves, and another level in part of it."""

import itertools
import math
from collections.abc import Iterable, Sequence
from statistics import median

from sharebench.gates.verdict import Verdict, load_of, worst_verdict
from sharebench.records.types import CellRecord, TenantRecord

# Less drift than this changes no answer.
DRIFT_RATIO = 0.10
# Groups of slots per half of the window for the drift test, finest first, each with the two-sided 0.1 % point of
# Student's t (scipy.stats.t is too heavy to import here). The variance comes from 2 (groups - 1) differences of
# neighbours, and has two thirds as many degrees of freedom.
DRIFT_T = {10: 4.32, 5: 6.51}
# Median of the square of a standard normal variable.
MEDIAN_OF_SQUARES = 0.4549
# Neighbouring slots of an open load share a queue; only the means of long groups are nearly independent. Of these
# Student's t has one degree of freedom less than groups, and the level is 0.01 %.
OPEN_DRIFT_T = {5: 15.54}
# A tenth of the window at another level is more than a stall, and the mean depends on how much of it the window has.
LEVEL_RATIO = 0.10
# Standard errors of its mean that a twentieth of the window must differ by, besides DRIFT_RATIO.
LEVEL_DEVIATIONS = 5.0


def drift(record: CellRecord) -> Verdict | None:
    # A job is faster once its neighbours have finished theirs.
    tenants = [tenant for tenant in record["tenants"] if not tenant.get("job")]
    return worst_verdict(
        ((*found, tenant["index"]) for tenant in tenants if (found := _drift_of(tenant))),
        "mean latency of tenant {tenant} changed by {value:.1%} between the halves of the window",
        Verdict(None, DRIFT_RATIO, True, "too few iterations to tell drift from noise"),
    )


def level_shift(record: CellRecord) -> Verdict | None:
    """Share of the window in which a tenant's mean latency is not at the window's usual level.

    The halves of a window may have the same mean although a tenant alternates between two levels.
    """
    closed = [each for each in record["tenants"] if load_of(each)["arrival"] == "closed" and not each.get("job")]
    without = Verdict(None, LEVEL_RATIO, True, "too few iterations to tell levels from noise") if closed else None
    return worst_verdict(
        ((share, LEVEL_RATIO, tenant["index"]) for tenant in closed if (share := _off_level(tenant)) is not None),
        "in {value:.0%} of the window the mean latency of tenant {tenant} is off its usual one by more than a tenth",
        without,
    )


def _off_level(tenant: TenantRecord) -> float | None:
    """None where a group of slots is empty however coarse."""
    groups = _groups(tenant, DRIFT_T)
    if groups is None:
        return None
    counts, sums = groups
    means = [part / count for part, count in zip(sums, counts, strict=True)]
    usual = median(means)
    variance = median(_differences(counts, sums)) / MEDIAN_OF_SQUARES
    off = [
        abs(mean - usual) > max(DRIFT_RATIO * usual, LEVEL_DEVIATIONS * math.sqrt(variance / count))
        for mean, count in zip(means, counts, strict=True)
    ]
    return sum(off) / len(off)


def _drift_of(tenant: TenantRecord) -> tuple[float, float] | None:
    """Relative change of the mean latency between the halves, and what noise explains (at least DRIFT_RATIO).

    None where a group is empty however coarse.
    """
    is_closed = load_of(tenant)["arrival"] == "closed"
    criticals = DRIFT_T if is_closed else OPEN_DRIFT_T
    groups = _groups(tenant, criticals)
    if groups is None:
        return None
    counts, sums = groups
    half = len(counts) // 2
    halves = [(counts[part], sums[part]) for part in (slice(half), slice(half, None))]
    before, after = (sum(own_sums) / sum(own_counts) for own_counts, own_sums in halves)
    if is_closed:
        variances = [each for own in halves for each in _differences(*own)]
        variance = sum(variances) / len(variances) * sum(1 / sum(own_counts) for own_counts, _ in halves)
    else:
        variance = sum(_ratio_variance(*own) for own in halves)
    return abs(after / before - 1), max(DRIFT_RATIO, criticals[half] * math.sqrt(variance) / before)


def _groups(tenant: TenantRecord, per_half: Iterable[int]) -> tuple[list[float], list[float]] | None:
    """Counts and sums of the finest of these groups of slots of which none is empty."""
    if (timeline := tenant["timeline"]) is not None:
        for groups in per_half:
            counts, sums = (grouped(values, 2 * groups) for values in (timeline["count"], timeline["sum_seconds"]))
            if min(counts) > 0 and min(sums) > 0:
                return counts, sums
    return None


def _differences(counts: list[float], sums: list[float]) -> list[float]:
    """The variance of single iterations as each difference between the means of neighbouring groups shows it.

    A drift hardly shows in their mean (von Neumann, Annals of Mathematical Statistics 12, 1941), and a few changes of
    level do not show in their median.
    """
    pairs = zip(itertools.pairwise(counts), itertools.pairwise(sums), strict=True)
    return [
        (after_sum / after - before_sum / before) ** 2 / (1 / before + 1 / after)
        for (before, after), (before_sum, after_sum) in pairs
    ]


def grouped(values: Sequence[float], groups: int) -> list[float]:
    """Sums over `groups` runs of neighbouring slots, as equally long as they can be."""
    edges = [round(position * len(values) / groups) for position in range(groups + 1)]
    return [sum(values[low:high]) for low, high in itertools.pairwise(edges)]


def _ratio_variance(counts: list[float], sums: list[float]) -> float:
    """Variance of the mean latency over the groups, that of a ratio estimator (Cochran, Sampling Techniques, §2.11)."""
    total, groups = sum(counts), len(counts)
    mean = sum(sums) / total
    scatter = sum((part - mean * count) ** 2 for part, count in zip(sums, counts, strict=True))
    return groups / (groups - 1) * scatter / total**2
