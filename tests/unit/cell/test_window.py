"""The window: settling, announcing, measuring, with tenants in a fake clock."""

import threading
import time

import pytest
from unit.fakes import NS, STEADY, FakeSampler, FakeTenants

from sharebench.measure.cell.window import (
    ATTEMPTS,
    LEAD_SECONDS,
    MIN_REMOTE_LEAD_SECONDS,
    REMOTE_LEAD_SECONDS,
    detecting_dead_tenants,
    measure_window,
    settle,
)
from sharebench.measure.nodes.contract import TenantsFailed, TenantUnreachable


def test_settling_waits_for_a_verdict_on_the_time_after_the_last_was_ready() -> None:
    tenants = FakeTenants(3)
    began_ns = tenants.clock_ns
    unsteady = {"is_steady": False, "batches": 9, "change_percent": 30.0}
    tenants.fakes[1].verdict = unsteady
    tenants.fakes[1].settles_after_ns = 2 * NS
    assert settle(tenants, 60.0) == [STEADY, unsteady, STEADY]
    assert tenants.clock_ns - began_ns >= 2 * NS
    assert {since for _, what, _, since in tenants.calls if what == "steadiness"} == {began_ns}


def test_tenants_whose_load_is_unchanged_are_not_judged_again() -> None:
    tenants = FakeTenants(1)
    tenants.fakes[0].settles_after_ns = 10 * NS
    began_ns = tenants.clock_ns
    assert settle(tenants, 60.0, as_warmed_up=True) == [STEADY]
    assert tenants.clock_ns - began_ns < NS
    assert {since for _, what, _, since in tenants.calls if what == "steadiness"} == {None}


def test_a_settled_tenant_is_not_asked_again() -> None:
    tenants = FakeTenants(2)
    tenants.fakes[1].settles_after_ns = NS
    settle(tenants, 60.0)
    asked = [index for _, _, index, _ in tenants.calls]
    assert asked.count(0) == 1
    assert 2 < asked.count(1) < 40, "asked again, but not without a pause"


def test_settling_times_out() -> None:
    tenants = FakeTenants(2)
    tenants.fakes[1].settles_after_ns = 100 * NS
    began_ns = tenants.clock_ns
    with pytest.raises(TenantsFailed, match="steady"):
        settle(tenants, 5.0)
    assert 5 * NS <= tenants.clock_ns - began_ns < 6 * NS


def test_all_tenants_get_one_window_and_nothing_is_sent_inside_it() -> None:
    tenants = FakeTenants(4)
    sampler = FakeSampler(tenants)
    window, records, rows, summary = measure_window(tenants, sampler, 2.0, 30.0)
    windows = {given for _, what, _, given in tenants.calls if what == "window"}
    assert len(windows) == 1
    start_ns, end_ns = windows.pop()
    assert end_ns - start_ns == 2 * NS
    assert (window["start_monotonic_seconds"], window["end_monotonic_seconds"]) == (start_ns / NS, end_ns / NS)
    assert not [call for call in tenants.calls if start_ns <= call[0] < end_ns]
    assert max(tenants.asked("window")) < start_ns
    assert min(tenants.asked("record")) >= end_ns
    assert [record["index"] for record in records] == [0, 1, 2, 3]
    assert {given for _, what, _, given in tenants.calls if what == "record"} == {30.0}
    assert (rows, summary["samples"]) == ([{"t_seconds": 2.0}], 1)


@pytest.mark.parametrize("jobs", [None, [10, 20, 10]])
def test_outputs_are_digested_after_all_tenants_have_measured(jobs: list[int] | None) -> None:
    tenants = FakeTenants(3)
    tenants.fakes[1].digest = None
    delivered = []
    for fake in tenants.fakes:
        answer, sum_up = fake.record, fake.outputs
        fake.record = lambda *given, answer=answer: (answer(*given), delivered.append(1))[0]
        fake.outputs = lambda deadline, sum_up=sum_up: sum_up(deadline) if len(delivered) == 3 else {}
    _, records, *_ = measure_window(tenants, FakeSampler(tenants), 60.0, 30.0, jobs)
    assert [record["output_digest"] for record in records] == [[1.5, -2.0], None, [1.5, -2.0]]
    assert {given for _, what, _, given in tenants.calls if what == "digest"} == {30.0}


def test_the_sampler_covers_little_more_than_the_window() -> None:
    tenants = FakeTenants(2)
    tenants.are_local = True
    sampler = FakeSampler(tenants)
    window, *_ = measure_window(tenants, sampler, 2.0, 30.0)
    began, stopped = sampler.ran
    assert window["start_monotonic_seconds"] - LEAD_SECONDS <= began / NS <= window["start_monotonic_seconds"]
    # Before the records, since a tenant may need until the deadline for its last iteration.
    assert stopped / NS == window["end_monotonic_seconds"]


@pytest.mark.parametrize(("are_local", "calls"), [(True, 2), (False, 1)])
def test_a_sampler_of_this_host_is_stopped_when_a_tenant_dies_in_the_window(are_local: bool, calls: int) -> None:
    tenants = FakeTenants(2)
    tenants.are_local = are_local
    tenants.dies_at_ns = tenants.clock_ns + 2 * NS
    sampler = FakeSampler(tenants)
    with pytest.raises(TenantsFailed, match="ended early"):
        measure_window(tenants, sampler, 60.0, 30.0)
    assert len(sampler.ran) == calls
    assert tenants.asked("record") == [] and tenants.clock_ns == tenants.dies_at_ns, "at once"


def test_the_clock_error_is_half_of_the_slowest_tenants_fastest_answer() -> None:
    tenants = FakeTenants(3)
    tenants.fakes[0].round_trips = [0.5, 0.004, 0.3]
    tenants.fakes[1].round_trips = [0.006, 0.4, 0.4]
    tenants.fakes[2].round_trips = [0.001, 0.002, 0.003]
    window, *_ = measure_window(tenants, FakeSampler(tenants), 1.0, 30.0)
    assert window["clock_error_seconds"] == 0.003


def test_a_clock_without_error_is_read_once() -> None:
    """Across a network each request may need a new connection."""
    tenants = FakeTenants(2)
    tenants.fakes[0].round_trips = [0.0]
    window, *_ = measure_window(tenants, FakeSampler(tenants), 1.0, 30.0)
    asked = [index for _, what, index, _ in tenants.calls if what == "clock"]
    assert sorted(asked) == [0, 1, 1, 1]
    assert window["clock_error_seconds"] == pytest.approx(0.0005)


def leads(tenants: FakeTenants) -> list[float]:
    """Seconds from the announcement of each window to its start."""
    announced = [(given[0], at) for at, what, _, given in tenants.calls if what == "window"]
    return [(start - min(at for of, at in announced if of == start)) / NS for start in dict(announced)]


# 0.15 s is longer than the lead on a host: each tenant would have refused.
@pytest.mark.parametrize(("answer_seconds", "lead"), [(0.15, REMOTE_LEAD_SECONDS), (0.001, MIN_REMOTE_LEAD_SECONDS)])
def test_the_lead_of_remote_tenants_follows_their_answer_time(answer_seconds: float, lead: float) -> None:
    tenants = FakeTenants(2, answer_seconds)
    measure_window(tenants, FakeSampler(tenants), 1.0, 30.0)
    assert leads(tenants) == [lead]


def test_a_late_announcement_is_repeated_with_twice_the_lead() -> None:
    # Each answer takes so long that only the third lead is long enough for all.
    tenants = FakeTenants(2, answer_seconds=0.15)
    tenants.are_local = True
    sampler = FakeSampler(tenants)
    window, *_ = measure_window(tenants, sampler, 1.0, 30.0)
    assert leads(tenants) == [LEAD_SECONDS, 2 * LEAD_SECONDS, 4 * LEAD_SECONDS]
    last = [given for _, what, _, given in tenants.calls if what == "window"][-1]
    assert last[0] == window["start_monotonic_seconds"] * NS
    assert len(sampler.ran) == 2


def test_a_partly_refused_window_is_closed_before_the_next() -> None:
    tenants = FakeTenants(3)
    tenants.fakes[1].refuses = 1
    window, records, *_ = measure_window(tenants, FakeSampler(tenants), 2.0, 30.0)
    first, second = dict.fromkeys(given for _, what, _, given in tenants.calls if what == "window")
    closed = sorted((index, at) for at, what, index, _ in tenants.calls if what == "record" and at < second[0] - NS / 5)
    assert [index for index, _ in closed] == [0, 2], "those that held it"
    assert all(first[1] <= at < second[0] for _, at in closed)
    assert window["start_monotonic_seconds"] == second[0] / NS
    assert len(records) == 3


def test_a_tenant_that_refuses_every_window_ends_the_cell() -> None:
    tenants = FakeTenants(2)
    tenants.fakes[1].refuses = 99
    with pytest.raises(TenantsFailed, match="refused the window"):
        measure_window(tenants, FakeSampler(tenants), 1.0, 30.0)
    assert len(leads(tenants)) == ATTEMPTS


def test_a_failure_does_not_wait_for_a_hung_tenant() -> None:
    tenants = FakeTenants(2)
    hangs = threading.Event()
    tenants.fakes[0].raises["record"] = TenantUnreachable("connection reset")
    tenants.fakes[1].record = lambda _: hangs.wait(600)
    began = time.monotonic()
    try:
        with pytest.raises(TenantUnreachable):
            measure_window(tenants, FakeSampler(tenants), 1.0, 30.0)
        assert time.monotonic() - began < 300
    finally:
        hangs.set()


def test_a_dying_tenant_is_distinguished_from_a_silent_one() -> None:
    living = FakeTenants(1)
    with pytest.raises(TenantUnreachable, match="silent"), detecting_dead_tenants(living):
        raise TenantUnreachable("silent")
    living.are_local = True
    with pytest.raises(TenantsFailed, match="lives but does not answer: silent"), detecting_dead_tenants(living):
        raise TenantUnreachable("silent")
    dying = FakeTenants(1)
    dying.dies_at_ns = dying.clock_ns + NS // 20
    with pytest.raises(TenantsFailed, match="ended early"), detecting_dead_tenants(dying):
        raise TenantUnreachable("silent")


def test_jobs_begin_together_and_the_window_ends_with_the_last_of_them() -> None:
    tenants = FakeTenants(3)
    for fake, seconds in zip(tenants.fakes, (2, 5, 3), strict=True):
        fake.job_ns = seconds * NS
    sampler = FakeSampler(tenants)
    window, records, rows, _ = measure_window(tenants, sampler, 60.0, 30.0, [10, 20, 10])
    windows = [given for _, what, _, given in tenants.calls if what == "window"]
    assert {given[:2] for given in windows} == {windows[0][:2]} and windows[0][1] - windows[0][0] == 60 * NS
    assert [given[2] for given in windows] == [10, 20, 10]
    assert window["start_monotonic_seconds"] == windows[0][0] / NS
    assert window["end_monotonic_seconds"] - window["start_monotonic_seconds"] == pytest.approx(5)
    assert window["end_epoch_seconds"] - window["start_epoch_seconds"] == pytest.approx(5)
    assert [record["job"]["completion_seconds"] for record in records] == [2, 5, 3]
    assert rows == [{"t_seconds": pytest.approx(5)}]


def test_the_driver_is_patient_with_a_job_but_notices_a_death() -> None:
    tenants = FakeTenants(2)
    hangs = threading.Event()
    asked = []
    tenants.fakes[0].record = lambda deadline, ahead: asked.append((deadline, ahead)) or hangs.wait(600)
    tenants.fakes[1].record = lambda deadline, ahead: hangs.wait(600)
    tenants.dies_at_ns = tenants.clock_ns + NS // 5
    try:
        with pytest.raises(TenantsFailed, match="ended early"):
            for fake in tenants.fakes:
                fake.holds = None
            # The clock stands still except for the driver's looks at its tenants.
            tenants.sleep_until, sleep = lambda at: sleep(at + NS), tenants.sleep_until
            measure_window(tenants, FakeSampler(tenants), 60.0, 30.0, [10, 10])
        assert asked == [(30.0, 60.0)]
    finally:
        hangs.set()
