"""Loads of simulated tenants: planted noise, and queues against queueing theory."""

import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from unit import factories
from unit.nodes.test_simulated import DEVICE, SILENT

from sharebench.measure.nodes.contract import Grant, latency_bucket
from sharebench.measure.nodes.simulated.load import Noise, SimulatedTenant
from sharebench.measure.nodes.simulated.tenants import NS, SimulatedTenants
from tenant.recorder import bucket_index


def factors(count: int, **planted: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The first factors of planted noise, at even steps over a window of 10 s."""
    noise = Noise(SILENT | planted, 10.0, random.Random(1))
    return np.array([noise.factor(start) for start in np.linspace(0, 10, count)])


def test_planted_autocorrelation_is_that_of_the_logs_and_keeps_their_spread() -> None:
    logs = np.log(factors(40_000, iteration_cv=0.3, autocorrelation=0.8))
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] == pytest.approx(0.8, abs=0.02)
    assert np.corrcoef(logs[:-2], logs[2:])[0, 1] == pytest.approx(0.64, abs=0.03)
    assert np.exp(logs).mean() == pytest.approx(1, rel=0.02)
    assert np.exp(logs).std() == pytest.approx(0.3, rel=0.05)


def test_planted_stragglers_have_their_share_and_length() -> None:
    found = factors(20_000, straggler_ratio=0.02, straggler_factor=5)
    assert set(found) == {1.0, 5.0}
    assert (found == 5).mean() == pytest.approx(0.02, abs=0.004)


def test_planted_drift_is_a_line_around_the_mean() -> None:
    found = factors(101, drift=0.2)
    assert (found[0], found[50], found[-1]) == (pytest.approx(0.9), pytest.approx(1), pytest.approx(1.1))
    assert np.ptp(np.diff(found)) < 1e-12
    assert set(factors(10)) == {1.0}


def test_an_iteration_belongs_to_the_window_in_which_it_starts() -> None:
    tenant = SimulatedTenant({"arrival": "closed"}, 4.0)
    tenant.requests = [(0.0, 1.0), (1.0, 1.5), (3.999, 6.0)]
    written = tenant.report(3, "steps", 1.0, None)
    assert written["index"] == 3
    assert (written["count"], written["sum_seconds"]) == (3, pytest.approx(3.501))
    assert (written["min_seconds"], written["max_seconds"]) == (0.5, pytest.approx(2.001))
    timeline = written["timeline"]
    assert timeline["slot_seconds"] == 0.1
    assert [slot for slot, count in enumerate(timeline["count"]) if count] == [0, 10, 39]
    assert timeline["max_seconds"][39] == pytest.approx(2.001)
    assert written["load"]["achieved_rate_hz"] == 0.75


def test_buckets_equal_those_of_a_real_tenant() -> None:
    seconds = np.concatenate([np.geomspace(1.0001e-6, 999, 4001), [1e-9, 1e-6, 1001.0, 1e9]])
    real = bucket_index(np.rint(seconds * 1e9).astype(np.int64))
    ours = np.array([latency_bucket(value) for value in seconds])
    # A nanosecond's rounding may cross a bound; 1 µs itself is the upper bound of bucket 0.
    assert np.abs(ours - real).max() <= 1
    assert (ours == real).mean() > 0.98
    assert [latency_bucket(value) for value in (0.0, 1e-6, 2e-6, 1e9)] == [0, 0, 64, 1915]


def open_load(
    service_seconds: float, tenants: int, rate_hz: float, window_seconds: float, arrival: str, repeats: int
) -> list[dict[str, Any]]:
    """Records of all tenants, from several draws, that alternate on a device without cost of switching."""
    spec = factories.spec(
        {"name": "queue", "simulated": {"serial_seconds": service_seconds}},
        strategy={"mechanism": ["time-slicing"]},
        replicas=tenants,
        node={"kind": "simulated", "options": {"seed": 1}},
    )
    node = DEVICE | {"time_slicing_overhead": 0.0, "noise": SILENT}
    load_of_all = {"cell_folder": "cells/here", "loads": [{"arrival": arrival, "rate_hz": rate_hz}] * tenants}
    records = []
    for repeat in range(repeats):
        group = SimulatedTenants(spec.changed(repeat=repeat), load_of_all, node, lambda _: None)
        group.start([Grant(index, 0) for index in range(tenants)])
        group.window = (0, int(window_seconds * NS))
        records += group.measured()
    return records


def mean_of(records: Sequence[dict[str, Any]]) -> float:
    """Mean latency of all requests, in seconds."""
    return float(sum(r["sum_seconds"] for r in records) / sum(r["count"] for r in records))


@pytest.mark.parametrize("utilisation", [0.2, 0.5, 0.8])
def test_a_queue_waits_as_theory_predicts(utilisation: float) -> None:
    """Poisson arrivals, constant service (M/D/1): mean wait rho s / (2 (1 - rho)), by Pollaczek and Khinchine."""
    service = 0.01
    records = open_load(service, 1, utilisation / service, 100.0, "poisson", 20)
    wait = utilisation * service / (2 * (1 - utilisation))
    assert mean_of(records) == pytest.approx(service + wait, rel=0.03)
    for one in records:
        assert one["load"]["planned_rate_hz"] == pytest.approx(utilisation / service)
        assert one["load"]["achieved_rate_hz"] == pytest.approx(utilisation / service, rel=0.15)
        # Little's law, from two separate counts
        in_flight = one["load"]["achieved_rate_hz"] * one["sum_seconds"] / one["count"]
        assert one["load"]["in_flight_mean"] == pytest.approx(in_flight, rel=0.02)
    delays = [one["load"]["delay_p99_seconds"] for one in records]
    assert fmean(delays) > wait
    assert all(delay + service <= one["max_seconds"] + 1e-9 for delay, one in zip(delays, records, strict=True))


def test_a_short_window_opens_on_a_queue_in_its_stationary_state() -> None:
    service, utilisation = 0.01, 0.85
    records = open_load(service, 1, utilisation / service, 0.05, "poisson", 600)
    wait = utilisation * service / (2 * (1 - utilisation))
    assert mean_of(records) == pytest.approx(service + wait, rel=0.05)


def test_requests_after_the_window_slow_those_in_it() -> None:
    """Two requests per period, overlapping or not: every pair is alike, also at the window's end."""
    records = open_load(0.4, 2, 1.0, 1.0, "constant", 40)
    assert all(one["count"] == 1 for one in records)
    means = [one["sum_seconds"] for one in records]
    assert means[::2] == pytest.approx(means[1::2])
    assert sum(mean > 0.45 for mean in means) > 20, "many overlap"


@pytest.mark.parametrize("utilisation", [0.3, 0.6])
def test_many_light_tenants_share_the_device_as_theory_predicts(utilisation: float) -> None:
    """Processor sharing: R = s / (1 - rho), whatever the distribution of the service times."""
    service, tenants = 0.01, 40
    records = open_load(service, tenants, utilisation / service / tenants, 100.0, "poisson", 4)
    assert mean_of(records) == pytest.approx(service / (1 - utilisation), rel=0.05)
