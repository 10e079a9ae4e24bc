from itertools import count
from threading import Lock

import pytest

from tenant.load import ArrivalQueue
from tenant.loop import IDLE_FOLD_ROWS, ClosedLoop, OpenLoop
from tenant.recorder import Rows

from .conftest import MS, FakeClock, FakeWorkload


def closed_loop(clock: FakeClock, durations: list[int], capacity: int = 100) -> tuple[ClosedLoop, FakeWorkload]:
    workload = FakeWorkload(clock, durations)
    return ClosedLoop(workload.step, clock, capacity), workload


def open_loop(
    clock: FakeClock, durations: list[int], rate_hz: float, limit: int = 10_000, capacity: int = 1 << 14
) -> tuple[OpenLoop, FakeWorkload]:
    workload = FakeWorkload(clock, durations)
    gap_ns = 1e9 / rate_hz
    queue = ArrivalQueue((round(due_ns) for due_ns in count(clock.now_ns + gap_ns, gap_ns)), limit)
    return OpenLoop(workload.step, queue, Lock(), clock, clock.sleep, capacity), workload


def latencies(rows: Rows) -> list[int]:
    return (rows.ended - rows.intended).tolist()


def test_closed_iterations_are_back_to_back_and_the_last_one_is_finished(clock: FakeClock) -> None:
    loop, _ = closed_loop(clock, [3 * MS, 4 * MS, 5 * MS, 6 * MS])
    begin = clock.now_ns
    loop.run(begin + 8 * MS)
    rows = loop.rows()
    assert rows.intended.tolist() == [begin, begin + 3 * MS, begin + 7 * MS]
    assert rows.ended.tolist() == [begin + 3 * MS, begin + 7 * MS, begin + 12 * MS]
    assert rows.active == (begin, begin + 12 * MS)


def test_a_closed_chunk_ends_at_capacity_and_the_next_one_starts_empty(clock: FakeClock) -> None:
    loop, workload = closed_loop(clock, [MS], capacity=5)
    loop.run(clock.now_ns + 10**12)
    assert workload.steps == 5 == loop.rows().intended.size
    loop.clear()
    assert loop.rows().intended.size == loop.peek(clock.now_ns).intended.size == 0
    clock.advance_ns(9 * MS)
    begin = clock.now_ns
    loop.run(begin + 2 * MS)
    assert loop.rows().intended.tolist() == [begin, begin + MS]


def test_a_failed_closed_iteration_is_marked_and_timed(clock: FakeClock) -> None:
    loop, workload = closed_loop(clock, [MS])
    workload.failing = {2}
    begin = clock.now_ns
    loop.run(begin + 10**12)
    rows = loop.rows()
    assert list(rows.failed) == [2]
    assert rows.ended.tolist() == [begin + MS, begin + 2 * MS, begin + 3 * MS]
    loop.clear()
    loop.run(clock.now_ns + MS)
    assert list(loop.rows().failed) == []


def test_peek_shows_finished_iterations_while_one_hangs(clock: FakeClock) -> None:
    loop, workload = closed_loop(clock, [2 * MS])
    begin = clock.now_ns
    peeked: list[Rows] = []
    unfinished: list[list[int]] = []

    def peek() -> None:
        if workload.steps == 4:
            peeked.append(loop.peek(clock.now_ns + MS))
            unfinished.append(loop.unfinished(begin + 7 * MS))
            unfinished.append(loop.unfinished(begin + 6 * MS))

    workload.before = peek
    loop.run(begin + 20 * MS)
    assert peeked[0].ended.tolist() == [begin + 2 * MS, begin + 4 * MS, begin + 6 * MS]
    assert peeked[0].active == (begin, begin + 7 * MS)
    assert unfinished == [[begin + 6 * MS], []]
    assert loop.unfinished(begin + 10**12) == []


def test_open_latency_counts_from_the_intended_start(clock: FakeClock) -> None:
    loop, workload = open_loop(clock, [35 * MS, MS], rate_hz=100)
    begin = clock.now_ns
    unfinished: list[list[int]] = []
    workload.before = lambda: unfinished.append(loop.unfinished(begin + 21 * MS))
    workload.failing = {1, 3}
    loop.run(begin + 60 * MS)
    assert unfinished[0] == [begin + 10 * MS, begin + 20 * MS], "the request being served, and a waiting one"
    rows = loop.rows()
    assert list(rows.failed) == [1, 3]
    assert rows.intended.tolist() == [begin + 10 * MS * number for number in range(1, 6)]
    assert latencies(rows) == [35 * MS, 26 * MS, 17 * MS, 8 * MS, MS]
    assert rows.begun is not None
    assert (rows.begun - rows.intended).tolist() == [0, 25 * MS, 16 * MS, 7 * MS, 0]
    assert rows.active == (begin, begin + 60 * MS)


def test_an_open_loop_sleeps_until_the_next_request_or_the_end_of_the_chunk(clock: FakeClock) -> None:
    loop, _ = open_loop(clock, [MS], rate_hz=100)
    loop.run(clock.now_ns + 25 * MS)
    assert clock.slept == pytest.approx([0.010, 0.009, 0.004])


def test_an_idle_open_loop_with_many_rows_returns_before_it_sleeps(clock: FakeClock) -> None:
    loop, workload = open_loop(clock, [MS], rate_hz=100)
    loop.run(clock.now_ns + 10**13)
    assert workload.steps == IDLE_FOLD_ROWS
    loop.clear()
    loop, workload = open_loop(clock, [20 * MS], rate_hz=100, capacity=7)
    loop.run(clock.now_ns + 10**13)
    assert workload.steps == 7
