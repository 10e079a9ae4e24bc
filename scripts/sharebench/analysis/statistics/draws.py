"""Draws from what repeats tell about a mean, for quantities that are derived from several of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
    drawn = logs.mean() + logs.std(ddof=1) / math.sqrt(n) * rng.standard_t(n - 1, size)
    draws: NDArray[np.float64] = np.exp(np.clip(drawn, -LARGEST_LOG, LARGEST_LOG))
    return draws
