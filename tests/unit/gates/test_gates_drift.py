"""Gates of a window that changes: drift between its halves, and another level in part of it."""

import numpy as np
import pytest
from scipy import stats
from unit import factories
from unit.factories import WINDOW_SECONDS, Load, back_to_back, gate_verdict, poisson_load

from sharebench.read.gates import drift, gates


def ramp(start, end, count=400, cv=0.02, seed=0):
    """A closed load whose mean latency changes linearly from `start` to `end`."""
    noise = factories.lognormal(np.random.default_rng(seed), 1.0, cv, count)
    return back_to_back(np.linspace(start, end, count) * noise)


def two_levels(first, second, cv=0.02, seed=0):
    """A closed load whose mean latency steps in the middle of the window."""
    rng = np.random.default_rng(seed)
    one, two = (factories.lognormal(rng, mean, cv, int(1 / mean)) for mean in (first, second))
    return back_to_back(np.concatenate([one, two]))


@pytest.mark.parametrize(
    ("load", "drifts"),
    [
        (two_levels(0.005, 0.0054), False),
        (two_levels(0.005, 0.0058), True),
        (two_levels(0.0058, 0.005), True),
        (two_levels(0.005, 0.0075, cv=0.2), True),
        (ramp(0.0047, 0.0053, 400), False),
        (ramp(0.004, 0.006, 400), True),
        (two_levels(0.1, 0.125), True),
    ],
)
def test_drift_is_a_change_beyond_ten_percent_and_beyond_noise(load, drifts):
    assert gate_verdict(factories.record("mps", [[0.005] * 400, load]), "drift")["passed"] == (not drifts)


def test_a_large_change_within_the_noise_is_not_drift():
    noisy = back_to_back(np.concatenate([np.tile([0.02, 0.2], 5), np.tile([0.05, 0.2], 4)]))
    found = gate_verdict(factories.record("exclusive", [noisy]), "drift")
    assert found["passed"] and found["value"] > 0.1 and found["limit"] > found["value"]


def test_a_step_in_an_open_load_is_drift():
    rng = np.random.default_rng(5)
    starts = np.sort(rng.uniform(0, WINDOW_SECONDS, 800))
    latencies = np.where(starts < 1, 0.002, 0.003) * factories.lognormal(rng, 1.0, 0.02, 800)
    load = Load(starts, latencies, "poisson", 400.0, latencies.sum() / WINDOW_SECONDS)
    assert not gate_verdict(factories.record("exclusive", [load]), "drift")["passed"]


def load_with_group_means(means):
    """A closed load with 20 iterations in each of 20 equal parts of the window, all of the part's mean latency."""
    starts = (np.arange(400) + 0.5) * WINDOW_SECONDS / 400
    return Load(starts, np.repeat(means, 20))


@pytest.mark.parametrize("before", [7, 10, 13])
@pytest.mark.parametrize("width", [0, 6])
def test_the_drift_limit_does_not_grow_with_the_drift(before, width):
    # The level falls by a third, at once or over part of the window, at its middle or elsewhere.
    means = np.interp(np.arange(20), [before - width / 2 - 0.5, before + width / 2 - 0.5], [0.0072, 0.0048])
    noise = factories.lognormal(np.random.default_rng(3), 1.0, 0.05, 20)
    found = gate_verdict(factories.record("exclusive", [load_with_group_means(means * noise)]), "drift")
    assert found["value"] > 0.2 and not found["passed"]


def two_states(seed, dwell_seconds, levels=(0.0045, 0.008), cv=0.03):
    """A closed load that alternates between two levels and stays at each for a random time."""
    rng = np.random.default_rng(seed)
    latencies, now, level, until = [], 0.0, rng.integers(2), rng.exponential(dwell_seconds)
    while now < WINDOW_SECONDS:
        while now > until:
            level, until = 1 - level, until + rng.exponential(dwell_seconds)
        latencies.append(levels[level] * rng.lognormal(0, cv))
        now += latencies[-1]
    return back_to_back(latencies)


@pytest.mark.thorough
@pytest.mark.parametrize(("dwell_ratio", "least"), [(0.2, 65), (0.4, 70)])
def test_a_tenant_that_alternates_between_two_levels_is_marked(dwell_ratio, least):
    # A window often has only one long state, and short states are indistinguishable from noise.
    found = [
        gates.evaluate(factories.record("exclusive", [two_states(seed, dwell_ratio * WINDOW_SECONDS)]))
        for seed in range(100)
    ]
    failed = [{each["name"] for each in own if not each["passed"]} for own in found]
    assert sum(bool(own & {"drift", "level_shift"}) for own in failed) >= least
    assert sum("drift" in own for own in failed) < sum("level_shift" in own for own in failed)


def test_one_slow_iteration_is_not_a_level_shift():
    latencies = [0.005] * 160 + [0.4] + [0.005] * 160
    found = gate_verdict(factories.record("exclusive", [latencies]), "level_shift")
    assert found["passed"]


def test_a_job_may_become_faster_when_its_neighbours_are_done():
    job = back_to_back([0.01] * 100 + [0.005] * 200)
    record = factories.record("mps", [job])
    assert not gate_verdict(record, "drift")["passed"] and not gate_verdict(record, "level_shift")["passed"]
    record["tenants"][0]["job"] = {"iterations": 300, "completed": 300, "start_delay_seconds": 0.0}
    assert gate_verdict(record, "drift")["passed"] and gate_verdict(record, "level_shift") is None


@pytest.mark.thorough
def test_slow_waves_of_a_queue_are_not_drift():
    records = [
        factories.record(
            "mps", [poisson_load(np.random.default_rng(seed), 0.01, 0.2, WINDOW_SECONDS, utilisation=0.95)]
        )
        for seed in range(300)
    ]
    found = [gate_verdict(each, "drift") for each in records]
    assert sum(each["value"] > 0.1 for each in found) > 200
    assert sum(not each["passed"] for each in found) <= 1


def test_the_critical_values_are_students():
    for groups, value in drift.DRIFT_T.items():
        assert value == pytest.approx(stats.t.isf(0.5e-3, 2 * (groups - 1) * 2 / 3), abs=0.01)
    for groups, value in drift.OPEN_DRIFT_T.items():
        assert value == pytest.approx(stats.t.isf(0.5e-4, groups - 1), abs=0.01)


def uneven_load(seed, arrival="closed", cv=0.3):
    """200 slots of the window with 1 to 9 iterations each."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 10, 200)
    starts = np.repeat(np.arange(200) + 0.5, counts) * WINDOW_SECONDS / 200
    latencies = factories.lognormal(rng, 0.005, cv, counts.sum())
    return Load(starts, latencies, arrival, None if arrival == "closed" else 500.0)


def grouped(record, groups):
    """Counts, sums and means of equal runs of slots, and the variance of an iteration by each pair of neighbours."""
    timeline = record["tenants"][0]["timeline"]
    counts, sums = (np.reshape(timeline[key], (groups, -1)).sum(axis=1) for key in ("count", "sum_seconds"))
    means = sums / counts
    return counts, sums, means, np.diff(means) ** 2 / (1 / counts[1:] + 1 / counts[:-1])


@pytest.mark.parametrize("seed", range(3))
def test_the_limit_of_a_closed_load_is_t_times_the_standard_error(seed, monkeypatch):
    monkeypatch.setattr(drift, "DRIFT_RATIO", 0.0)
    record = factories.record("exclusive", [uneven_load(seed)])
    counts, sums, _, variances = grouped(record, 20)
    variance = np.delete(variances, 9).mean()  # not the pair across the middle
    before, after = sums[:10].sum() / counts[:10].sum(), sums[10:].sum() / counts[10:].sum()
    error = np.sqrt(variance * (1 / counts[:10].sum() + 1 / counts[10:].sum()))
    found = gate_verdict(record, "drift")
    assert found["value"] == pytest.approx(abs(after - before) / before)
    assert found["limit"] == pytest.approx(stats.t.isf(0.5e-3, 12) * error / before, rel=2e-3)


def test_the_limit_of_an_open_load_is_that_of_ratios_of_groups(monkeypatch):
    monkeypatch.setattr(drift, "DRIFT_RATIO", 0.0)
    record = factories.record("exclusive", [uneven_load(1, "poisson")])
    counts, sums, _, _ = grouped(record, 10)
    errors = []
    for half in (slice(5), slice(5, 10)):
        residuals = sums[half] - counts[half] * sums[half].sum() / counts[half].sum()
        errors.append(np.var(residuals, ddof=1) * 5 / counts[half].sum() ** 2)
    expected = stats.t.isf(0.5e-4, 4) * np.sqrt(sum(errors)) / (sums[:5].sum() / counts[:5].sum())
    assert gate_verdict(record, "drift")["limit"] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(("errors", "off"), [(4.8, False), (5.2, True)])
def test_a_level_is_off_from_five_standard_errors_on(errors, off, monkeypatch):
    monkeypatch.setattr(drift, "DRIFT_RATIO", 0.0)
    # Neighbours differ by turns, so the median of their variances is that of each pair.
    means = 0.005 + 0.0001 * (-1.0) ** np.arange(20)
    variance = 0.0002**2 / (2 / 20) / stats.chi2.median(1)
    means[18] = np.median(means) + errors * np.sqrt(variance / 20)
    found = gate_verdict(factories.record("exclusive", [load_with_group_means(means)]), "level_shift")
    assert found["value"] == pytest.approx(0.05 if off else 0)


@pytest.mark.parametrize(("groups", "passed"), [(2, True), (3, False)])
def test_a_tenth_of_the_window_may_be_off_the_level(groups, passed):
    means = np.full(20, 0.005)
    means[4 : 4 + groups] *= 1.3
    found = gate_verdict(factories.record("exclusive", [load_with_group_means(means)]), "level_shift")
    assert (found["value"], found["passed"]) == (pytest.approx(groups / 20), passed)


def test_a_level_is_off_beyond_a_tenth():
    for excess, share in ((0.09, 0.0), (0.11, 0.05)):
        means = np.full(20, 0.005)
        means[4] *= 1 + excess
        found = gate_verdict(factories.record("exclusive", [load_with_group_means(means)]), "level_shift")
        assert found["value"] == pytest.approx(share)


@pytest.mark.parametrize(("parts", "is_known"), [(20, True), (10, True), (9, False)])
def test_groups_without_iterations_need_coarser_ones(parts, is_known):
    """20 groups, else 10 of double length, each with an iteration; else there is nothing to tell."""
    starts = (np.arange(parts) + 0.5) * WINDOW_SECONDS / parts
    found = gate_verdict(factories.record("exclusive", [Load(starts, np.full(parts, 0.001))]), "drift")
    assert found["passed"] and (found["value"] is not None) == is_known
