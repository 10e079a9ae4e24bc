"""Draws from what repeats tell about a mean, for quantities that are derived from several of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sharebench.analysis.statistics import CONFIDENCE

# The ends of an interval from so many draws are within about 2 % of its width.
DRAWS = 4000
# Of two repeats a few draws are beyond all bounds; so far out, squares and quotients of them are still numbers.
LARGEST_LOG = 300.0


def mean_draws(values: Sequence[float], size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """`size` draws of the geometric mean that positive repeats `values` stand for, in their unit.

    exp(m + t s / √n) with t from Student's distribution of n - 1 degrees of freedom: their 2.5 and 97.5 % quantiles are
    the ends of `statistics.log_interval`. One value has no spread, so all draws are NaN. Raises ValueError for no
    value, or one that is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs at least one value, and all of them positive")
    n = len(values)
    if n == 1:
        return np.full(size, math.nan)
    logs = np.log(np.asarray(values, dtype=np.float64))
    return _exp(logs.mean() + logs.std(ddof=1) / math.sqrt(n) * rng.standard_t(n - 1, size))


def repeat_draws(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws of the geometric mean over repeats whose values are draws themselves, shape (repeats, draws) → (draws,).

    As `mean_draws`, with the mean and the deviation of each column of repeats in its turn: all repeats of a column come
    from one draw of what they share. NaN for one repeat.
    """
    n, size = values.shape
    if n == 1:
        return np.full(size, math.nan)
    logs = np.log(values)
    spread = logs.std(axis=0, ddof=1) / math.sqrt(n)
    return _exp(logs.mean(axis=0) + spread * rng.standard_t(n - 1, size))


def interval_of(draws: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """The ends between which 95 % of the draws lie, 2.5 % below and above; None where there are no draws."""
    if np.isnan(draws).any():
        return None, None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def _exp(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG))
    return values
