"""The effective sample size of a window, whose successive iterations are rarely independent.

Batch means. A window is divided into G groups of neighbouring slots of its timeline, and a sum of deviations from the
tenant's mean, d_g = Σ (sum - mean × count), is taken in each. If iterations are independent, the sum of a group has
the variance (iterations in it) × σ², so that

    factor = G / (G - 1) × Σ d_g² / (n σ²)

is about 1, and in general it is 1 + 2 Σ r_k with the correlations r_k at lag k, as far as they fit into a group. This
is the method of batch means (Law, Simulation Modeling and Analysis, §9.5.3) with the ratio estimator, since groups
differ in count (Cochran, Sampling Techniques, 1977, §2.11). Slots of fixed length instead of fixed count do no harm: an
iteration belongs to the slot in which it starts, so the count is a stopping time, and Wald's second identity gives the
variance. The effective sample size is n / factor.

Groups of one, two and four slots are tried, since a group shows only part of a correlation that outlasts it. A factor
that independent iterations would show at least once in a hundred windows (χ² with G - 1 degrees of freedom) counts as
1. The largest of the others counts, which underestimates the sample size by about a fifth. The factor is about the
mean: a record has too little of a tail to estimate the dependence of rare iterations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from sharebench.model.records.types import TenantRecord
from sharebench.read.histogram import bucket_variance, tenant_buckets
from tenant.contract import TIMELINE_SLOTS

Floats = NDArray[np.float64]

SLOTS_PER_GROUP = (1, 2, 4)
CHANCE = 0.01
# A group with fewer iterations has no information.
MIN_PER_GROUP = 2
# Relative rounding error of a difference of two sums of doubles: a spread below a millionth of the mean counts as 0.
ROUNDING_RATIO = 1e-12


@dataclass(frozen=True, slots=True)
class Series:
    """Times of one tenant: count, sum, variance in s², and count and sum by slot (None if not known)."""

    count: int
    sum_seconds: float
    variance: float
    slots: tuple[Floats, Floats] | None


def latency_series(tenant: TenantRecord) -> Series:
    count, timeline = tenant["count"], tenant["timeline"]
    if not count or timeline is None:
        return Series(count, tenant["sum_seconds"], 0.0, None)
    slots = (np.array(timeline["count"], dtype=np.float64), np.array(timeline["sum_seconds"], dtype=np.float64))
    return Series(count, tenant["sum_seconds"], latency_variance(tenant), slots)


def value_series(starts_seconds: Floats, seconds: Floats, window_seconds: float) -> Series:
    """A series from single times; `starts_seconds` are their moments from the window's start."""
    if not seconds.size:
        return Series(0, 0.0, 0.0, None)
    slot = np.clip(starts_seconds * TIMELINE_SLOTS / window_seconds, 0, TIMELINE_SLOTS - 1).astype(int)
    slots = (
        np.bincount(slot, minlength=TIMELINE_SLOTS).astype(float),
        np.bincount(slot, seconds, minlength=TIMELINE_SLOTS).astype(float),
    )
    return Series(seconds.size, float(seconds.sum()), _zero_if_rounding(seconds.var(), seconds.mean()), slots)


def effective_count(series: Sequence[Series]) -> float:
    """The effective sample size of all times of these tenants together, at most their number.

    Deviations are taken from each tenant's own mean and added up slot by slot, so that a stall that hits all tenants at
    once counts as one. A tenant without slots counts with all its times.
    """
    count = sum(each.count for each in series)
    timed = [(each, each.slots) for each in series if each.count and each.slots]
    if not timed:
        return float(count)
    deviations = np.sum([sums - each.sum_seconds / each.count * counts for each, (counts, sums) in timed], axis=0)
    independent = sum(each.count * each.variance for each, _ in timed)
    in_time = sum(each.count for each, _ in timed)
    factor = max((_factor(deviations, each, in_time, independent) for each in SLOTS_PER_GROUP), default=1.0)
    return float(count - in_time + in_time / factor)


def latency_variance(tenant: TenantRecord) -> float:
    """Variance of a tenant's latencies in s², without squares that of its buckets. Raises ValueError without any."""
    squares = tenant.get("sum_squares_seconds2")
    if squares is None:
        return bucket_variance(tenant_buckets(tenant))
    mean = tenant["sum_seconds"] / tenant["count"]
    return _zero_if_rounding(squares / tenant["count"] - mean**2, mean)


def _zero_if_rounding(variance: float, mean: float) -> float:
    return float(variance) if variance > ROUNDING_RATIO * mean**2 else 0.0


def _factor(deviations: Floats, slots: int, count: int, independent: float) -> float:
    groups = len(deviations) // slots
    if groups < 2 or count < MIN_PER_GROUP * groups or independent <= 0:
        return 1.0
    in_groups = np.add.reduceat(deviations, np.arange(groups) * slots)
    factor = float(groups / (groups - 1) * (in_groups @ in_groups) / independent)
    return factor if factor > _chance_factor(groups - 1) else 1.0


@lru_cache
def _chance_factor(degrees_of_freedom: int) -> float:
    return float(chdtri(degrees_of_freedom, CHANCE)) / degrees_of_freedom
