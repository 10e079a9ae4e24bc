"""Windows from two scrapes of a program's own metrics: parsing, subtraction, and error bounds."""

import contextlib
import dataclasses
import http.server
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest

from sharebench.measure.nodes.contract import NodeError, TenantsFailed, TenantUnreachable
from sharebench.measure.nodes.host.programs.endpoints import ScrapedEndpoint
from sharebench.measure.nodes.host.programs.process_tree import ProcessTree
from sharebench.measure.nodes.kubernetes.pods.endpoint import ScrapedPod
from sharebench.measure.nodes.metrics import MissingSeries, Scrape, parse_metrics, parse_page, subtract_scrapes
from sharebench.measure.nodes.scraped import MeansJudge
from tenant.contract import Steadiness, SteadinessRule, TenantReport
from tenant.contract import requests as pages
from tenant.program import SelfMeasuringProgram
from tenant.server import Server, State

MS = 1_000_000
BUCKETS = (0.01, 0.1, 0.25)


def metrics(**given: Any) -> dict[str, Any]:
    """A workload's `metrics` with these keys."""
    return {"path": "/metrics", "histogram": None, "summary": None, "labels": {}, "unit": "seconds"} | given


def page(latencies: dict[str, list[float]], buckets: tuple[float, ...] = BUCKETS) -> str:
    """A page of prometheus_client with these latencies by the label `stage`, as a histogram and a summary."""
    registry = CollectorRegistry()
    histogram = Histogram("work", "Work", ["stage"], buckets=buckets, registry=registry)
    summary = Summary("same", "The same", ["stage"], registry=registry)
    Counter("others", "Something else", registry=registry).inc()
    for stage, values in latencies.items():
        # Without a call a series with labels is not there.
        histogram.labels(stage)
        summary.labels(stage)
        for value in values:
            histogram.labels(stage).observe(value)
            summary.labels(stage).observe(value)
    return generate_latest(registry).decode()


def scrape(port: int) -> Scrape:
    """The current histogram of a program on this port."""
    return parse_page(pages.fetch_page(port, "/metrics", 10.0), metrics(histogram="work"))


def state(latencies: list[float], at_ms: int = 0, took_ms: int = 0, buckets: tuple[float, ...] = BUCKETS) -> Scrape:
    """A scrape of a program after these iterations."""
    text = page({"a": latencies}, buckets)
    return parse_metrics(text, metrics(histogram="work"), at_ms * MS, (at_ms + took_ms) * MS)


@pytest.mark.parametrize(
    ("unit", "seconds"), [("seconds", 1.0), ("milliseconds", 1e-3), ("microseconds", 1e-6), ("nanoseconds", 1e-9)]
)
def test_the_unit_applies_to_sum_and_buckets(unit: str, seconds: float) -> None:
    text = page({"a": [4, 40]}, buckets=(5, 50))
    found = parse_metrics(text, metrics(histogram="work", unit=unit))
    assert found.sum_seconds == pytest.approx(44 * seconds)
    assert found.upper_seconds[:2] == pytest.approx((5 * seconds, 50 * seconds))


def test_a_summary_has_a_count_and_a_sum_only() -> None:
    found = parse_metrics(page({"a": [0.5, 1.5]}), metrics(summary="same"))
    assert (found.count, found.sum_seconds, found.upper_seconds) == (2, 2.0, ())


def test_labels_pick_a_series() -> None:
    text = page({"load": [1.0], "infer": [0.02, 0.03]})
    found = parse_metrics(text, metrics(histogram="work", labels={"stage": "infer"}))
    assert (found.count, found.cumulative) == (2, (0, 2, 2, 2))
    with pytest.raises(MissingSeries, match=r"has 2 series with metrics.labels \{\}; name one of \{'stage': 'load'\}"):
        parse_metrics(text, metrics(histogram="work"))
    with pytest.raises(
        MissingSeries, match=r"has no series with metrics.labels .*blur.*; name one of \{'stage': 'load'\}"
    ):
        parse_metrics(text, metrics(histogram="work", labels={"stage": "blur"}))


def test_a_missing_series_is_reported_with_those_that_exist() -> None:
    text = page({"a": [1.0]})
    with pytest.raises(MissingSeries, match=r"there is no histogram 'wrok'; this page has: work"):
        parse_metrics(text, metrics(histogram="wrok"))
    with pytest.raises(MissingSeries, match=r"there is no summary 'wrok'; this page has: same, work"):
        parse_metrics(text, metrics(summary="wrok"))
    with pytest.raises(MissingSeries, match=r"same has no classic buckets"):
        parse_metrics(text, metrics(histogram="same"))


def test_a_window_is_the_difference_of_two_scrapes() -> None:
    before = [0.02] * 30 + [5.0]
    inside = [0.005] * 10 + [0.05] * 40 + [0.2] * 5
    found = subtract_scrapes(state(before, at_ms=1000, took_ms=4), state(before + inside, at_ms=3002, took_ms=8))
    assert found.count == 55
    assert found.counts == (10, 40, 5, 0)
    assert found.mean_seconds == pytest.approx(np.mean(inside))
    assert found.seconds == pytest.approx(2.004)
    assert found.seconds_error == pytest.approx(0.006)
    assert found.rate_hz == pytest.approx(55 / 2.004)
    assert found.longest_seconds == 0.25


def relative_to_truth(ratio: float) -> float:
    """A bound relative to the measurement, converted to one relative to the truth."""
    return ratio / (1 - ratio) if ratio < 1 else math.inf


@pytest.mark.parametrize("seed", range(40))
def test_the_truth_is_within_the_bounds_wherever_the_edges_fall(seed: int) -> None:
    """A closed loop is scraped at unknown moments; the iterations that began in the window are the truth."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(latencies := rng.lognormal(-3.3, 0.6, 400))
    starts = ends - latencies
    at, to = sorted(rng.uniform(1.0, ends[-1] - 1.0, 2))
    took = rng.uniform(0, 0.05, 2)
    # Each page was made somewhere between its request and its answer, its sum and its counts not at once.
    counted, summed = (np.array([at, to]) + rng.uniform(0, 1, 2) * took for _ in range(2))

    def taken(edge: int) -> Scrape:
        has_counted, has_summed = ends <= counted[edge], ends <= summed[edge]
        cumulative = (*(int((latencies[has_counted] <= upper).sum()) for upper in BUCKETS), int(has_counted.sum()))
        begun = [at, to][edge]
        return Scrape(
            round(begun * 1e9),
            round((begun + took[edge]) * 1e9),
            cumulative[-1],
            float(latencies[has_summed].sum()),
            (*BUCKETS, math.inf),
            cumulative,
        )

    found = subtract_scrapes(taken(0), taken(1))
    began = (starts >= counted[0]) & (starts < counted[1])
    assert began.sum() >= 5, "a window to speak of"
    true_rate = began.sum() / (counted[1] - counted[0])
    assert abs(found.rate_hz / true_rate - 1) <= relative_to_truth(found.rate_error_ratio)
    assert found.longest_seconds is None or found.longest_seconds >= latencies[began].max()
    if found.longest_seconds is not None:
        true_mean = latencies[began].mean()
        assert abs(found.mean_seconds / true_mean - 1) <= relative_to_truth(found.mean_error_ratio)


def test_error_bounds_match_a_calculation_by_hand() -> None:
    found = subtract_scrapes(state([], at_ms=0, took_ms=10), state([0.05] * 100, at_ms=5000, took_ms=10))
    assert found.rate_error_ratio == pytest.approx(0.01 / 5 + 2 / 100)
    # An edge's iteration may be 0.1 s, that is 0.05 s off the mean of 0.05 s, and the page may be torn by 10 ms twice.
    assert found.mean_error_ratio == pytest.approx(2 / 100 * 0.05 / 0.05 + 2 * 0.01 / 5)
    slow = subtract_scrapes(state([]), state([0.011] * 100, at_ms=5000))
    assert slow.mean_error_ratio == pytest.approx(2 / 100 * (0.1 - 0.011) / 0.011)


def test_a_window_without_iterations_has_no_mean_and_no_error() -> None:
    found = subtract_scrapes(state([0.1]), state([0.1], at_ms=1000))
    assert (found.count, found.mean_seconds, found.rate_error_ratio, found.mean_error_ratio) == (0, None, None, None)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (state([0.02] * 3, at_ms=1000), "its counters went backwards from 10 to 3 iterations"),
        (state([0.2] * 20, at_ms=1000), "the bucket up to 0.1 s lost 10 iterations"),
        (state([0.001] * 11, at_ms=1000), "its sum went backwards from 0.2 to 0.011 s"),
        (state([0.02] * 20, at_ms=1000, buckets=(0.01, 0.5)), r"the bounds of its buckets changed from \(0.01, 0.1,"),
    ],
    ids=["fewer", "another distribution", "a smaller sum", "other buckets"],
)
def test_a_program_that_restarted_has_no_window(after: Scrape, what: str) -> None:
    with pytest.raises(NodeError, match=f"^{what}.*: it restarted$"):
        subtract_scrapes(state([0.02] * 10), after)


def test_a_sum_may_lose_its_last_digits_only() -> None:
    """A server of several processes adds their sums, in any order."""
    before = state([0.1] * 3)
    after = dataclasses.replace(before, sum_seconds=before.sum_seconds * (1 - 1e-15), begun_ns=10**9, ended_ns=10**9)
    assert subtract_scrapes(before, after).sum_seconds == 0


def test_a_window_of_a_summary_has_a_mean_and_no_buckets() -> None:
    states = [
        parse_metrics(page({"a": latencies}), metrics(summary="same"), at_ms * MS, at_ms * MS)
        for latencies, at_ms in (([0.1], 0), ([0.1, 0.3], 1000))
    ]
    found = subtract_scrapes(*states)
    assert (found.count, found.counts, found.upper_seconds, found.longest_seconds) == (1, (), (), None)
    assert found.mean_seconds == pytest.approx(0.3)
    assert found.mean_error_ratio == pytest.approx(2.0)


@pytest.fixture
def served() -> Iterator[Callable[..., int]]:
    """Serves pages one after another, the last one forever, on its own port."""
    servers = []

    def serve(*pages: bytes, status: int = 200) -> int:
        left = list(pages)

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

            def log_message(self, *_: object) -> None: ...

        server = http.server.HTTPServer(("127.0.0.1", 0), Page)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return int(server.server_port)

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


Made = Callable[..., ScrapedEndpoint | ScrapedPod]


@pytest.fixture(params=["host", "pod"])
def endpoint(request: pytest.FixtureRequest) -> Made:
    """A function that makes the endpoint of a program with metrics on this port, on a host or in a pod."""

    def made(port: int, its_log: Path, seconds: float = 0.2, **more: Any) -> ScrapedEndpoint | ScrapedPod:
        rules = {"path": None, "count": None, "log": None} | more
        workload: Any = {"name": "mine", "metrics": metrics(histogram="work"), "ready": rules}
        rule = SteadinessRule(4, seconds, 5.0)
        if request.param == "host":
            return ScrapedEndpoint(3, workload, port, its_log, ProcessTree(os.getpid()), rule)
        client = SelfMeasuringProgram(port, "/metrics")
        server = Server("127.0.0.1", 0, "secret", State(program=client, measurement=client))
        server.start()
        connection = ("127.0.0.1", "secret", None, server.port)
        return ScrapedPod(
            *connection, index=3, workload=workload, rule=rule, log=its_log.read_text, ending=lambda: None
        )

    return made


def window_of(asked: ScrapedEndpoint | ScrapedPod, seconds: float = 0.05) -> TenantReport:
    """The record of a window that begins soon."""
    lead_ns = 20 * MS
    # A busy machine may reach the start before the window is set, which is then refused.
    while not asked.set_window(start_ns := time.monotonic_ns() + lead_ns, start_ns + int(seconds * 1e9)):
        lead_ns *= 2
    return asked.record(5.0)


def test_the_record_comes_from_both_scrapes(endpoint: Made, served: Callable[..., int], tmp_path: Path) -> None:
    before, inside = [0.02] * 7, [0.05] * 3 + [0.2]
    asked = endpoint(served(page({"a": before}).encode(), page({"a": before + inside}).encode()), tmp_path)
    found = window_of(asked)
    assert (found["index"], found["workload"], found["count"]) == (3, "mine", 4)
    assert found["sum_seconds"] == pytest.approx(0.35)
    assert found["foreign_histogram"] == {"upper_seconds": [0.01, 0.1, 0.25, None], "count": [0, 3, 1, 0]}
    assert found["load"]["achieved_rate_hz"] == pytest.approx(4 / found["scrape"]["seconds"])
    assert 0 <= found["coverage_ratio"] <= 1
    assert found["startup"] and found["environment"]["python"]
    if isinstance(asked, ScrapedEndpoint):
        assert found["outside"]["pids"][0] == os.getpid()


def test_a_program_that_restarts_in_the_window_is_a_node_error(
    endpoint: Made, served: Callable[..., int], tmp_path: Path
) -> None:
    port = served(page({"a": [0.02] * 100}).encode(), page({"a": [0.02] * 3}).encode())
    with pytest.raises(
        NodeError, match=r"^tenant 3: its counters went backwards from 100 to 3 iterations: it restarted$"
    ):
        window_of(endpoint(port, tmp_path))


def test_a_silent_program_is_unreachable_or_hung(endpoint: Made, tmp_path: Path) -> None:
    with pytest.raises((TenantUnreachable, TenantsFailed), match="GET /metrics: connection refused"):
        window_of(endpoint(1, tmp_path))


def test_a_window_in_the_past_is_refused(endpoint: Made, tmp_path: Path) -> None:
    assert not endpoint(1, tmp_path).set_window(time.monotonic_ns() - MS, time.monotonic_ns() + MS)


def test_a_program_is_ready_after_its_rule_holds_and_a_verdict(
    endpoint: Made, served: Callable[..., int], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("")
    asked = endpoint(served(page({"a": [0.02] * 9}).encode()), log, log="ready to go")
    assert not asked.ready()
    log.write_text("and now ready to go!")
    until = time.monotonic() + 120
    while not asked.ready():
        assert time.monotonic() < until
    assert asked.steadiness(time.monotonic_ns()) is None, "the judgement starts again from then on"
    assert not endpoint(served(page({"a": [0.02] * 9}).encode()), log, count=10).ready()
    assert not endpoint(served(b"", status=500), log, path="/health").ready()


def edited_page(edit: Callable[[str], str | None]) -> str:
    """A page of three iterations, each line of its histogram's samples edited; None removes it."""
    lines = page({"a": [0.005, 0.05, 0.2]}).splitlines()
    edited = [edit(line) if line.startswith("work_") else line for line in lines]
    return "".join(f"{line}\n" for line in edited if line is not None)


def with_value(start: str, value: str) -> str:
    return edited_page(lambda line: f"{line.rpartition(' ')[0]} {value}" if line.startswith(start) else line)


NOT_FINITE = {value: f"{value.lower().strip('+')}, which is not finite" for value in ("NaN", "+Inf", "-Inf")}
HUGE = {"1e300": "1e+300, which is beyond 64 bits", "1" * 400: f"{'1' * 24}, which is beyond 64 bits"}
HOSTILE = NOT_FINITE | HUGE | {"-5": "-5, which is below 0"}


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    ("start", "what"),
    [
        ("work_sum", "the sum of histogram 'work'"),
        ("work_count", "the count of histogram 'work'"),
        ('work_bucket{le="0.1"', "the bucket le=\"0.1\" of histogram 'work'"),
        ('work_bucket{le="+Inf"', "the bucket le=\"+Inf\" of histogram 'work'"),
    ],
)
def test_a_value_that_is_not_that_of_a_counter_is_named(start: str, what: str, value: str) -> None:
    why = re.escape(f"{what} is {HOSTILE[value]}")
    with pytest.raises(MissingSeries, match=f"^{why}$"):
        parse_metrics(with_value(start, value), metrics(histogram="work"))


@pytest.mark.parametrize("value", ["NaN", "-Inf", "1e300", "-5"])
def test_a_bound_that_is_no_time_is_named(value: str) -> None:
    why = HOSTILE[value].partition(", ")[2]
    with pytest.raises(MissingSeries, match=f"^the bound of a bucket of histogram 'work' is .*{why}$"):
        parse_metrics(edited_page(lambda line: line.replace('le="0.1"', f'le="{value}"')), metrics(histogram="work"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            with_value('work_bucket{le="0.25"', "1"),
            "fall from 2 up to 0.1 to 1 up to 0.25; each must include those below",
        ),
        (edited_page(lambda line: line.replace('le="0.1"', 'le="0.25"')), "has the bucket up to 0.25 twice"),
        (
            edited_page(lambda line: line.replace('le="0.1"', 'le="fast"')),
            'a bucket .* has le="fast", which is not a number',
        ),
        (edited_page(lambda line: None if "+Inf" in line else line), 'has no classic buckets up to le="\\+Inf"'),
    ],
    ids=["falling", "twice", "no number", "no last one"],
)
def test_buckets_that_are_no_histogram_are_named(text: str, why: str) -> None:
    with pytest.raises(MissingSeries, match=why):
        parse_metrics(text, metrics(histogram="work"))


def test_a_byte_order_mark_is_not_part_of_a_page() -> None:
    assert parse_metrics("\ufeffwork_sum 3\nwork_count 2\n", metrics(summary="work")).count == 2


def test_an_endless_page_is_refused(served: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1 << 20)
    text = page({"a": [0.05]}).encode()
    assert scrape(served(text)).count == 1
    with pytest.raises(MissingSeries, match=r"^its page of metrics is larger than 8 MiB; export fewer series$"):
        scrape(served(text + b"# more\n" * (1 << 18)))


def test_the_unmet_ready_condition_is_named(endpoint: Made, served: Callable[..., int], tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loading")
    good = page({"a": [0.02] * 9}).encode()

    def waiting_for(port: int, **rules: Any) -> str | None:
        asked = endpoint(port, log, 600.0, **rules)
        with contextlib.suppress(TenantUnreachable):
            assert not asked.ready()
        return asked.waiting_for

    assert waiting_for(served(good), log="up") == "its log has no 'up'"
    assert waiting_for(served(b"", status=404), path="/health") == "GET /health: status 404"
    assert waiting_for(1, path="/health") == "GET /health: connection refused"
    assert waiting_for(1) == "GET /metrics: connection refused"
    assert waiting_for(served(good), count=10) == "its metrics count 9 of 10 iterations"
    assert waiting_for(served(good)) == "its warm-up has not ended"


@pytest.mark.parametrize(
    ("status", "body"), [(503, b""), (200, b"work_sum what\n"), (200, b"\xff\xfe")], ids=["busy", "no page", "no text"]
)
def test_a_page_that_cannot_be_fetched_is_unreachable(served: Callable[..., int], status: int, body: bytes) -> None:
    port = served(body, status=status)
    with pytest.raises(TenantUnreachable):
        scrape(port)


DEFAULT_RULE = SteadinessRule(4, 10.0, 5.0)


def judged(pieces: list[list[float]], every_ms: int = 100, rule: SteadinessRule = DEFAULT_RULE) -> Steadiness | None:
    """The verdict after scrapes with these iterations between them."""
    judge, so_far = MeansJudge(rule, 0), []
    for number, piece in enumerate([[], *pieces]):
        so_far += piece
        judge.add(state(so_far, at_ms=number * every_ms))
    return judge.verdict(len(pieces) * every_ms * MS)


def test_two_similar_batches_are_steady() -> None:
    verdict = judged([[0.02] * 5, [0.0204] * 5])
    assert verdict == {"is_steady": True, "batches": 2, "change_percent": pytest.approx(2.0)}


def test_batches_that_differ_are_not_steady_until_time_is_up() -> None:
    growing = [[0.02 * 1.2**number] * 5 for number in range(8)]
    assert judged(growing) is None
    late = judged(growing, rule=SteadinessRule(4, 0.5, 5.0))
    assert late is not None and not late["is_steady"]
    assert late["change_percent"] == pytest.approx(20.0)


def test_a_batch_needs_iterations_and_time() -> None:
    assert judged([[0.02], [0.02], [0.02]]) is None
    assert judged([[0.02] * 5] * 3, every_ms=40) is None
    slow = judged([[0.02] * 5] * 6, every_ms=40)
    assert slow is not None and slow["batches"] == 2
