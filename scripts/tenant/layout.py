"""Layout of the latency histograms: logarithmic buckets, 64 per doubling, from 1 µs to 1000 s.

Bucket i holds latencies in (upper(i - 1), upper(i)] with upper(i) = 1e-6 * 2**(i / 64) seconds. Bucket 0
holds everything up to 1 µs, the last one everything beyond 1000 s.

Measuring jobs import this module, so it imports nothing heavy (no numpy).
"""

from __future__ import annotations

import math

BUCKETS_PER_DOUBLING = 64
SMALLEST_SECONDS = 1e-6
LAST_FINITE_INDEX = 1914
OVERFLOW_INDEX = 1915
BUCKET_COUNT = 1916
# A quantile that is taken from anywhere in its bucket is off by at most this share of its value.
QUANTILE_ERROR_RATIO = 2 ** (1 / BUCKETS_PER_DOUBLING) - 1


def upper_seconds(index: int) -> float:
    """Upper bound of a bucket in seconds, infinite for the overflow. Raises IndexError outside the layout."""
    if not 0 <= index < BUCKET_COUNT:
        raise IndexError(f"bucket {index}: the layout has 0 to {OVERFLOW_INDEX}")
    return math.inf if index == OVERFLOW_INDEX else SMALLEST_SECONDS * 2 ** (index / BUCKETS_PER_DOUBLING)


def lower_seconds(index: int) -> float:
    """Lower bound of a bucket in seconds: the upper one of the bucket before. Raises IndexError outside the layout."""
    return upper_seconds(index - 1) if index else 0.0


def nearest_index(seconds: float) -> int:
    """The bucket whose upper bound is nearest to a time above 0, on the log scale and within the finite ones."""
    index = round(BUCKETS_PER_DOUBLING * math.log2(seconds / SMALLEST_SECONDS))
    return min(max(index, 0), LAST_FINITE_INDEX)
