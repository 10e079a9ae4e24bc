import numpy as np
import pytest

from sharebench.analysis.statistics.intervals import log_interval, mean_draws


def test_draws_have_the_interval_of_the_mean() -> None:
    values = [1.0, 1.1, 1.3, 1.05]
    ends = np.quantile(mean_draws(values, 200_000, np.random.default_rng(1)), [0.025, 0.5, 0.975])
    expected = log_interval(values)
    assert ends == pytest.approx([expected.low, expected.value, expected.high], rel=0.01)


def test_one_value_has_no_draws_and_none_is_an_error() -> None:
    assert np.isnan(mean_draws([2.0], 3, np.random.default_rng(1))).all()
    for values in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match="positive"):
            mean_draws(values, 3, np.random.default_rng(1))


def test_draws_of_two_repeats_stay_numbers_however_far_out() -> None:
    draws = mean_draws([1.0, 9.0], 50_000, np.random.default_rng(1))
    assert np.isfinite(draws**2).all() and np.isfinite(1 / draws**2).all()
