"""Effective sample size: against the known factor of autoregressive noise, and the noise of independent iterations."""

import numpy as np
import pytest
from scipy import stats
from unit.factories import back_to_back, closed_load, record, scraped, tenant

from sharebench.read.cells.rows import reduce_record
from sharebench.read.statistics.effective import (
    CHANCE,
    SLOTS_PER_GROUP,
    effective_count,
    latency_series,
    latency_variance,
)


def sample_size(*tenants):
    """The effective sample size of these records."""
    return effective_count(list(map(latency_series, tenants)))


def autoregressive(rng, correlation, count, cv=0.2):
    """Latencies around 5 ms whose logs are an AR(1) process."""
    shocks = rng.normal(size=count)
    logs = np.empty(count)
    logs[0] = shocks[0]
    for i in range(1, count):
        logs[i] = correlation * logs[i - 1] + np.sqrt(1 - correlation**2) * shocks[i]
    return 0.005 * np.exp(cv * logs)


def window_record(latencies):
    """The record of a window that these latencies fill."""
    return tenant(0, back_to_back(latencies), window_seconds=float(np.sum(latencies)))


@pytest.mark.thorough
@pytest.mark.parametrize(("correlation", "factor"), [(0.5, 3.0), (0.8, 9.0)])
def test_the_factor_is_that_of_an_autoregressive_process(correlation, factor):
    rng = np.random.default_rng(1)
    # (1 + φ) / (1 - φ): the integrated autocorrelation of AR(1). The largest of three estimates errs upwards.
    found = [8000 / sample_size(window_record(autoregressive(rng, correlation, 8000))) for _ in range(30)]
    assert factor < np.median(found) < 1.4 * factor


@pytest.mark.thorough
@pytest.mark.parametrize("cv", [0.2, 0.01, 0.001])
def test_the_factor_does_not_depend_on_how_narrow_the_distribution_is(cv):
    rng = np.random.default_rng(8)
    made = [window_record(autoregressive(rng, 0.9, 2000, cv)) for _ in range(30)]
    factor = np.median([2000 / sample_size(each) for each in made])
    # The factor is 19, and groups have at least 50 iterations. The histogram's buckets are 1.1 % wide.
    assert 14 < factor < 24
    old = [{key: value for key, value in each.items() if key != "sum_squares_seconds2"} for each in made]
    assert (np.median([2000 / sample_size(each) for each in old]) > 14) == (cv > 0.001)


@pytest.mark.thorough
def test_correlation_beyond_a_slot_is_detected_in_longer_groups():
    rng = np.random.default_rng(2)
    # With 8 iterations a slot, the factor of 19 would look like 6 in groups of one slot.
    found = [320 / sample_size(window_record(autoregressive(rng, 0.9, 320))) for _ in range(60)]
    assert np.median(found) > 9


@pytest.mark.thorough
@pytest.mark.parametrize("cv", [0.02, 0.3, 1.5])
def test_independent_iterations_count_in_full_except_by_chance(cv):
    rng = np.random.default_rng(3)
    studies = 600
    reduced_ones = 0
    for _ in range(studies):
        made = tenant(0, closed_load(rng, 0.005, cv, 2.0))
        reduced_ones += sample_size(made) < made["count"]
    # Each of the three group sizes alone exceeds its limit once in a hundred.
    assert reduced_ones <= stats.binom.ppf(0.999, studies, len(SLOTS_PER_GROUP) * CHANCE * (1 if cv < 1 else 2))


def test_a_stall_of_all_tenants_at_once_is_one_stall():
    rng = np.random.default_rng(5)
    slow = rng.random(40) < 0.3
    shared = [np.repeat(np.where(slow, 0.010, 0.005), 10) * rng.lognormal(0, 0.02, 400) for _ in range(4)]
    together = sample_size(*(window_record(latencies) for latencies in shared))
    alone = sample_size(window_record(shared[0]))
    assert alone < 100
    assert together == pytest.approx(alone, rel=0.35), "four tenants in step know no more than one"


def test_without_a_timeline_every_iteration_counts():
    made = window_record(autoregressive(np.random.default_rng(6), 0.9, 400))
    assert sample_size(made | {"timeline": None}) == 400
    assert sample_size() == 0


def test_a_percentile_needs_the_effective_sample_size():
    latencies = autoregressive(np.random.default_rng(7), 0.8, 1500)
    cell = reduce_record(record(latencies=[latencies], window_seconds=float(latencies.sum())))
    assert cell.count == 1500 and cell.effective_count < 299
    assert "p95" in cell.percentiles and "p99" not in cell.percentiles
    (row,) = cell.rows
    assert row.other_columns["effective_count"] == int(cell.effective_count)
    assert "latency_p99_seconds" not in row.other_columns and row.other_columns["latency_p95_seconds"]


def test_the_variance_of_a_tenant_without_squares_is_that_of_its_buckets_of_either_kind():
    values = np.random.default_rng(6).lognormal(-5, 0.5, 500)
    made = tenant(0, back_to_back(values))
    assert latency_variance(made) == pytest.approx(values.var(), rel=1e-6)
    old = {key: value for key, value in made.items() if key != "sum_squares_seconds2"}
    assert latency_variance(old) == pytest.approx(values.var(), rel=0.02)
    foreign = scraped(made, [0.05, 0.1, None], [50, 50, 0])
    assert latency_variance(foreign) == pytest.approx(0.1**2 / 12), "two even halves: 0 to 0.1 s"
    with pytest.raises(ValueError, match="no latency"):
        latency_variance(scraped(made, [0.05, None], [0, 0]))
