"""Counters at moments of their own: interpolation, resets, gaps, and Prometheus's quantiles."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharebench.core import counters
from sharebench.records import histogram

STEADY = [(10.0 + each, 50.0 * each) for each in range(8)]


def test_growth_between_samples_is_interpolated_at_both_ends() -> None:
    assert counters.growth(STEADY, 11.25, 15.5) == pytest.approx(50 * 4.25)
    assert counters.growth(STEADY, 11.0, 15.0) == pytest.approx(200)


@pytest.mark.parametrize(("start", "end"), [(9.5, 12.0), (12.0, 17.5), (20.0, 21.0)])
def test_growth_is_not_known_without_samples_on_both_sides(start: float, end: float) -> None:
    assert counters.growth(STEADY, start, end) is None
    assert counters.growth([], start, end) is None


def test_a_counter_that_began_anew_goes_on() -> None:
    counter = [(0.0, 5.0), (1.0, 9.0), (2.0, 2.0), (3.0, 6.0), (4.0, 1.0)]
    assert counters.resets(counter) == 2
    assert [value for _, value in counters.continued(counter)] == [5.0, 9.0, 11.0, 15.0, 16.0]
    assert counters.growth(counter, 0.0, 4.0) == pytest.approx(11.0)


def test_the_longest_gap_is_that_which_touches_the_window() -> None:
    samples = [(0.0, 1.0), (6.0, 1.0), (7.0, 1.0), (10.0, 1.0), (11.0, 1.0), (20.0, 1.0)]
    assert counters.longest_gap(samples, 6.5, 10.5) == pytest.approx(3.0)
    assert counters.longest_gap(samples, 5.0, 10.5) == pytest.approx(6.0)
    assert counters.longest_gap(samples, 6.5, 12.0) == pytest.approx(9.0)
    assert counters.inside(samples, 6.5, 10.5) == 2


def test_what_is_missing_at_the_ends_of_the_window_is_a_gap_too() -> None:
    assert counters.longest_gap([(3.0, 0.0), (4.0, 0.0)], 0.0, 9.0) == pytest.approx(5.0)
    assert counters.longest_gap([], 0.0, 9.0) is None


def test_buckets_grow_as_their_total_does() -> None:
    buckets = {
        math.inf: [(0.0, 0.0), (10.0, 100.0)],
        0.1: [(0.0, 0.0), (10.0, 30.0)],
        0.5: [(0.0, 0.0), (10.0, 90.0)],
    }
    found = counters.bucket_growth(buckets, 2.0, 7.0)
    assert found is not None
    uppers, counts = found
    assert uppers == [0.1, 0.5, math.inf]
    assert counts == pytest.approx([15.0, 30.0, 5.0])
    assert counters.bucket_growth(buckets, 2.0, 11.0) is None
    assert counters.bucket_growth({}, 2.0, 7.0) is None


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        # Rank 50 of 100 is the 30th of 40 in (0.1, 0.5]; rank 95 lies in the last bucket, rank 10 in the first.
        (0.5, 0.1 + 0.4 * 30 / 40),
        (0.95, 0.5),
        (0.1, 0.05),
        (0.2, 0.1),
    ],
)
def test_a_quantile_is_prometheuss(q: float, expected: float) -> None:
    assert histogram.histogram_quantile(q, [0.1, 0.5, math.inf], [20, 40, 40]) == pytest.approx(expected)


def test_no_quantile_of_nothing() -> None:
    assert histogram.histogram_quantile(0.5, [0.1, math.inf], [0, 0]) is None
    assert histogram.histogram_quantile(0.5, [math.inf], [3]) is None


def test_the_published_case_of_three_strategies_that_look_alike() -> None:
    """Means of 215, 227 and 239 ms in (0.1, 0.25] s: 175.0 and 248.5 ms, whatever the truth (Quigley's buckets)."""
    bounds = [0.001, 0.01, 0.1, 0.25, 0.5, math.inf]
    for mean in (0.215, 0.227, 0.239):
        latencies = np.random.default_rng(1).normal(mean, 0.001, 10_000)
        counts, _ = np.histogram(latencies, [0.0, *bounds])
        assert histogram.histogram_quantile(0.5, bounds, counts) == pytest.approx(0.175)
        assert histogram.histogram_quantile(0.99, bounds, counts) == pytest.approx(0.2485)


@given(
    st.lists(st.integers(0, 50), min_size=3, max_size=12).filter(lambda counts: sum(counts[:-1]) > 0),
    st.floats(0.01, 1),
)
def test_a_quantile_lies_in_the_bucket_that_holds_its_rank(counts: list[int], q: float) -> None:
    uppers = [float(each) for each in range(1, len(counts))] + [math.inf]
    found = histogram.histogram_quantile(q, uppers, counts)
    assert found is not None
    expected = int(np.searchsorted(np.cumsum(counts), q * sum(counts) - 1e-9))
    if expected >= len(counts) - 1:
        assert found == uppers[-2]
    else:
        assert (uppers[expected - 1] if expected else 0.0) - 1e-6 <= found <= uppers[expected] + 1e-6
