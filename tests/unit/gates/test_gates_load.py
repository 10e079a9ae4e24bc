"""Gates of open loads: a load that was not the one asked for, and a queue that grows for as long as anybody looks."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from unit import factories
from unit.factories import WINDOW_SECONDS, Load, gate_verdict, poisson_load

from sharebench.datasets.dataset import verified_folder
from sharebench.model.records.record import read
from sharebench.read.gates import gates

PUBLISHED = verified_folder(Path(__file__).resolve().parents[3] / "published/h200/load")


def steady_poisson(utilisation=0.5, seed=3):
    return poisson_load(np.random.default_rng(seed), 0.002, 0.02, WINDOW_SECONDS, utilisation)


def load_at_fixed_intervals(service_seconds: float, utilisation: float) -> Load:
    """Requests at fixed intervals to one server, which is idle when the window opens."""
    count = round(utilisation * WINDOW_SECONDS / service_seconds)
    starts = np.linspace(0, WINDOW_SECONDS, count, endpoint=False)
    ends = np.array(list(itertools.accumulate(starts, lambda end, due: max(end, due) + service_seconds, initial=0.0)))
    return Load(starts, ends[1:] - starts, "constant", count / WINDOW_SECONDS, float(np.sum(ends[1:] - starts)))


@pytest.mark.parametrize("utilisation", [1.2, 1.5, 4.0])
def test_a_load_that_cannot_be_served_is_invalid(utilisation):
    record = factories.record("time-slicing", [steady_poisson(), load_at_fixed_intervals(0.002, utilisation)])
    found = gate_verdict(record, "queue_growth")
    # Each request waits longer than the one before, by the excess of its work over the interval.
    assert found["value"] == pytest.approx(utilisation - 1, rel=0.05)
    assert not found["passed"] and not gates.is_valid(record)
    assert "tenant 1: requests came" in found["message"]
    # The other gates of loads do not see it, since all due requests were served in the end.
    assert gate_verdict(record, "load_achieved")["passed"] and gate_verdict(record, "drift")["passed"]


def refused_share(utilisation: float, mean_seconds: float, cv: float, draws: int) -> float:
    """Share of random loads of this kind that the gate refuses."""
    loads = (
        poisson_load(np.random.default_rng(seed), mean_seconds, cv, WINDOW_SECONDS, utilisation)
        for seed in range(draws)
    )
    return sum(not gate_verdict(factories.record("mps", [load]), "queue_growth")["passed"] for load in loads) / draws


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("utilisation", "requests", "cv", "most"),
    [
        (0.9, 650, 0.1, 0.01),
        (0.9, 650, 1.0, 0.02),
        (0.95, 650, 0.1, 0.025),
        (0.95, 5000, 0.1, 0.01),
        (0.9, 200, 0.1, 0.04),
    ],
)
def test_a_stable_queue_near_saturation_stays_valid(utilisation, requests, cv, most):
    assert refused_share(utilisation, utilisation * WINDOW_SECONDS / requests, cv, 300) <= most


@pytest.mark.thorough
@pytest.mark.parametrize(("requests", "least"), [(650, 0.6), (5000, 0.97)])
def test_a_simulated_overload_of_less_than_a_tenth_is_found(requests, least):
    assert refused_share(1.08, 1.08 * WINDOW_SECONDS / requests, 0.1, 300) >= least


@pytest.mark.parametrize("repeat", [1, 2, 3])
def test_a_measured_overload_of_less_than_a_tenth_is_found(repeat):
    # Three tenants had 165 requests per second and MPS served 155, so latency depends on the window's length.
    record = read(PUBLISHED / f"cells/mps/yolos-heavy/n3/r{repeat}/raw.json")
    found = gate_verdict(record, "queue_growth")
    assert not found["passed"] and found["value"] < 0.11


@pytest.mark.parametrize("cell", ["exclusive/yolos-heavy/n1", "mps/yolos-light/n7", "time-slicing/yolos-light/n3"])
@pytest.mark.parametrize("repeat", [1, 2, 3])
def test_measured_loads_that_were_served_stay_valid(cell, repeat):
    assert gate_verdict(read(PUBLISHED / f"cells/{cell}/r{repeat}/raw.json"), "queue_growth")["passed"]


def test_queue_growth_is_unknown_where_a_part_has_no_request():
    load = Load(np.array([0.1, 0.2]), np.array([0.01, 0.3]), "constant", 1.0, 0.155)
    found = gate_verdict(factories.record("exclusive", [load]), "queue_growth")
    assert found["passed"] and found["value"] is None and "too few" in found["message"]


@pytest.mark.parametrize(("arrival", "variance"), [("constant", 1), ("poisson", 2)])
def test_the_growth_of_a_short_queue_may_reach_two_deviations_of_gaps_and_services(arrival, variance):
    starts = np.linspace(0, WINDOW_SECONDS, 200, endpoint=False)
    load = Load(starts, np.full(200, 0.005), arrival, 100.0, 0.5)
    found = gate_verdict(factories.record("mps", [load]), "queue_growth")
    assert found["limit"] == pytest.approx(2 * (variance / 200) ** 0.5)


def test_a_slot_without_a_request_is_not_a_short_queue():
    """A growing queue of 4 requests or more has the limit of a busy server, even with an empty slot."""
    starts = np.linspace(0, WINDOW_SECONDS, 40, endpoint=False)
    limits = []
    for kept in (starts, np.delete(starts, 30)):
        load = Load(kept, np.linspace(0.2, 0.4, len(kept)), "constant", 20.0, 6.0)
        limits.append(gate_verdict(factories.record("mps", [load]), "queue_growth")["limit"] * len(kept) ** 0.5)
    assert limits == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(("served_hz", "passes"), [(100.0, True), (85.0, True), (75.0, False)])
def test_a_trace_that_is_served_after_the_window_is_an_overload(served_hz, passes):
    """Requests of a trace that come at 100/s."""
    made = factories.record("mps", [load_at_fixed_intervals(0.005, 0.5)])
    made["tenants"][0]["load"] |= {"arrival": "trace", "achieved_rate_hz": 100.0, "served_rate_hz": served_hz}
    found = next(gate for gate in gates.evaluate(made) if gate["name"] == "queue_growth")
    assert found["passed"] == passes


def test_a_trace_has_no_rate_to_keep_and_may_serve_nothing():
    made = factories.record("mps", [load_at_fixed_intervals(0.005, 0.5)])
    made["tenants"][0]["load"] |= {"arrival": "trace", "achieved_rate_hz": 150.0, "served_rate_hz": 0.0}
    assert gate_verdict(made, "load_achieved") is None
    assert gate_verdict(made, "queue_growth")["value"] is None


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.04, True), (1.15, False), (0.87, False)])
def test_littles_law_compares_two_ways_to_count_requests_in_flight(factor, passes):
    load = steady_poisson()
    wrong = Load(load.starts, load.latencies, "poisson", load.planned_rate_hz, load.in_flight_mean * factor)
    found = gate_verdict(factories.record("exclusive", [wrong]), "littles_law")
    assert found["passed"] == passes
    assert 0.05 < found["limit"] < 0.11


@pytest.mark.parametrize(("factor", "crossings"), [(0.5, 2.0), (2.0, 1.0)])
def test_the_room_of_littles_law_is_over_the_smaller_count(factor, crossings):
    load = steady_poisson()
    limits = []
    for own in (1.0, factor):
        counted = Load(load.starts, load.latencies, "poisson", load.planned_rate_hz, load.in_flight_mean * own)
        limits.append(gate_verdict(factories.record("exclusive", [counted]), "littles_law")["limit"] - 0.05)
    assert limits[1] == pytest.approx(crossings * limits[0], rel=0.1)


def test_a_load_whose_requests_in_flight_are_not_known_passes_littles_law():
    made = factories.record("exclusive", [steady_poisson()])
    made["tenants"][0]["load"]["in_flight_mean"] = None
    found = gate_verdict(made, "littles_law")
    assert found["passed"] and found["value"] is None


def test_requests_that_were_never_in_flight_break_littles_law():
    load = steady_poisson()
    never = Load(load.starts, load.latencies, "poisson", 250.0, 0.0)
    found = gate_verdict(factories.record("exclusive", [never]), "littles_law")
    assert not found["passed"] and found["value"] is None


def test_littles_law_allows_for_a_few_slow_requests_at_the_edges():
    # One of four requests was already in flight when the window opened, which adds 0.2 s to the time in flight.
    few = Load(np.array([0.1, 0.6, 1.1, 1.6]), np.full(4, 0.2), "constant", 2.0, 1.0 / WINDOW_SECONDS)
    assert gate_verdict(factories.record("exclusive", [few]), "littles_law")["passed"]


@pytest.mark.parametrize(
    ("arrival", "count", "planned_hz", "passes"),
    [
        ("constant", 200, 100.0, True),
        ("constant", 199, 100.0, True),
        ("constant", 198, 100.0, False),
        ("poisson", 150, 100.0, True),
        ("poisson", 140, 100.0, False),
        ("poisson", 260, 100.0, False),
    ],
)
def test_the_achieved_rate_may_miss_the_plan_by_noise_only(arrival, count, planned_hz, passes):
    starts = np.linspace(0, WINDOW_SECONDS, count, endpoint=False)
    load = Load(starts, np.full(count, 0.001), arrival, planned_hz, count * 0.001 / WINDOW_SECONDS)
    assert gate_verdict(factories.record("exclusive", [load]), "load_achieved")["passed"] == passes


def test_a_dropped_request_fails_the_load():
    record = factories.record("exclusive", [steady_poisson()])
    record["tenants"][0]["load"]["drops"] = 1
    found = gate_verdict(record, "load_achieved")
    assert not found["passed"] and found["value"] == 1 and "dropped" in found["message"]
