"""The power of a design, against many draws."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import power


@pytest.mark.parametrize(("count", "alpha"), [(5, 0.05), (3, 0.05), (5, 0.05 / power.TESTS)])
def test_the_smallest_ratio_is_found_four_times_in_five(count: int, alpha: float) -> None:
    ratio = power.detectable(0.02, count, alpha)
    draws = np.random.default_rng(1).normal(np.log(ratio), 0.02, (20_000, count))
    assert (stats.ttest_1samp(draws, 0, axis=1).pvalue < alpha).mean() == pytest.approx(0.8, abs=0.01)
