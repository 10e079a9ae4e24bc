"""Requests in flight: the record reports what a server in memory does, to the nanosecond."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
import pytest

from sharebench.model.records.types import TenantRecord
from sharebench.read.gates.load import _littles_law_and_limit
from sharebench.read.gates.programs import NO_ANSWER
from tenant.client.connection import Exchange
from tenant.contract import BUCKETS_PER_DOUBLING, SMALLEST_SECONDS, SteadinessRule, TenantReport, TimedHistogram
from tenant.load import Load, NamedLoad

from .conftest import MS, FakeClock
from .served import DONE, ERROR, OK, STREAM, Answer, Served, chunk, event, measured, warmed, word

TOKENS = 16
Serve = Callable[..., Served]


@pytest.fixture
def serve(clock: FakeClock) -> Iterator[Serve]:
    """A function that creates clients of servers in memory."""
    made = []

    def start(answer: Answer, is_stream: bool = True) -> Served:
        made.append(Served(clock, answer, is_stream))
        return made[-1]

    yield start
    for workload in made:
        workload.server.close()


class Planted:
    """Answers with random times to the first token and random gaps, in ns; one row per request."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.first = (50 * MS * generator.lognormal(0, 0.3, 20_000)).astype(int)
        self.gaps = (10 * MS * generator.lognormal(0, 0.3, (20_000, TOKENS - 1))).astype(int)

    def __call__(self, number: int) -> Sequence[tuple[int, bytes]]:
        first, gaps = int(self.first[number]), self.gaps[number].tolist()
        return [(first, STREAM + word()), *((gap, word()) for gap in gaps), (MS, DONE)]


def mean_seconds(timed: TimedHistogram) -> float:
    return timed["sum_seconds"] / timed["count"]


def median_seconds(timed: TimedHistogram) -> float:
    """The geometric middle of the median's bucket."""
    counts = {int(index): count for index, count in timed["histogram"].items()}
    indices = [index for index, count in sorted(counts.items()) for _ in range(count)]
    return SMALLEST_SECONDS * 2 ** ((indices[len(indices) // 2] - 0.5) / BUCKETS_PER_DOUBLING)


@pytest.mark.parametrize("in_flight", [1, 16, 64])
@pytest.mark.parametrize("arrival", ["closed", "poisson", "constant"])
def test_the_record_reports_the_planted_latencies(clock: FakeClock, serve: Serve, in_flight: int, arrival: str) -> None:
    planted = Planted(seed=in_flight)
    served = serve(planted)
    # Three quarters of the rate that the concurrency allows, so that some requests wait for others.
    rate_hz = None if arrival == "closed" else 0.75 * in_flight / 0.22
    seconds = 8 if in_flight == 1 else 4
    record = measured(served, Load(arrival, rate_hz, concurrency=in_flight), clock, seconds)
    requests = record["requests"]
    first_sent = [content for _, content in served.server.requests].index(b"1 0")
    numbers = list(range(first_sent, first_sent + record["count"]))
    sent_ns = np.array([served.server.requests[number][0] for number in numbers])
    first, gaps = planted.first[numbers] / 1e9, planted.gaps[numbers] / 1e9
    # A request is due before it is sent by the time that it waits for another to end.
    waited = (sent_ns - served.window_start_ns) / 1e9 - np.array(requests["start_seconds"])
    assert (waited >= -1e-6).all() and (arrival != "closed" or waited.max() < 1e-6)
    exactly = {"rel": 0, "abs": 2e-6}
    assert requests["ttft_seconds"] == pytest.approx((first + waited).tolist(), **exactly)
    assert requests["tpot_seconds"] == pytest.approx(gaps.mean(axis=1).tolist(), **exactly)
    assert requests["itl_max_seconds"] == pytest.approx(gaps.max(axis=1).tolist(), **exactly)
    assert requests["latency_seconds"] == pytest.approx((waited + first + gaps.sum(axis=1) + 0.001).tolist(), **exactly)
    assert requests["output_tokens"] == [TOKENS] * len(numbers)
    stages = record["stages"]
    assert stages.keys() == {"ttft", "itl", "tpot"}
    assert mean_seconds(stages["ttft"]) == pytest.approx((first + waited).mean(), **exactly)
    assert mean_seconds(stages["itl"]) == pytest.approx(gaps.mean(), **exactly)
    assert mean_seconds(stages["tpot"]) == pytest.approx(gaps.mean(), **exactly)
    assert median_seconds(stages["itl"]) == pytest.approx(np.median(gaps), rel=0.011)
    good = (first + waited < 0.06) & (gaps.mean(axis=1) < 0.0105)
    reported = zip(requests["ttft_seconds"], requests["tpot_seconds"], strict=True)
    assert sum(ttft < 0.06 and tpot is not None and tpot < 0.0105 for ttft, tpot in reported) == good.sum()
    load = record["load"]
    assert (load["arrival"], load["concurrency"], load["censored"], load["drops"]) == (arrival, in_flight, 0, 0)
    assert record["coverage_ratio"] == pytest.approx(1)
    assert record["generator"]["lateness_p99_seconds"] == pytest.approx(0, abs=2e-6)
    if rate_hz is not None:
        assert load["in_flight_mean"] is not None
        # Little's law holds except for requests that cross an edge of the window.
        share, limit = _littles_law_and_limit(cast(TenantRecord, record), load["in_flight_mean"], seconds)
        assert share < min(limit, 0.35 if in_flight == 1 else 0.15)
    else:
        assert load["in_flight_mean"] == pytest.approx(in_flight)
        assert load["delay_p99_seconds"] is None


def test_tokens_count_by_their_arrival_not_by_their_request(clock: FakeClock, serve: Serve) -> None:
    # Answers of 3 s in a window of 1 s: none of its requests ends, and each yields a token every 100 ms.
    served = serve(lambda _: [(100 * MS, STREAM + word()), *((100 * MS, word()) for _ in range(29)), (0, DONE)])
    record = measured(served, Load(concurrency=8), clock, 1)
    assert record["output_tokens"] == {"count": pytest.approx(80, abs=8), "source": "chunks"}


def test_tokens_of_a_server_too_slow_to_finish_a_request_count(clock: FakeClock, serve: Serve) -> None:
    served = serve(
        lambda number: (
            [(MS, STREAM + word() + DONE)]
            if not served.window_start_ns
            else [(100 * MS, STREAM + word()), *((100 * MS, word()) for _ in range(200))]
        )
    )
    record = measured(served, Load("constant", rate_hz=4, concurrency=None), clock, 4, waits_seconds=5)
    assert (record["count"], record["errors"], record["load"]["censored"]) == (0, 0, 16)
    assert record["output_tokens"]["count"] > 10


@pytest.mark.parametrize("load", [Load(concurrency=3), Load("poisson", rate_hz=40, concurrency=3)])
def test_a_window_after_a_refused_one_has_new_requests(clock: FakeClock, serve: Serve, load: Load) -> None:
    served = serve(lambda _: [(20 * MS, OK)], is_stream=False)
    measurement = warmed(served, load, clock, SteadinessRule(min_iterations=4, max_seconds=2, tolerance_percent=5))
    for _ in range(2):
        measurement.set_window(clock.now_ns + 100 * MS, clock.now_ns + 600 * MS)
        while measurement._recorder.window is not None:
            measurement.run_chunk()
    contents = [content for _, content in served.server.requests]
    assert contents.count(b"1 0") == 1 and len(set(contents)) == len(contents)


def test_an_open_load_sends_on_time_up_to_its_concurrency(clock: FakeClock, serve: Serve) -> None:
    def in_flight(concurrency: int | None) -> tuple[TenantReport, int]:
        served = serve(lambda _: [(95 * MS, OK)], is_stream=False)
        record = measured(served, Load("constant", rate_hz=100, concurrency=concurrency), clock, 1, waits_seconds=2)
        return record, served.server.connections

    record, connections = in_flight(None)
    assert (record["count"], connections) == (100, 10), "one after another, 10 of them would be sent"
    assert record["max_seconds"] == pytest.approx(0.095, abs=1e-6)
    assert record["load"]["in_flight_mean"] == pytest.approx(9.5, abs=0.6)
    record, connections = in_flight(4)
    assert connections == 4
    # Four in flight serve 42 per second, so requests wait for more than half of the time since the window's start.
    assert record["max_seconds"] is not None and record["max_seconds"] > 1
    assert record["generator"]["lateness_p99_seconds"] == pytest.approx(0, abs=1e-6), "they were not free to go"
    delay = record["load"]["delay_p99_seconds"]
    assert delay is not None and delay > 0.9


def work_before_each_request(served: Served, clock: FakeClock, milliseconds: int) -> None:
    make = served._exchange

    def work(phase: int, number: int) -> Exchange:
        clock.now_ns += milliseconds * MS
        return make(phase, number)

    served._exchange = work  # type: ignore[method-assign]


@pytest.mark.parametrize(("in_flight", "answer_ms", "late_ms"), [(1, 20, 5), (4, 1, 19)])
def test_the_clients_own_work_in_a_closed_load_is_no_latency(
    clock: FakeClock, serve: Serve, in_flight: int, answer_ms: int, late_ms: int
) -> None:
    served = serve(lambda _: [(answer_ms * MS, OK)], is_stream=False)
    work_before_each_request(served, clock, 5)
    record = measured(served, Load(concurrency=in_flight), clock, 1)
    assert record["max_seconds"] == pytest.approx(answer_ms / 1000, abs=1e-6)
    busy = in_flight * answer_ms / (answer_ms + late_ms)
    assert record["load"]["in_flight_mean"] == pytest.approx(busy, rel=0.03)
    assert record["generator"]["lateness_p99_seconds"] == pytest.approx(late_ms / 1000, rel=0.02)


@pytest.mark.parametrize("microseconds", [1900, 2300, 2700])
def test_a_request_that_was_made_before_the_window_is_not_counted_in_it(
    clock: FakeClock, serve: Serve, microseconds: int
) -> None:
    served = serve(lambda _: [(microseconds * 1000, STREAM + word()), (0, DONE)])
    work_before_each_request(served, clock, 3)
    record = measured(served, Load(concurrency=1), clock, 1)
    first_ns = next(sent_ns for sent_ns, content in served.server.requests if content == b"1 0")
    assert record["requests"]["start_seconds"][0] == pytest.approx((first_ns - served.window_start_ns) / 1e9, abs=1e-6)


def test_a_delayed_client_reports_its_lateness(clock: FakeClock, serve: Serve) -> None:
    served = serve(lambda number: held_up(number) or [(MS, OK)], is_stream=False)

    def held_up(number: int) -> None:
        if number % 4 == 0:
            clock.advance_ns(30 * MS)

    record = measured(served, Load("constant", rate_hz=100), clock, 1)
    late = record["generator"]["lateness_p99_seconds"]
    assert late is not None and 0.01 < late < 0.04
    assert record["stages"] == {} and "requests" not in record


def test_rows_ascend_by_intended_start_whichever_ends_first(clock: FakeClock, serve: Serve) -> None:
    waits = np.random.default_rng(1).integers(1, 80, 10_000)
    served = serve(lambda number: [(int(waits[number]) * MS, ERROR if number % 7 == 0 else OK)], is_stream=False)
    record = measured(served, Load(concurrency=9), clock, 2)
    assert record["timeline"] is not None
    assert record["errors"] > 0 and record["count"] == sum(record["timeline"]["count"]) > 300
    assert record["load"]["in_flight_mean"] == pytest.approx(9)
    assert record["last_error"] == "status 500"


# Servers that misbehave.

FEW = [(10 * MS, STREAM + word()), (10 * MS, word())]
FINE = [*FEW, (0, DONE)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([(MS, ERROR)], "status 500"),
        ([(MS, b"220 smtp ready\r\n")], "no HTTP answer, but '220 smtp ready'"),
        ([*FEW, (MS, b"")], "the connection was closed in mid-answer"),
        ([*FEW, (MS, b"what?\r\n")], "broken HTTP in mid-answer"),
        ([*FEW, (MS, chunk(b"data: what?\n\n"))], "an event is not a JSON object: what?"),
        ([*FEW, (MS, chunk(b"data: \xff\n\n"))], "an event is not a JSON object"),
        ([*FEW, (MS, event({"error": {"message": "engine died"}}))], "the server says: "),
        ([*FEW, (MS, chunk(b""))], "the stream ended without [DONE]"),
        ([(MS, STREAM + DONE)], "the answer has no token"),
    ],
    ids=["500", "no-http", "drop", "bad-chunk", "garbage", "bytes", "error", "no-done", "no-token"],
)
def test_a_bad_answer_is_reported_and_other_requests_continue(
    clock: FakeClock, serve: Serve, bad: Sequence[tuple[int, bytes]], message: str
) -> None:
    served = serve(lambda number: bad if number % 5 == 0 else FINE)
    record = measured(served, Load(concurrency=4), clock, 1)
    assert record["last_error"] is not None and record["last_error"].startswith(message)
    assert record["errors"] == pytest.approx(record["count"] / 4, abs=4)
    assert record["errors_by_reason"] == {record["last_error"]: record["errors"]}
    assert sum(record["timeline"]["errors"]) == record["errors"]
    assert len(record["requests"]["ttft_seconds"]) == record["count"] > 50
    assert record["load"]["in_flight_mean"] == pytest.approx(4)


def test_an_answer_that_reports_an_error_fails_and_leaves_its_connection(clock: FakeClock, serve: Serve) -> None:
    busy = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{"error": "busy"}'
    served = serve(lambda number: [(10 * MS, OK if number % 5 else busy)], is_stream=False)
    record = measured(served, Load(concurrency=4), clock, 1)
    assert record["errors_by_reason"] == {"the server says: busy": pytest.approx(record["count"] / 4, abs=4)}
    assert served.server.connections == 4


def test_a_server_that_hangs_up_on_a_new_connection_has_not_answered(clock: FakeClock, serve: Serve) -> None:
    served = serve(lambda number: [(MS, OK if number < 60 else b"")], is_stream=False)
    record = measured(served, Load(concurrency=4), clock, 1)
    assert (record["count"], record["last_error"]) == (0, "the connection was closed without an answer")
    assert record["last_error"] in NO_ANSWER, "generator_gap leaves out the pause"
    assert 40 <= record["errors"] <= 4 * 22, "each lane retried at once"


def test_a_connection_closed_between_requests_is_not_an_error(clock: FakeClock, serve: Serve) -> None:
    def answer(number: int) -> Sequence[tuple[int, bytes]]:
        # The next request finds its connection closed.
        served.server.is_closing = number % 3 == 0
        return [(10 * MS, OK)]

    served = serve(answer, is_stream=False)
    record = measured(served, Load(concurrency=2), clock, 1)
    assert (record["errors"], record["count"] > 150) == (0, True)
    assert served.server.connections > 50


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.0 200 OK\r\n\r\nok"]
)
def test_the_end_of_a_connection_may_end_the_answer(clock: FakeClock, serve: Serve, head: bytes) -> None:
    served = serve(lambda _: [(10 * MS, head), (0, b"")], is_stream=False)
    record = measured(served, Load(concurrency=2), clock, 1)
    assert (record["errors"], record["count"]) == (0, pytest.approx(200, abs=2))
    assert served.server.connections == len(served.server.requests)
    assert record["generator"]["connections"] == record["count"]
    assert record["load"]["served_rate_hz"] == pytest.approx(200, abs=3)


@pytest.mark.parametrize("first", [Load(concurrency=4), Load("poisson", rate_hz=200), Load("constant", 50, 2)])
def test_no_request_of_a_load_is_in_flight_or_sent_once_another_follows(
    serve: Serve, clock: FakeClock, first: Load
) -> None:
    workload = serve(lambda number: [(30 * MS, OK)], is_stream=False)
    rule = SteadinessRule(min_iterations=4, max_seconds=2, tolerance_percent=5)
    measurement = warmed(workload, first, clock, rule)
    start_ns = clock.now_ns + 100 * MS
    measurement.set_window(start_ns, start_ns + 1000 * MS)
    following = NamedLoad("next", Load(concurrency=1))
    measurement.set_load(following)
    assert measurement.run_until_followed() == following
    # The window, which was announced first, is over.
    assert clock.now_ns > start_ns + 1000 * MS and measurement.wait_record(0)["count"] > 0
    sent, answered = [at_ns for at_ns, _ in workload.server.requests], clock.now_ns
    assert answered >= max(sent) + 30 * MS
    record = measured(workload, following.load, clock, 1.0)
    later = [at_ns for at_ns, _ in workload.server.requests][len(sent) :]
    assert min(np.diff(later)) > 29 * MS, "one in flight, and none of the load before"
    assert record["load"]["concurrency"] == 1 and record["errors"] == 0
