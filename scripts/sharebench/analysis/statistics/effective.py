"""The effective sample size of a window: iterations that follow each other are rarely independent.

Batch means. A window is divided into G groups of neighbouring slots of its timeline, and a sum of deviations from the
tenant's mean, d_g = Σ (sum - mean × count), is taken in each. Of independent iterations the sum of a group has the
variance (iterations in it) × σ², so that

    factor = G / (G - 1) × Σ d_g² / (n σ²)

is about 1, and in general it is 1 + 2 Σ r_k with the correlations r_k at lag k, as far as they fit into a group. That
is the method of batch means (Law, Simulation Modeling and Analysis, §9.5.3) with the estimator of a ratio, since groups
differ in count (Cochran, Sampling Techniques, 1977, §2.11). Slots have a fixed length instead of a fixed count, which
does no harm: an iteration belongs to the slot in which it starts, so that the count is a stopping time, and the
variance is that of Wald's second identity. The effective sample size is then n / factor.

Groups of one, two and four slots are tried, since a correlation that outlasts a group is seen only in part. A factor
that independent iterations would show once in a hundred (χ² with G - 1 degrees of freedom) or more often counts as 1;
of the others the largest counts, which errs by a fifth or so on the side of too few. It is the dependence of the mean:
what the record has of a tail is too little to tell the dependence of rare iterations apart.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import chdtri

from sharebench.records.histogram import Histogram
from sharebench.records.types import TenantRecord

SLOTS_PER_GROUP = (1, 2, 4)
CHANCE = 0.01
# With fewer iterations a group says nothing.
LEAST_PER_GROUP = 2
# What the difference of two sums of doubles may be off by: less spread than a millionth of the mean is none.
ROUNDING_RATIO = 1e-12


def effective_count(tenants: Sequence[TenantRecord], histograms: Sequence[Histogram]) -> float:
    """The effective sample size of all iterations of these tenants together.

    Deviations are taken from each tenant's own mean and added up slot by slot, so that a stall that hits all tenants at
    once counts as one. A tenant without a timeline counts with all its iterations. At most the number of iterations.
    """
    count = sum(tenant["count"] for tenant in tenants)
    pairs = [pair for pair in zip(tenants, histograms, strict=True) if pair[0]["count"]]
    timed = [(tenant, histogram) for tenant, histogram in pairs if tenant["timeline"]]
    if not timed:
        return float(count)
    timelines = [timeline for tenant, _ in timed if (timeline := tenant["timeline"])]
    counts = np.array([timeline["count"] for timeline in timelines], dtype=np.float64)
    sums = np.array([timeline["sum_seconds"] for timeline in timelines], dtype=np.float64)
    means = np.array([tenant["sum_seconds"] / tenant["count"] for tenant, _ in timed])
    deviations = (sums - means[:, np.newaxis] * counts).sum(axis=0)
    independent = sum(tenant["count"] * _variance(tenant, histogram) for tenant, histogram in timed)
    in_time = sum(tenant["count"] for tenant, _ in timed)
    factor = max((_factor(deviations, each, in_time, independent) for each in SLOTS_PER_GROUP), default=1.0)
    return float(count - in_time + in_time / factor)


def _variance(tenant: TenantRecord, histogram: Histogram) -> float:
    """Variance of a tenant's latencies in s²; of an old record, which has no squares, that of its histogram.

    The histogram's is too large where latencies scatter by less than a bucket is wide: 10 times at 0.1 %.
    """
    squares = tenant.get("sum_squares_seconds2")
    if squares is None:
        return histogram.variance()
    mean = tenant["sum_seconds"] / tenant["count"]
    variance: float = squares / tenant["count"] - mean**2
    return variance if variance > ROUNDING_RATIO * mean**2 else 0.0


def _factor(deviations: np.ndarray[Any, np.dtype[np.float64]], slots: int, count: int, independent: float) -> float:
    groups = len(deviations) // slots
    if groups < 2 or count < LEAST_PER_GROUP * groups or independent <= 0:
        return 1.0
    in_groups = np.add.reduceat(deviations, np.arange(groups) * slots)
    factor = float(groups / (groups - 1) * (in_groups @ in_groups) / independent)
    return factor if factor > _by_chance(groups - 1) else 1.0


@lru_cache
def _by_chance(degrees_of_freedom: int) -> float:
    return float(chdtri(degrees_of_freedom, CHANCE)) / degrees_of_freedom
