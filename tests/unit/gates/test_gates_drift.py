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
