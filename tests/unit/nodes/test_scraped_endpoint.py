"""A program that measures itself, behind its client: readiness, steadiness, and the record from two pages."""

import contextlib
import http.server
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit import factories
from unit.nodes.test_metrics import MS, metrics, page, state

from sharebench.measure.nodes.contract import NodeError, TenantsFailed, TenantUnreachable
from sharebench.measure.nodes.metrics import MissingSeries, Scrape, parse_page
from sharebench.measure.nodes.tenants.programs.endpoints import ObservedProgram
from sharebench.measure.nodes.tenants.programs.scraped import MeansJudge, ScrapedEndpoint
from sharebench.model.workload import Ready, Workload
from tenant.contract import Steadiness, SteadinessRule, TenantReport
from tenant.contract import requests as pages
from tenant.program import SelfMeasuringProgram
from tenant.server import Server, State


def scrape(port: int) -> Scrape:
    """The current histogram of a program on this port."""
    return parse_page(pages.fetch_page(port, "/metrics", 120.0), metrics(histogram="work"))


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


Made = Callable[..., ScrapedEndpoint]


@pytest.fixture
def endpoint() -> Made:
    """A function that makes the endpoint of a program with metrics on this port, behind a client in this process."""

    def made(port: int, its_log: Path, seconds: float = 0.2, **more: Any) -> ScrapedEndpoint:
        workload = Workload(name="mine").changed(metrics=metrics(histogram="work"), ready=Ready(**more))
        warmup = {"min_iterations": 4, "max_seconds": seconds, "tolerance_percent": 5.0}
        spec = factories.spec({}, replicas=4, warmup=warmup).changed(workload=workload)
        client = SelfMeasuringProgram(os.getpid(), port, "/metrics")
        server = Server("127.0.0.1", 0, "secret", State(program=client, measurement=client))
        server.start()
        program = ObservedProgram(spec, 3, lambda text: text in its_log.read_text(), lambda: None)
        return ScrapedEndpoint(program, server.port, "secret")

    return made


def window_of(asked: ScrapedEndpoint, seconds: float = 0.05) -> TenantReport:
    """The record of a window that begins soon."""
    lead_ns = 20 * MS
    # A busy machine may reach the start before the window is set, which is then refused.
    while not asked.set_window(start_ns := time.monotonic_ns() + lead_ns, start_ns + int(seconds * 1e9)):
        lead_ns *= 2
    return asked.record(120.0)


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
    # The rule's time has not passed since then, however long this takes.
    later_ns = time.monotonic_ns() + 600_000 * MS
    assert asked.steadiness(later_ns) is None, "the judgement starts again from then on"
    assert not endpoint(served(page({"a": [0.02] * 9}).encode()), log, count=10).ready()
    assert not endpoint(served(b"", status=500), log, path="/health").ready()


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
