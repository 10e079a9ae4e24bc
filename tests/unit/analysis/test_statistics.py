"""Statistics against scipy's own intervals and tests."""

import math

import numpy as np
import pytest
from scipy import stats

from sharebench.read.statistics.intervals import (
    Estimate,
    Place,
    holm,
    log_interval,
    required_count,
    surely_below,
    welch_ratio,
)

RNG = np.random.default_rng(7)
SAMPLES = [RNG.lognormal(-4, spread, n) for n in (2, 3, 5, 12) for spread in (0.01, 0.5)]


@pytest.mark.parametrize("values", SAMPLES)
def test_log_interval_is_scipys_t_interval_of_the_logs(values):
    logs = np.log(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=logs.mean(), scale=stats.sem(logs))
    found = log_interval(values.tolist())
    assert found.value == pytest.approx(stats.gmean(values))
    assert (found.low, found.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    assert found.n == len(values)


def test_one_value_has_no_interval():
    assert log_interval([0.25]) == Estimate(pytest.approx(0.25), None, None, 1)


@pytest.mark.parametrize("values", SAMPLES[4:])
def test_with_several_devices_the_interval_is_over_their_means(values):
    devices = ["a", "b", "b", "c", "a", "c", "c", "d", "d", "d", "d", "d"][: len(values)]
    means = [np.log(values[[own == device for own in devices]]).mean() for device in sorted(set(devices))]
    low, high = stats.t.interval(0.95, len(means) - 1, loc=np.mean(means), scale=stats.sem(means))
    places = [Place(device) for device in devices]
    found = log_interval(values.tolist(), places)
    assert (found.value, found.low, found.high) == pytest.approx(tuple(np.exp([np.mean(means), low, high])))
    assert found.n == len(values)
    ratio = welch_ratio(values.tolist(), SAMPLES[0].tolist(), (places, ()))
    expected = welch_ratio(np.exp(means).tolist(), SAMPLES[0].tolist())
    assert (ratio.low, ratio.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("devices", ["aaa", "abc"])
def test_the_interval_is_unchanged_for_one_device_or_one_repeat_each(devices):
    values, places = [1.0, 1.2, 1.5], [Place(device) for device in devices]
    assert log_interval(values, places) == log_interval(values)
    assert welch_ratio(values, values, (places, places)) == welch_ratio(values, values)


FIVE = [1.0, 1.02, 1.1, 1.11, 1.12]
"""Values of five devices; the first two differ from the others by more than these do among themselves."""


@pytest.mark.parametrize(
    ("values", "machines", "units"),
    [
        pytest.param(FIVE, "aabbb", [math.sqrt(1.02), (1.1 * 1.11 * 1.12) ** (1 / 3)], id="machines differ"),
        pytest.param(FIVE, "ababa", FIVE, id="devices of one machine differ as much"),
        pytest.param(FIVE, "aaaaa", FIVE, id="one machine"),
        pytest.param(FIVE, "abcde", FIVE, id="a device on each"),
        pytest.param(FIVE, ["a", "a", "b", "b", None], FIVE, id="an old record without its machine"),
        pytest.param([1.0, 1.0, 2.0, 2.0, 2.0], "aabbb", [1.0, 2.0], id="no scatter in a machine"),
    ],
)
def test_the_machine_is_the_unit_where_machines_differ(values, machines, units):
    found = log_interval(values, [Place(str(device), machine) for device, machine in enumerate(machines)])
    expected = log_interval(units)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert found.n == len(values)
    twice = [Place(str(device), machine) for device, machine in enumerate(machines) for _ in range(2)]
    again = log_interval([value for value in values for _ in range(2)], twice)
    assert (again.low, again.high) == pytest.approx((found.low, found.high))


@pytest.mark.thorough
@pytest.mark.parametrize("repeats", [(2, 2, 1), (3, 1, 1), (3, 2), (4, 1)])
@pytest.mark.parametrize("between", [0.0, 0.02, 0.1])
def test_the_interval_covers_the_truth_for_any_spread_between_devices(repeats, between):
    rng, devices = np.random.default_rng(5), [number for number, count in enumerate(repeats) for _ in range(count)]
    shifts = rng.normal(0, between, (2000, len(repeats)))[:, devices]
    draws = np.exp(np.log(5) + shifts + rng.normal(0, 0.02, (2000, len(devices))))
    places = [Place(str(device)) for device in devices]
    estimates = [log_interval(row.tolist(), places) for row in draws]
    covered = np.mean([each.low <= 5 <= each.high for each in estimates])
    assert covered == pytest.approx(0.95, abs=0.02)
    if between == 0.1:
        naive = [log_interval(row.tolist()) for row in draws]
        assert np.mean([each.low <= 5 <= each.high for each in naive]) < 0.92


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [(2, 2), (2, 2, 2), (2, 2, 1), (3, 2), (2, 2, 2, 2, 2)])
@pytest.mark.parametrize(("between", "within"), [(0.1, 0.02), (0.045, 0.015), (0.01, 0.01), (0.0, 0.006)])
def test_the_interval_covers_the_truth_for_any_spread_between_machines(devices, between, within):
    machines = np.repeat(np.arange(len(devices)), devices)
    rng = np.random.default_rng(6)
    shifts = rng.normal(0, between, (2000, len(devices)))[:, machines]
    draws = np.exp(shifts + rng.normal(0, within, (2000, len(machines)))).tolist()
    places = [Place(str(device), str(machine)) for device, machine in enumerate(machines)]
    estimates = [log_interval(row, places) for row in draws]
    assert 0.915 <= np.mean([each.low <= 1 <= each.high for each in estimates]) <= 0.985
    if between > within:
        over_devices = [log_interval(row, [Place(device) for device, _ in places]) for row in draws]
        assert np.mean([each.low <= 1 <= each.high for each in over_devices]) < 0.85


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -2.0]])
def test_values_without_a_logarithm_are_refused(values):
    with pytest.raises(ValueError, match="positive"):
        log_interval(values)


@pytest.mark.parametrize("numerators", SAMPLES)
@pytest.mark.parametrize("denominators", SAMPLES[:4])
def test_welch_ratio_is_scipys_interval_for_unequal_variances(numerators, denominators):
    difference = stats.ttest_ind(np.log(numerators), np.log(denominators), equal_var=False)
    interval = difference.confidence_interval(0.95)
    found = welch_ratio(numerators.tolist(), denominators.tolist())
    assert found.value == pytest.approx(stats.gmean(numerators) / stats.gmean(denominators))
    assert found.low == pytest.approx(math.exp(interval.low))
    assert found.high == pytest.approx(math.exp(interval.high))
    assert found.n == len(numerators)
    assert found.probability == pytest.approx(difference.pvalue)


@pytest.mark.parametrize(("over", "under"), [([2.0], [1.0, 1.1]), ([2.0, 2.1], [1.0])])
def test_welch_ratio_of_a_single_value_has_no_interval(over, under):
    found = welch_ratio(over, under)
    assert found.value > 1.5 and found.low is None and found.high is None
    assert found.n == len(over)


@pytest.mark.parametrize(("quantile", "count"), [(0.5, 5), (0.95, 59), (0.99, 299), (0.999, 2995)])
def test_required_count_is_the_smallest_that_brackets_the_quantile(quantile, count):
    assert required_count(quantile) == count
    assert stats.binom.pmf(count, count, quantile) <= 0.05 < stats.binom.pmf(count - 1, count - 1, quantile)


@pytest.mark.parametrize("values", SAMPLES)
def test_the_p_value_of_a_ratio_is_scipys_for_the_logs(values):
    found = log_interval((values / stats.gmean(values) * 1.02).tolist())
    expected = stats.ttest_1samp(np.log(values / stats.gmean(values) * 1.02), 0)
    assert found.probability == pytest.approx(expected.pvalue)
    assert (found.probability < 0.05) == (not found.low <= 1 <= found.high)


def test_p_is_0_without_scatter_and_blank_without_interval():
    assert log_interval([1.0, 1.0]).probability == 1
    assert log_interval([1.1, 1.1]).probability == 0
    assert log_interval([1.1]).probability is None


def test_holm_by_hand():
    # Holm's own way: the smallest times 4, the next times 3, ..., never below what came before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1, 1]
    assert holm([]) == []


@pytest.mark.parametrize("n", [2, 5, 12, 49, 300])
def test_so_many_samples_above_a_lower_bound_are_no_chance(n):
    above = round(n * (1 - surely_below(0.95, n + 0.5)))
    assert stats.binom.sf(above - 1, n, 0.05) <= 0.05 < stats.binom.sf(above - 2, n, 0.05)


def test_a_sample_of_one_has_no_lower_bound():
    assert surely_below(0.95, 1.9) == surely_below(0.95, 0) == 0
