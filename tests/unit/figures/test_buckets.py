"""What coarse buckets hide: the same counts in fewer buckets, and the quantiles that come of them."""

from pathlib import Path

import numpy as np
import pytest

from sharebench.figures import catalogue, data, distribution
from tenant.buckets import bucket_index
from tenant.contract import BUCKET_COUNT, upper_seconds


def recorded(latencies: np.ndarray) -> distribution.Buckets:
    counts = np.bincount(bucket_index((1e9 * latencies).astype(np.int64)), minlength=BUCKET_COUNT)
    kept = np.flatnonzero(counts)
    return np.array([upper_seconds(int(index)) for index in kept]), counts[kept].astype(float)


def test_coarse_counts_are_exact_at_bounds_of_the_record() -> None:
    latencies = np.random.default_rng(1).lognormal(np.log(0.05), 0.8, 5000)
    uppers, counts = distribution.coarse(recorded(latencies), distribution.CLIENT_DEFAULT)
    assert uppers[:-1] == pytest.approx(distribution.CLIENT_DEFAULT, rel=0.0055)
    whole_ns = (1e9 * latencies).astype(np.int64) / 1e9
    assert counts == list(np.diff([0, *(np.count_nonzero(whole_ns <= upper) for upper in uppers)]))


def test_the_fine_quantile_is_within_a_bucket_of_the_record() -> None:
    latencies = np.random.default_rng(2).lognormal(np.log(0.01), 0.5, 9999)
    for q in (0.5, 0.99):
        assert distribution.fine_quantile(recorded(latencies), q) == pytest.approx(np.quantile(latencies, q), rel=0.011)


def test_the_figure_says_what_it_shows(root: Path, study: data.DrawnStudy) -> None:
    page = distribution.buckets(study)
    text = " ".join(page.words)
    assert "matmul" in text and "Quigley's bounds" in text and "default bounds" in text
    assert "p99" in text and "by the buckets" in text
    assert len(page.axes) == 4


def test_bounds_of_the_study_take_the_place_of_others(study: data.DrawnStudy) -> None:
    own = data.DrawnStudy(
        study.data, study.results, study.config | {"prometheus": {"buckets": [0.001, 1.0]}}, study.node, ""
    )
    page = distribution.buckets(own)
    assert len(page.axes) == 2 and all("prometheus.buckets" in each for each in page.words if "by the buckets" in each)


def test_it_is_no_result_of_a_study() -> None:
    assert "buckets" in catalogue.ENTRIES
    assert "buckets" not in catalogue.names_for({"interference": [], "faults": [], "workloads": []}, "cpu")
