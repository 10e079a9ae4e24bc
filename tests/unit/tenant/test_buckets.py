import math

import numpy as np
import pytest

from tenant.contract import BUCKET_COUNT, LAST_FINITE_INDEX, OVERFLOW_INDEX, QUANTILE_ERROR_RATIO, upper_seconds
from tenant.recorder import bucket_index, quantile_seconds


def largest_ns_within(index: int) -> int:
    """The largest whole L with L^64 <= 1000^64 * 2^index, by integers only."""
    value = 1000**64 << index
    for _ in range(6):
        value = math.isqrt(value)
    return value


def test_a_bucket_bound_belongs_to_the_bucket_below_it() -> None:
    edges = np.array([largest_ns_within(index) for index in range(LAST_FINITE_INDEX + 1)])
    assert bucket_index(edges).tolist() == list(range(LAST_FINITE_INDEX + 1))
    assert bucket_index(edges + 1).tolist() == list(range(1, LAST_FINITE_INDEX + 2))


def test_latencies_up_to_a_microsecond_are_in_the_first_bucket_and_the_longest_overflow() -> None:
    assert bucket_index(np.array([0, 1, 1000, 1001])).tolist() == [0, 0, 0, 1]
    assert bucket_index(np.array([10**15])).tolist() == [OVERFLOW_INDEX]


def test_the_layout_reaches_1000_seconds_with_64_buckets_per_doubling() -> None:
    assert upper_seconds(LAST_FINITE_INDEX) >= 1000 > upper_seconds(LAST_FINITE_INDEX - 1)
    assert upper_seconds(64) == pytest.approx(2e-6)
    assert math.isinf(upper_seconds(OVERFLOW_INDEX))
    assert OVERFLOW_INDEX + 1 == BUCKET_COUNT == 1916
    for outside in (-1, BUCKET_COUNT):
        with pytest.raises(IndexError):
            upper_seconds(outside)


@pytest.mark.parametrize("q", [0.001, 0.5, 0.95, 0.99, 1.0])
def test_quantiles_stay_within_the_error_bound(q: float) -> None:
    latencies_ns = (np.exp(np.random.default_rng(1).normal(-6, 3, 5000)) * 1e9).astype(np.int64) + 1001
    counts = np.bincount(bucket_index(latencies_ns), minlength=BUCKET_COUNT)
    exact = np.quantile(latencies_ns, q, method="inverted_cdf") / 1e9
    assert quantile_seconds(counts, q) == pytest.approx(exact, rel=QUANTILE_ERROR_RATIO)
    assert QUANTILE_ERROR_RATIO <= 0.011
