import gc

import numpy as np
import pytest

from tenant.contract import NO_OUTPUTS, SteadinessRule
from tenant.failures import RefusedError
from tenant.load import Load
from tenant.measure import CHUNK_NS, Measurement
from tenant.record import Identity
from tenant.usage import CpuTime

from .conftest import MS, FakeClock, FakeWorkload

RULE = SteadinessRule(min_iterations=4, max_seconds=2, tolerance_percent=5)
CLOSED = Load()
SECOND = 10**9
# Time of the first request of `warm`'s tenant in a window of 100 requests per second.
FIRST_SECONDS = 0.01 * float(np.random.default_rng([0, 3, 1]).random())


def warm(clock: FakeClock, durations: list[int], load: Load = CLOSED) -> tuple[Measurement, FakeWorkload]:
    workload = FakeWorkload(clock, durations)
    measurement = Measurement(workload, Identity(3, "fake", 0.1, 0.2, 0.3), load, RULE, clock, clock.sleep)
    measurement.warm_up()
    return measurement, workload


def run_until(measurement: Measurement, clock: FakeClock, end_ns: int) -> None:
    while clock.now_ns < end_ns:
        measurement.run_chunk()


def finish(measurement: Measurement) -> None:
    """Run until no window is open."""
    while measurement._recorder.window is not None:
        measurement.run_chunk()


def measured(measurement: Measurement, clock: FakeClock, lead_ns: int, length_ns: int) -> dict:
    start = clock.now_ns + lead_ns
    measurement.set_window(start, start + length_ns)
    finish(measurement)
    return measurement.wait_record(0)


def digest(measurement: Measurement) -> list[float | None] | None:
    if measurement.wait_outputs(0)["output_digest"] is None:
        measurement.run_chunk()
    return measurement.wait_outputs(0)["output_digest"]


def test_warm_up_ends_when_steady(clock: FakeClock) -> None:
    workload = FakeWorkload(clock, [90 * MS] * 2 + [60 * MS] * 2 + [50 * MS])
    measurement = Measurement(workload, Identity(0, "fake", 0, 0, 0), Load(), RULE, clock, clock.sleep)
    assert measurement.readiness(None) is None
    measurement.warm_up()
    verdict = measurement.readiness(None)
    assert verdict is not None and verdict["is_steady"] and verdict["batches"] == 4
    assert measured(measurement, clock, MS, SECOND)["startup"]["warmup_seconds"] == pytest.approx(0.5)


def test_the_garbage_collector_does_not_scan_a_frameworks_objects_in_a_window(clock: FakeClock) -> None:
    framework = [[number] for number in range(1000)]
    warm(clock, [MS])
    try:
        scanned_ids = set(map(id, gc.get_objects()))
        assert gc.isenabled() and not any(id(each) in scanned_ids for each in framework)
    finally:
        gc.unfreeze()


def test_the_record_counts_iterations_that_start_in_the_window(clock: FakeClock) -> None:
    measurement, _ = warm(clock, [7 * MS])
    # The chunk before the window ends with the first iteration that ends after its start.
    record = measured(measurement, clock, 10 * MS, 100 * MS)
    # Starts at 14, 21, ..., 105 ms of a window from 10 to 110.
    assert record["count"] == 14 == sum(record["timeline"]["count"]) == sum(record["histogram"].values())
    assert record["sum_seconds"] == pytest.approx(14 * 0.007)
    assert record["min_seconds"] == record["max_seconds"] == 0.007
    assert record["load"]["achieved_rate_hz"] == pytest.approx(140)
    assert record["load"]["in_flight_mean"] == pytest.approx(1)
    assert record["coverage_ratio"] == pytest.approx(1)
    assert (record["index"], record["workload"]) == (3, "fake")


def test_no_rows_are_folded_in_a_window_that_fits_the_list(clock: FakeClock) -> None:
    measurement, _ = warm(clock, [MS])
    start = clock.now_ns + 10 * MS
    measurement.set_window(start, start + SECOND)
    measurement.run_chunk()
    assert clock.now_ns == start
    measurement.run_chunk()
    assert clock.now_ns == start + SECOND


def test_a_window_announced_in_mid_chunk_is_exact(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [2 * MS])
    start = clock.now_ns + 11 * MS
    workload.before = lambda: None if workload.steps != last else measurement.set_window(start, start + 20 * MS)
    last = workload.steps + 1
    record_end = start + 20 * MS
    run_until(measurement, clock, record_end + CHUNK_NS)
    assert measurement.wait_record(0)["count"] == 10


def test_cpu_time_starts_with_a_window_that_opens_while_a_chunk_is_folded(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurement, _ = warm(clock, [MS])
    meter = measurement._meter
    monkeypatch.setattr(meter, "read", lambda: CpuTime(clock.now_ns / 1e9, None))
    fold = measurement._fold

    def slow_fold() -> None:
        fold()
        clock.now_ns += 2 * MS

    monkeypatch.setattr(measurement, "_fold", slow_fold)
    # The chunk of 50 ms ends 1 ms before the window starts, and its folding ends 1 ms after that.
    record = measured(measurement, clock, CHUNK_NS + MS, 100 * MS)
    assert record["cpu"]["cpu_seconds"] == pytest.approx(0.1, abs=0.003)


def test_an_open_loads_record_is_complete_once_the_backlog_is_served(clock: FakeClock) -> None:
    load = Load("constant", rate_hz=100.0)
    measurement, workload = warm(clock, [MS], load)
    workload.durations_ns = [MS] * (workload.steps + 50) + [500 * MS] + [MS]
    record = measured(measurement, clock, 0, SECOND)
    # The stall begins at 0.5 s of the window, after the first gap, and lasts until its end, with a queue of 50.
    assert record["count"] == 100
    assert record["max_seconds"] == pytest.approx(0.5, rel=0.01)
    assert record["load"]["delay_p99_seconds"] == pytest.approx(0.49, rel=0.02)
    assert record["load"]["planned_rate_hz"] == 100
    # In flight within the window: 50 requests of 1 ms each, then one more every 10 ms, none of which ends.
    present = 50 * 0.001 + sum(min(0.5, 1 - (FIRST_SECONDS + 0.01 * number)) for number in range(50, 100))
    assert record["load"]["in_flight_mean"] == pytest.approx(present)


def test_a_windows_arrivals_do_not_depend_on_the_length_of_the_warm_up(clock: FakeClock) -> None:
    load = Load("poisson", rate_hz=300.0, seed=5)
    timelines = []
    for lead_ns in (100 * MS, 730 * MS):
        measurement, _ = warm(clock, [MS], load)
        run_until(measurement, clock, clock.now_ns + lead_ns)
        timelines.append(measured(measurement, clock, 100 * MS, SECOND)["timeline"]["count"])
    assert timelines[0] == timelines[1] and sum(timelines[0]) > 200


def test_memory_does_not_include_the_computation_of_the_digest(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    memory_bytes = [700]
    workload.memory_bytes = lambda: memory_bytes[0]
    workload.output_digest = lambda: memory_bytes.insert(0, 2100) or [1.0]
    assert measured(measurement, clock, MS, 50 * MS)["memory_bytes"] == 700
    assert digest(measurement) == [1.0]
    assert measurement._workload.memory_bytes() == 2100


@pytest.mark.parametrize("load", [CLOSED, Load("constant", rate_hz=500.0)], ids=["closed", "open"])
def test_after_a_window_the_load_continues_and_the_digest_is_computed_on_request(clock: FakeClock, load: Load) -> None:
    measurement, workload = warm(clock, [MS], load)
    record = measured(measurement, clock, MS, 100 * MS)
    assert "output_digest" not in record
    for _ in range(4):
        steps, began = workload.steps, clock.now_ns
        measurement.run_chunk()
        assert workload.steps - steps == pytest.approx(record["count"] * (clock.now_ns - began) / (100 * MS), abs=1)
    steps = workload.steps
    assert digest(measurement) == [float(steps)], "the digest of the last output"
    assert digest(measurement) == [float(steps)], "a second request returns the same"
    measurement.run_chunk()
    assert workload.steps > steps


def test_a_digest_belongs_to_the_last_window(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    with pytest.raises(RefusedError, match="no record"):
        measurement.wait_outputs(0)
    measured(measurement, clock, MS, 50 * MS)
    first = digest(measurement)
    measurement.set_window(clock.now_ns + MS, clock.now_ns + 9 * MS)
    with pytest.raises(RefusedError, match="no record"):
        measurement.wait_outputs(0)
    finish(measurement)
    assert digest(measurement) == [float(workload.steps)] != first


def test_nan_and_infinity_in_a_digest_are_none(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    workload.output_digest = lambda: [1.0, float("nan"), float("-inf")]
    measured(measurement, clock, MS, 50 * MS)
    assert digest(measurement) == [1.0, None, None]


def test_impossible_windows_are_refused(clock: FakeClock) -> None:
    cold = Measurement(FakeWorkload(clock, [MS]), Identity(0, "fake", 0, 0, 0), Load(), RULE, clock, clock.sleep)
    with pytest.raises(RefusedError, match="not ready"):
        cold.set_window(clock.now_ns + MS, clock.now_ns + 2 * MS)
    measurement, _ = warm(clock, [MS])
    now = clock.now_ns
    with pytest.raises(RefusedError, match="no window was set"):
        measurement.wait_record(0)
    with pytest.raises(RefusedError, match="past"):
        measurement.set_window(now - 1, now + MS)
    with pytest.raises(RefusedError, match="ends before it starts"):
        measurement.set_window(now + MS, now + MS)
    measurement.set_window(now + MS, now + 2 * MS)
    with pytest.raises(RefusedError, match="pending or running"):
        measurement.set_window(now + 5 * MS, now + 6 * MS)
    for load, lead_ns, reason in (
        (Load("constant", rate_hz=100.0), CHUNK_NS, "closed"),
        (CLOSED, CHUNK_NS - 1, "too soon"),
    ):
        measurement, _ = warm(clock, [MS], load)
        with pytest.raises(RefusedError, match=reason):
            measurement.set_window(clock.now_ns + lead_ns, clock.now_ns + SECOND, 10)


def test_a_hanging_iteration_is_censored_and_earlier_ones_count(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    start = clock.now_ns + 10 * MS
    measurement.set_window(start, start + 100 * MS)
    records = []

    def hang() -> None:
        if clock.now_ns == start + 30 * MS:
            clock.advance_ns(SECOND)
            records.append(measurement.wait_record(0.5))

    workload.before = hang
    run_until(measurement, clock, start + 2 * SECOND)
    record = records[0]
    assert record["count"] == 30 == sum(record["timeline"]["count"])
    assert record["load"]["censored"] == 1
    assert record["load"]["in_flight_mean"] == pytest.approx(1)
    assert record["coverage_ratio"] == pytest.approx(1)
    assert measurement.wait_outputs(60) == NO_OUTPUTS, "at once, because the loop may be stuck"
    assert record["cpu"] is not None
    # The record does not change when the loop continues; the totals count every iteration once.
    assert measurement.wait_record(0) is record
    assert measurement._recorder.totals().count == workload.steps


def test_a_hanging_synchronise_is_cut_off_and_its_time_recorded(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    start = clock.now_ns + 10 * MS
    records = []

    def hang() -> None:
        clock.advance_ns(3 * SECOND)
        records.append(measurement.wait_record(1))

    workload.synchronize = hang  # type: ignore[method-assign]
    measurement.set_window(start, start + 100 * MS)
    run_until(measurement, clock, start + 100 * MS)
    assert records[0]["drain_seconds"] == pytest.approx(3)
    assert (records[0]["count"], records[0]["load"]["censored"]) == (100, 0)
    assert measurement._recorder.totals().count == workload.steps


def test_requests_waiting_at_the_deadline_are_censored(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS], Load("constant", rate_hz=100.0))
    start = clock.now_ns
    measurement.set_window(start, start + SECOND)
    records = []
    hanging = workload.steps + 30

    def hang() -> None:
        if workload.steps == hanging:
            clock.advance_ns(5 * SECOND)
            records.append(measurement.wait_record(1))

    workload.before = hang
    run_until(measurement, clock, start + 2 * SECOND)
    assert records[0]["count"] == 29
    assert records[0]["load"]["censored"] == 71
    # Arrivals every 10 ms: 29 took 1 ms, the others were in flight until the end.
    present = 29 * 0.001 + sum(1 - (FIRST_SECONDS + 0.01 * number) for number in range(29, 100))
    assert records[0]["load"]["in_flight_mean"] == pytest.approx(present)


def test_steadiness_is_judged_again_on_later_iterations_only(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [50 * MS])
    workload.durations_ns = [50 * MS] * workload.steps + [80 * MS] * 2 + [100 * MS]
    since = clock.now_ns
    assert measurement.readiness(None) is not None
    assert measurement.readiness(since) is None
    measurement.run_chunk()
    assert measurement.readiness(since) is None
    run_until(measurement, clock, since + SECOND)
    verdict = measurement.readiness(since)
    assert verdict is not None and verdict["is_steady"] and verdict["batches"] == 3
    assert measured(measurement, clock, MS, SECOND)["steady"]["batches"] == 3


def test_metrics_do_not_change_while_a_window_is_open(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    before, _ = measurement.metrics()
    measurement.run_chunk()
    announced, _ = measurement.metrics()
    assert announced != before
    start = clock.now_ns + MS
    within = []
    workload.before = lambda: within.append(measurement.metrics()[0]) if clock.now_ns == start + MS else None
    measurement.set_window(start, start + 10 * MS)
    run_until(measurement, clock, start + 10 * MS)
    assert within == [announced]
    assert measurement.metrics()[0] != announced


@pytest.mark.parametrize("load", [CLOSED, Load("constant", rate_hz=500.0)], ids=["closed", "open"])
def test_metrics_follow_every_iteration_of_a_watched_window(clock: FakeClock, load: Load) -> None:
    workload = FakeWorkload(clock, [MS])
    identity = Identity(0, "fake", 0, 0, 0)
    measurement = Measurement(workload, identity, load, RULE, clock, clock.sleep, "abc")
    measurement.warm_up()
    counts = []

    def read_count() -> None:
        if start <= clock.now_ns < start + 10 * MS:
            text = measurement.metrics()[0].decode()
            counts.append(int(float(text.split("seconds_count{")[1].split("} ")[1].split("\n")[0])))

    measurement.run_chunk()
    start = clock.now_ns + MS
    workload.before = read_count
    measurement.set_window(start, start + 10 * MS)
    run_until(measurement, clock, start + 10 * MS)
    assert len(counts) > 3 and counts == list(range(counts[0], counts[0] + len(counts)))
    total = measurement.metrics()[0]
    assert measurement.wait_record(0)["count"] == len(counts)
    assert f"}} {float(counts[-1] + 1)}" in total.decode()
