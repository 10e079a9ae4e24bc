"""Statistics over repeats: geometric means and ratios with 95 % Student-t intervals on the log scale.

The unit of replication is the cell run, not the iteration: the iterations of one run are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, in the unit of what went in; no bounds where `n` values give none."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class RatioTest:
    """A ratio, and p of Student's two-sided test that it is 1: below 0.05 just where the interval leaves 1 out.

    None where there is no interval.
    """

    ratio: Estimate
    probability: float | None


def log_interval(values: Sequence[float]) -> Estimate:
    """Geometric mean of positive values and exp(m ± t s / √n), m and s being mean and deviation of the logs.

    One value has no interval. Raises ValueError for no value, or one that is not positive.
    """
    return ratio_test(values).ratio


def ratio_test(values: Sequence[float]) -> RatioTest:
    """`log_interval` of ratios, such as those of pairs, and whether they are 1 on the geometric mean."""
    mean, variance = _mean_variance(_logs(values))
    return _test(mean, variance, len(values) - 1, len(values))


def welch_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """Ratio of the geometric means of two independent samples, with Welch's interval on the log scale.

    exp(d ± t √(v₁ + v₂)): d is the difference of the mean logs, v their variances, and t has the degrees of
    freedom of Welch (Biometrika 34, 1947) and Satterthwaite. No interval when either sample has one value;
    `n` is the number of numerators. Raises ValueError as `log_interval` does.
    """
    return welch_test(numerators, denominators).ratio


def welch_test(numerators: Sequence[float], denominators: Sequence[float]) -> RatioTest:
    """`welch_ratio`, and whether it is 1."""
    mean_over, variance_over = _mean_variance(_logs(numerators))
    mean_under, variance_under = _mean_variance(_logs(denominators))
    difference = mean_over - mean_under
    if variance_over is None or variance_under is None:
        return _test(difference, None, 0, len(numerators))
    variance = variance_over + variance_under
    spread = variance_over**2 / (len(numerators) - 1) + variance_under**2 / (len(denominators) - 1)
    degrees_of_freedom = variance**2 / spread if spread else 1.0
    return _test(difference, variance, degrees_of_freedom, len(numerators))


def holm(probabilities: Sequence[float]) -> list[float]:
    """The p values adjusted for being so many, by Holm's step-down method (Scandinavian J. of Statistics 6, 1979).

    In the order given: of m values the k-th smallest becomes the largest of (m - i + 1) p_i over i <= k, at most 1.
    """
    adjusted = [0.0] * len(probabilities)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(probabilities)), key=lambda i: probabilities[i])):
        largest = max(largest, min(1.0, (len(probabilities) - rank) * probabilities[index]))
        adjusted[index] = largest
    return adjusted


def required_count(quantile: float) -> int:
    """How many samples an upper 95 % bound on this quantile needs: the least n with 1 - quantileⁿ >= 0.95.

    Fewer samples may all lie below the quantile, whatever it is (299 for p99, 59 for p95, 5 for the median).
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile))


def _logs(values: Sequence[float]) -> list[float]:
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs at least one value, and all of them positive")
    return [math.log(value) for value in values]


def _mean_variance(logs: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and the variance of that mean; None for one value."""
    n = len(logs)
    mean = math.fsum(logs) / n
    if n == 1:
        return mean, None
    return mean, math.fsum((log - mean) ** 2 for log in logs) / (n - 1) / n


@lru_cache(maxsize=4096)
def _t(degrees_of_freedom: float) -> float:
    # scipy.stats.t.ppf is the same number, at half a second for its import.
    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))


def _test(mean: float, variance: float | None, degrees_of_freedom: float, n: int) -> RatioTest:
    """Of a mean of logs with the variance of that mean."""
    if variance is None:
        return RatioTest(Estimate(math.exp(mean), None, None, n), None)
    error = math.sqrt(variance)
    half = _t(degrees_of_freedom) * error
    ratio = Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)
    if error == 0:
        return RatioTest(ratio, float(mean == 0))
    return RatioTest(ratio, float(2 * stdtr(degrees_of_freedom, -abs(mean) / error)))
