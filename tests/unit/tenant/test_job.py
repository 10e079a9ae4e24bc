"""Fixed work: exact counts, the deadline, and its record."""

import pytest

from tenant.loop import CAPACITY
from tenant.measure import CHUNK_NS, Measurement

from .conftest import MS, FakeClock
from .test_measure import SECOND, digest, finish, warm


def job_record(measurement: Measurement, clock: FakeClock, iterations: int, deadline_ns: int = 99 * SECOND) -> dict:
    start = clock.now_ns + CHUNK_NS
    measurement.set_window(start, start + deadline_ns, iterations)
    finish(measurement)
    return measurement.wait_record(0)


def test_a_job_counts_exactly_its_iterations_from_the_window_start(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [7 * MS])
    before = workload.steps
    record = job_record(measurement, clock, 30)
    # The load continues until 56 ms, 6 ms into the window.
    assert workload.steps - before == 8 + 30
    assert record["job"] == {
        "iterations": 30,
        "completed": 30,
        "start_delay_seconds": pytest.approx(0.006),
        "completion_seconds": pytest.approx(0.006 + 30 * 0.007),
    }
    assert record["count"] == 30 == sum(record["timeline"]["count"]) == sum(record["histogram"].values())
    assert record["sum_seconds"] == pytest.approx(30 * 0.007)
    assert record["timeline"]["slot_seconds"] * 40 == pytest.approx(0.216), "the timeline ends with the job"
    assert record["coverage_ratio"] == pytest.approx(1)
    assert record["load"]["achieved_rate_hz"] == pytest.approx(30 / 0.216)
    assert record["cpu"] is not None and "output_digest" not in record


def test_a_failed_iteration_of_a_job_is_not_repeated(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    first = workload.steps + CHUNK_NS // MS
    workload.failing = {first + 5, first + 7}
    record = job_record(measurement, clock, 20)
    assert (record["count"], record["errors"], record["job"]["completed"]) == (18, 2, 20)
    assert record["job"]["completion_seconds"] == pytest.approx(0.02)


def test_an_unfinished_job_ends_at_its_deadline(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    record = job_record(measurement, clock, 1000, deadline_ns=50 * MS)
    assert record["job"]["completed"] == 50 == record["count"]
    assert record["job"]["completion_seconds"] is None
    assert workload.steps < 1000


def test_a_job_that_hangs_is_censored_with_its_progress(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    start = clock.now_ns + CHUNK_NS
    records = []

    def hang() -> None:
        if clock.now_ns == start + (CAPACITY + 30) * MS:
            clock.advance_ns(60 * SECOND)
            records.append(measurement.wait_record(0.5))

    workload.before = hang
    measurement.set_window(start, start + 50 * SECOND, 10**6)
    while not records:
        measurement.run_chunk()
    (record,) = records
    # One full list of rows, and the finished rows of the next.
    assert record["count"] == record["job"]["completed"] == CAPACITY + 30
    assert record["job"]["completion_seconds"] is None and record["load"]["censored"] == 1


def test_a_tenant_is_idle_between_a_job_and_the_next_window(clock: FakeClock) -> None:
    measurement, workload = warm(clock, [MS])
    job_record(measurement, clock, 20)
    steps = workload.steps
    for _ in range(3):
        measurement.run_chunk()
    assert workload.steps == steps
    assert digest(measurement) == [float(steps)]
    measurement.set_window(clock.now_ns + MS, clock.now_ns + 31 * MS)
    finish(measurement)
    assert measurement.wait_record(0)["count"] == 30
    assert measurement.wait_record(0)["job"] is None
    assert measurement._recorder.totals().count == workload.steps
