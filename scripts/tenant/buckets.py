"""Counting latencies in the buckets of `tenant.contract`."""

import math

import numpy as np
import numpy.typing as npt

from tenant.contract import BUCKETS_PER_DOUBLING, OVERFLOW_INDEX, upper_seconds

IntArray = npt.NDArray[np.int64]

# Latencies are whole nanoseconds, so comparing them with the bounds rounded down decides exactly.
_UPPER_NS: IntArray = np.array(
    [math.floor(1000 * 2 ** (index / BUCKETS_PER_DOUBLING)) for index in range(OVERFLOW_INDEX)],
    dtype=np.int64,
)


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
