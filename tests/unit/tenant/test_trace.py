"""A trace of requests: each comes at its time, with its lengths, at every tenant that gets it."""

import json
from itertools import islice

import pytest

from tenant.contract import SteadinessRule
from tenant.contract.trace import TraceRow, mean_rate_hz, period_seconds
from tenant.load import Load, Trace, arrival_times_ns
from tenant.request_bodies import BODY_DEFAULTS, body_factory

from .conftest import MS, FakeClock
from .served import OK, Served, measured, warmed

ROWS = [TraceRow(0.1, 5, 50), TraceRow(0.2, 6, 60), TraceRow(0.2, 7, 70), TraceRow(0.5, 8, 80), TraceRow(0.9, 9, 90)]
ALL = Load("trace", rate_hz=5.0, seed=3)


def seconds(trace: Trace, count: int) -> list[float]:
    times = islice(arrival_times_ns(ALL, 0, 10**15, 0, trace), count)
    return [round((time_ns - 10**15) / 1e9, 6) for time_ns in times]


def test_requests_come_at_their_times_and_again_after_a_mean_gap() -> None:
    assert period_seconds(ROWS) == pytest.approx(1.0)
    assert mean_rate_hz(ROWS) == pytest.approx(5.0)
    assert seconds(Trace.tenant_part(ROWS, ALL, 0), 7) == [0.1, 0.2, 0.2, 0.5, 0.9, 1.1, 1.2]


def test_another_tenant_begins_elsewhere_in_the_trace_and_keeps_its_order() -> None:
    firsts = set()
    for number in range(1, 20):
        trace = Trace.tenant_part(ROWS, ALL, number)
        first = [row.prompt_tokens for row in ROWS].index(trace.rows[0].prompt_tokens)
        firsts.add(first)
        assert trace.rows[0].seconds == 0
        assert [row[1:] for row in trace.rows] == [row[1:] for row in (*ROWS[first:], *ROWS[:first])]
        times = seconds(trace, 6)
        assert times == sorted(times) and times[5] == pytest.approx(1.0)
    assert len(firsts) > 2


def test_tenants_that_share_a_trace_have_each_request_once() -> None:
    parts = [Trace.tenant_part(ROWS, Load("trace", 2.5, parts=2), number) for number in range(2)]
    assert sorted(row for part in parts for row in part.rows) == ROWS
    assert [part.period_seconds for part in parts] == [pytest.approx(1.0)] * 2


def test_each_body_has_the_lengths_of_its_request() -> None:
    params = {**BODY_DEFAULTS, "body": '{"prompt": {prompt_ids}, "max_tokens": {output_tokens}}'}
    body = body_factory(params, 1, 0, 1, Trace.tenant_part(ROWS, ALL, 0))
    found = [json.loads(body(number)) for number in range(7)]
    assert [len(each["prompt"]) for each in found] == [5, 6, 7, 8, 9, 5, 6]
    assert [each["max_tokens"] for each in found] == [50, 60, 70, 80, 90, 50, 60]
    assert found[0]["prompt"] != found[5]["prompt"]


def test_a_server_gets_the_requests_of_the_window_when_they_are_due(clock: FakeClock) -> None:
    served = Served(clock, lambda _: [(20 * MS, OK)], is_stream=False)
    served.trace = Trace.tenant_part(ROWS, ALL, 0)
    record = measured(served, ALL, clock, 1)
    assert (record["count"], record["load"]["arrival"], record["load"]["planned_rate_hz"]) == (5, "trace", 5.0)
    in_window = [at_ns - served.window_start_ns for at_ns, content in served.server.requests if content[:1] == b"1"]
    assert [round(at_ns / MS) for at_ns in in_window[:5]] == [100, 200, 200, 500, 900]


def test_a_window_after_a_refused_one_has_other_requests_with_the_lengths_of_the_trace(clock: FakeClock) -> None:
    served = Served(clock, lambda _: [(20 * MS, OK)], is_stream=False)
    served.trace = Trace.tenant_part(ROWS, ALL, 0)
    measurement = warmed(served, ALL, clock, SteadinessRule(min_iterations=4, max_seconds=2, tolerance_percent=5))
    for seconds in (0.3, 1.0):
        start_ns = clock.now_ns + 100 * MS
        measurement.set_window(start_ns, start_ns + round(seconds * 1e9))
        while measurement._recorder.window is not None:
            measurement.run_chunk()
    numbers = [int(content[2:]) for at_ns, content in served.server.requests if at_ns >= start_ns]
    assert numbers[:5] == [5, 6, 7, 8, 9], "request 5 has the lengths of the first line, and is new"
