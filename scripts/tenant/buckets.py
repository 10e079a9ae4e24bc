"""Layout of the latency histograms: logarithmic buckets, 64 per doubling, from 1 µs to 1000 s.

Bucket i holds latencies in (upper(i - 1), upper(i)] with upper(i) = 1e-6 * 2**(i / 64) seconds. Bucket 0
holds everything up to 1 µs, the last one everything beyond 1000 s.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

BUCKETS_PER_DOUBLING = 64
SMALLEST_SECONDS = 1e-6
LAST_FINITE_INDEX = 1914
OVERFLOW_INDEX = 1915
BUCKET_COUNT = 1916
# A quantile that is taken from anywhere in its bucket is off by at most this share of its value.
QUANTILE_ERROR_RATIO = 2 ** (1 / BUCKETS_PER_DOUBLING) - 1

# Latencies are whole nanoseconds, so comparing them with the bounds rounded down decides exactly.
_UPPER_NS: IntArray = np.array(
    [math.floor(1000 * 2 ** (index / BUCKETS_PER_DOUBLING)) for index in range(OVERFLOW_INDEX)],
    dtype=np.int64,
)


def upper_seconds(index: int) -> float:
    """Upper bound of a bucket in seconds, infinite for the overflow. Raises IndexError outside the layout."""
    if not 0 <= index < BUCKET_COUNT:
        raise IndexError(f"bucket {index}: the layout has 0 to {OVERFLOW_INDEX}")
    return math.inf if index == OVERFLOW_INDEX else SMALLEST_SECONDS * 2 ** (index / BUCKETS_PER_DOUBLING)


def nearest_index(seconds: float) -> int:
    """The bucket whose upper bound is nearest to a time above 0, on the log scale and within the finite ones."""
    index = round(BUCKETS_PER_DOUBLING * math.log2(seconds / SMALLEST_SECONDS))
    return min(max(index, 0), LAST_FINITE_INDEX)


def bucket_index(latencies_ns: IntArray) -> npt.NDArray[np.intp]:
    """Bucket of each latency, for whole nanoseconds of any shape."""
    return np.searchsorted(_UPPER_NS, latencies_ns)


def quantile_seconds(counts: IntArray, q: float) -> float:
    """The q-quantile in seconds: geometric middle of the bucket that holds rank ceil(q n).

    `counts` has shape (BUCKET_COUNT,) and is not all zero. The first bucket answers with its upper bound, the
    overflow with infinity; elsewhere the error is below QUANTILE_ERROR_RATIO.
    """
    cumulative = np.cumsum(counts)
    index = int(np.searchsorted(cumulative, max(1, math.ceil(q * int(cumulative[-1])))))
    upper = upper_seconds(index)
    return upper if index == 0 else upper * 2 ** (-0.5 / BUCKETS_PER_DOUBLING)


def to_sparse(counts: IntArray) -> dict[str, int]:
    """The record's form of a histogram: bucket index as text to count, non-empty buckets only."""
    return {str(index): int(counts[index]) for index in np.flatnonzero(counts)}
