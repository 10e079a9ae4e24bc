from itertools import pairwise

import numpy as np
import pytest

from tenant.contract import BUCKET_COUNT, TIMELINE_SLOTS
from tenant.recorder import Recorder, Rows, Tally, Window, bucket_index
from tenant.workload import DEVICE_TIME, TimeSample

START, END = 1_000, 41_000  # slots of 1000 ns


def closed_rows(times: list[int], failed: tuple[int, ...] = ()) -> Rows:
    array = np.array(times, dtype=np.int64)
    return Rows(array[:-1], None, array[1:], dict.fromkeys(failed, "bad"), (), (times[0], times[-1]))


def open_rows(
    requests: list[tuple[int, int, int]], dropped: tuple[int, ...] = (), failed: tuple[int, ...] = ()
) -> Rows:
    columns = np.array(requests, dtype=np.int64)
    reasons = dict.fromkeys(failed, "bad")
    return Rows(columns[:, 0], columns[:, 1], columns[:, 2], reasons, dropped, (0, int(columns[-1, 2])))


def random_times(seed: int) -> list[int]:
    return np.cumsum(np.random.default_rng(seed).integers(1, 4000, 60)).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_folding_in_any_pieces_equals_counting_one_by_one(seed: int) -> None:
    times = random_times(seed)
    window = Window(START, END)
    recorder = Recorder(window)
    cuts = [0, *sorted(np.random.default_rng(seed + 100).integers(1, 59, 3).tolist()), 59]
    for low, high in pairwise(cuts):
        if high > low:
            recorder.fold(closed_rows(times[low : high + 1]))
    inside = [(start, end) for start, end in pairwise(times) if START <= start < END]
    assert window.latencies.count == len(inside)
    assert window.latencies.sum_ns == sum(end - start for start, end in inside)
    squares = sum((end - start) ** 2 for start, end in inside)
    assert window.latencies.sum_squares_ns2 == pytest.approx(squares, rel=1e-15)
    for slot in range(TIMELINE_SLOTS):
        latencies = [end - start for start, end in inside if (start - START) // 1000 == slot]
        assert window.slot_count[slot] == len(latencies)
        assert window.slot_sum_ns[slot] == sum(latencies)
        assert window.slot_max_ns[slot] == max(latencies, default=0)
    assert recorder.totals().count == 59
    assert recorder.totals().sum_ns == times[-1] - times[0]
    indices = bucket_index(np.array([end - start for start, end in inside]))
    assert window.latencies.counts.tolist() == np.bincount(indices, minlength=BUCKET_COUNT).tolist()


def test_failures_count_by_reason_and_slot() -> None:
    window = Window(START, END)
    rows = closed_rows([500, 1500, 2500, 3500, 40_500, 41_500])
    reasons = {0: "early", 1: "status 500", 2: "refused", 4: "status 500"}
    Recorder(window).fold(rows._replace(failed=reasons))
    assert (dict(window.reasons), window.errors) == ({"status 500": 2, "refused": 1}, 3)
    assert window.slot_errors.nonzero()[0].tolist() == [0, 1, 39]
    many = {row: f"reason {row}" for row in range(100)}
    window = Window(START, END)
    Recorder(window).fold(closed_rows([1000 + 10 * row for row in range(102)])._replace(failed=many))
    assert (len(window.reasons), window.reasons["other reasons"], window.errors) == (17, 84, 100)


def test_served_are_those_that_end_in_the_window_and_connections_those_that_begin() -> None:
    window = Window(START, END)
    requests = [(500, 600, 900), (600, 900, 1100), (1500, 1500, 40_900), (2000, 2100, 41_100), (50_000, 50_000, 60_000)]
    Recorder(window).fold(open_rows(requests, failed=(1,))._replace(new_connections=[0, 2, 3, 4]))
    assert (window.served, window.connections) == (1, 2)


def test_a_sample_belongs_to_the_window_in_which_it_begins() -> None:
    window = Window(START, END)
    recorder = Recorder(window)
    pre = [TimeSample("pre", begun, duration) for duration, begun in enumerate((999, 1000, 40_999, 41_000), start=1)]
    recorder.fold(closed_rows([999, 2000]), [*pre[:2], TimeSample(DEVICE_TIME, 1500, 7)])
    recorder.fold(closed_rows([2000, 42_000]), pre[2:])
    assert {kind: (tally.count, tally.sum_ns) for kind, tally in window.samples.items()} == {
        "pre": (2, 2 + 3),
        DEVICE_TIME: (1, 7),
    }
    recorder.close_window()
    recorder.fold(closed_rows([42_000, 43_000]), [TimeSample("pre", 2000, 9)])
    assert window.samples["pre"].count == 2


def test_slots_cover_a_window_of_any_length() -> None:
    window = Window(7, 7 + 1003)
    Recorder(window).fold(closed_rows(list(range(7, 7 + 1004))))
    assert sum(window.slot_count) == 1003
    assert set(window.slot_count) == {25, 26}


def test_failed_iterations_are_errors_and_not_latencies() -> None:
    window = Window(START, END)
    recorder = Recorder(window)
    recorder.fold(closed_rows([0, 500, 2000, 3000, 9000], failed=(0, 2)))
    assert (window.latencies.count, window.errors, recorder.errors) == (1, 1, 2)
    assert window.latencies.sum_ns == recorder.totals().sum_ns - 1500 == 6000
    assert window.in_flight_ns == 8000


def test_activity_and_requests_in_flight_are_clipped_to_the_window() -> None:
    window = Window(START, END)
    recorder = Recorder(window)
    recorder.fold(closed_rows([0, 600, 2000]))
    recorder.fold(closed_rows([2500, 30_000, 60_000]))
    assert window.active_ns == window.in_flight_ns == 1000 + (END - 2500)


def test_requests_in_flight_equal_counting_them_at_every_moment() -> None:
    generator = np.random.default_rng(3)
    intended = np.sort(generator.integers(0, 50_000, 80))
    requests, free = [], 0
    for arrival in intended.tolist():
        begun = max(arrival, free)
        free = begun + int(generator.integers(1, 1200))
        requests.append((arrival, begun, free))
    window = Window(START, END)
    Recorder(window).fold(open_rows(requests))
    moments = np.arange(START, END)
    present = sum(((a <= moments) & (moments < d)).sum() for a, _, d in requests)
    assert window.in_flight_ns == present


def test_latency_and_delay_of_an_open_load_count_from_the_intended_start() -> None:
    window = Window(START, END)
    requests = [
        (900, 1100, 1300),
        (1000, 1300, 5000),
        (2000, 5000, 5001),
        (40_999, 50_000, 60_000),
        (41_000, 60_000, 60_001),
    ]
    Recorder(window).fold(open_rows(requests, dropped=(999, 1000, 2000, 41_000), failed=(2,)))
    assert window.latencies.sum_ns == 4000 + 19_001
    assert (window.delays.count, window.delays.sum_ns) == (2, 300 + 9001)
    assert (window.drops, window.errors) == (2, 1)


def test_counts_of_a_closed_window_stay_in_the_totals() -> None:
    recorder = Recorder(Window(START, END))
    recorder.fold(closed_rows([0, 600, 2000, 2500]))
    before = recorder.totals()
    recorder.close_window()
    after = recorder.totals()
    assert (after.count, after.sum_ns, after.min_ns, after.max_ns) == (3, 2500, 500, 1400)
    assert (before.counts == after.counts).all()
    recorder.fold(closed_rows([3000, 3001]))
    assert recorder.totals().count == 4


def test_squares_of_long_latencies_do_not_overflow() -> None:
    tally, merged = Tally(), Tally()
    tally.add(np.full(10_000, 10**12, dtype=np.int64))
    merged.merge(tally)
    assert tally.sum_squares_ns2 == merged.sum_squares_ns2 == pytest.approx(1e28, rel=1e-14)
