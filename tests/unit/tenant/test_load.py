from itertools import islice

import numpy as np
import pytest
from scipy import stats

from tenant.load import ArrivalQueue, Load, arrival_times_ns

POISSON = Load("poisson", rate_hz=200.0, seed=7)


def arrivals(load: Load, count: int, tenant: int = 0, start_ns: int = 10**15) -> list[int]:
    return list(islice(arrival_times_ns(load, tenant, start_ns), count))


def test_poisson_gaps_are_exponential_with_the_planned_rate() -> None:
    times = arrivals(POISSON, 20_000)
    gaps_seconds = np.diff([10**15, *times]) / 1e9
    assert gaps_seconds.mean() == pytest.approx(1 / 200, rel=0.03)
    assert stats.kstest(gaps_seconds, "expon", args=(0, 1 / 200)).pvalue > 0.01
    per_tenth = np.bincount((np.array(times) - 10**15) // 10**8)[:-1]
    assert per_tenth.var() / per_tenth.mean() == pytest.approx(1, abs=0.2)


def test_poisson_arrivals_are_repeatable_and_differ_by_tenant_and_seed() -> None:
    assert arrivals(POISSON, 50) == arrivals(POISSON, 50)
    assert arrivals(POISSON, 50) != arrivals(POISSON, 50, tenant=1)
    assert arrivals(POISSON, 50) != arrivals(Load("poisson", 200.0, seed=8), 50)


@pytest.mark.parametrize("arrival", ["constant", "poisson"])
def test_a_workloads_first_tenant_has_the_same_arrivals_next_to_any_neighbours(arrival: str) -> None:
    alone, mixed = Load(arrival, 200.0, seed=7), Load(arrival, 200.0, seed=7, before=2)
    assert arrivals(alone, 50) == arrivals(mixed, 50, tenant=2)
    assert arrivals(alone, 50, tenant=1) == arrivals(mixed, 50, tenant=3) != arrivals(alone, 50)


def test_constant_arrivals_do_not_drift() -> None:
    times = arrivals(Load("constant", rate_hz=3.0), 300_001, start_ns=0)
    assert times[-1] - times[0] == pytest.approx(10**14, abs=1)
    assert np.ptp(np.diff(times)) <= 1


def test_tenants_with_constant_arrivals_are_not_in_step() -> None:
    firsts = [arrivals(Load("constant", rate_hz=1.0), 1, tenant, 0)[0] / 1e9 for tenant in range(200)]
    assert stats.kstest(firsts, "uniform").pvalue > 0.01


def test_the_queue_admits_due_requests_and_drops_them_when_full() -> None:
    queue = ArrivalQueue(iter(range(10, 1000, 10)), limit=3)
    queue.admit(9)
    assert not queue.waiting
    queue.admit(60)
    assert list(queue.waiting) == [10, 20, 30]
    assert queue.dropped == [40, 50, 60]
    queue.waiting.popleft()
    queue.admit(80)
    assert list(queue.waiting) == [20, 30, 70]
    assert queue.dropped == [40, 50, 60, 80]
    assert queue.next_ns == 90
