"""Histograms: merging of counts, and quantiles compared with exact samples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharebench.read.histogram import Histogram, Quantile, merge
from tenant.contract import BUCKET_COUNT, OVERFLOW_INDEX, upper_seconds
from tenant.recorder import bucket_index, to_sparse


def histogram_of(seconds):
    """Histogram of latencies in seconds."""
    nanoseconds = np.rint(np.asarray(seconds, dtype=float) * 1e9).astype(np.int64)
    return Histogram(np.bincount(bucket_index(nanoseconds), minlength=BUCKET_COUNT))


sparse_counts = st.dictionaries(st.integers(0, BUCKET_COUNT - 1).map(str), st.integers(1, 10**9), max_size=30)


@given(sparse_counts, sparse_counts)
def test_merging_adds_the_counts_of_sparse_forms(one, other):
    expected = {key: one.get(key, 0) + other.get(key, 0) for key in one | other}
    both = merge(map(Histogram.from_sparse, (one, other)))
    assert to_sparse(both.counts) == expected
    assert both.count == sum(expected.values())


@pytest.mark.parametrize("index", [str(BUCKET_COUNT), "99999"])
def test_an_index_outside_the_layout_is_refused(index):
    with pytest.raises(ValueError, match=index):
        Histogram.from_sparse({index: 1})


@given(
    st.lists(st.floats(math.log(1.1e-6), math.log(999.0)).map(math.exp), min_size=1, max_size=200),
    st.floats(0.001, 1.0),
)
def test_the_exact_quantile_is_within_the_error_bound(samples, q):
    nanoseconds = sorted(round(sample * 1e9) for sample in samples)
    exact = nanoseconds[max(1, math.ceil(q * len(samples))) - 1] / 1e9
    found = histogram_of(samples).quantiles([q])[0]
    assert found.value_seconds is not None
    assert found.low_seconds < exact * (1 + 1e-12) and exact <= found.high_seconds * (1 + 1e-12)
    assert abs(exact / found.value_seconds - 1) * 100 <= found.error_percent * (1 + 1e-9)
    assert found.error_percent < 1.1


def test_interpolation_is_linear_on_the_log_scale():
    ten = Histogram.from_sparse({"640": 10})
    low, high = upper_seconds(639), upper_seconds(640)
    for q in (0.1, 0.5, 0.9, 1.0):
        assert ten.quantiles([q])[0] == Quantile(pytest.approx(low ** (1 - q) * high**q), low, high)


def test_the_first_bucket_has_no_value_and_the_overflow_is_infinite():
    ends = Histogram.from_sparse({"0": 5, str(OVERFLOW_INDEX): 5})
    assert ends.quantiles([0.5])[0] == Quantile(None, 0.0, 1e-6)
    assert ends.quantiles([0.9])[0] == Quantile(math.inf, upper_seconds(OVERFLOW_INDEX - 1), math.inf)
    for q in (0.5, 0.9):
        assert not ends.quantiles([q])[0].is_bounded
        assert math.isinf(ends.quantiles([q])[0].error_percent)


def test_extremes_tighten_a_quantile():
    quantile = histogram_of([0.005] * 100).quantiles([0.99])[0]
    assert quantile.value_seconds > 0.005
    tightened = quantile.within(0.005, 0.005)
    assert tightened == Quantile(0.005, 0.005, 0.005)
    assert tightened.error_percent == 0
    assert quantile.within(0.001, 0.1) == quantile


def test_an_empty_histogram_has_no_quantile():
    with pytest.raises(ValueError, match="empty"):
        merge([]).quantiles([0.5])[0]


@pytest.mark.parametrize("q", [0.0, -0.1, 1.5])
def test_a_quantile_outside_0_to_1_is_refused(q):
    with pytest.raises(ValueError, match=str(q)):
        histogram_of([1.0]).quantiles([q])[0]
