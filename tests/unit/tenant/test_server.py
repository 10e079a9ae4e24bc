import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tenant.contract import Steadiness
from tenant.failures import RefusedError
from tenant.server import Server, State


class Stub:
    """A measurement that remembers what it was asked."""

    def __init__(self) -> None:
        self.verdict: Steadiness | None = None
        self.since: list[int | None] = []
        self.windows: list[tuple[int, int]] = []
        self.deadlines: list[float] = []

    def readiness(self, since_ns: int | None) -> Steadiness | None:
        self.since.append(since_ns)
        return self.verdict

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> None:
        if start_ns > end_ns:
            raise RefusedError("planted")
        self.windows.append((start_ns, end_ns, iterations))

    def wait_record(self, deadline_seconds: float) -> dict[str, Any]:
        self.deadlines.append(deadline_seconds)
        return {"count": 1}

    def wait_digest(self, deadline_seconds: float) -> list[float | None] | None:
        self.deadlines.append(deadline_seconds)
        return [1.0, None] if deadline_seconds else None

    def metrics(self) -> tuple[bytes, str]:
        return b"# planted\n", "text/planted"


class Client:
    def __init__(self) -> None:
        self.state = State()
        self.stub = Stub()
        self.server = Server("127.0.0.1", 0, "right", self.state)
        self.server.start()

    def ask(
        self, method: str, path: str, body: str | None = None, authorization: str | None = "Bearer right"
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        connection.request(method, path, body, {"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(text) if is_json else text


@pytest.fixture
def client() -> Iterator[Client]:
    yield Client()


@pytest.fixture
def loaded(client: Client) -> Client:
    client.state.measurement = client.stub  # type: ignore[assignment]
    return client


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer wrong", "right", "bearer right", "Bearer rightx", "Bearer é"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/clock"),
        ("POST", "/window"),
        ("GET", "/record?deadline_seconds=1"),
        ("GET", "/digest?deadline_seconds=1"),
    ],
)
def test_without_the_token_the_driver_is_refused(
    loaded: Client, method: str, path: str, authorization: str | None
) -> None:
    status, answer = loaded.ask(method, path, '{"start_ns": 1, "end_ns": 2}', authorization)
    assert (status, answer) == (401, {"error": "wrong or missing token"})
    assert loaded.stub.windows == [] and loaded.stub.deadlines == []


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_the_others_need_no_token(loaded: Client, path: str) -> None:
    assert loaded.ask("GET", path, authorization=None)[0] in (200, 503)


def test_health_is_the_status(client: Client) -> None:
    for status in ("loading", "failed"):
        client.state.status = status
        assert client.ask("GET", "/healthz") == (200, {"status": status})


def test_while_loading_nothing_can_be_measured(client: Client) -> None:
    assert client.ask("GET", "/readyz") == (503, {"ready": False, "stage": "loading"})
    assert client.ask("GET", "/metrics")[0] == 503
    assert client.ask("POST", "/window", '{"start_ns": 1, "end_ns": 2}') == (409, {"error": "the tenant is not ready"})
    assert client.ask("GET", "/record?deadline_seconds=1")[0] == 409


def test_readiness_has_the_verdict(loaded: Client) -> None:
    loaded.state.status = "warming"
    assert loaded.ask("GET", "/readyz") == (503, {"ready": False, "stage": "warming"})
    steady: Steadiness = {"is_steady": True, "batches": 2, "change_percent": 1.5}
    loaded.stub.verdict = steady
    assert loaded.ask("GET", "/readyz?since=123") == (200, {"ready": True, "steady": steady})
    assert loaded.stub.since == [None, 123]


def test_the_clock_is_the_node_s(client: Client) -> None:
    status, answer = client.ask("GET", "/clock")
    assert status == 200
    assert set(answer) == {"boot_id", "first_line_ns", "monotonic_ns", "realtime_ns"}
    assert client.ask("GET", "/clock")[1]["monotonic_ns"] > answer["monotonic_ns"]


def test_a_window_is_handed_over(loaded: Client) -> None:
    assert loaded.ask("POST", "/window", '{"start_ns": 1, "end_ns": 2}') == (200, {"accepted": True})
    assert loaded.ask("POST", "/window", '{"start_ns": 1, "end_ns": 2, "iterations": 7}') == (200, {"accepted": True})
    assert loaded.stub.windows == [(1, 2, None), (1, 2, 7)]
    assert loaded.ask("POST", "/window", '{"start_ns": 2, "end_ns": 1}') == (409, {"error": "planted"})


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/window", ""),
        ("POST", "/window", "[]"),
        ("POST", "/window", "{"),
        ("POST", "/window", '{"start_ns": 1}'),
        ("POST", "/window", '{"start_ns": 1, "end_ns": 2.5}'),
        ("POST", "/window", '{"start_ns": true, "end_ns": 2}'),
        ("POST", "/window", '{"start_ns": 1, "end_ns": 2' + " " * 20_000 + "}"),
        ("GET", "/record", None),
        ("GET", "/record?deadline_seconds=soon", None),
        ("GET", "/record?deadline_seconds=nan", None),
        ("GET", "/record?deadline_seconds=-1", None),
        ("GET", "/record?deadline_seconds=inf", None),
        ("GET", "/digest", None),
        ("GET", "/readyz?since=yesterday", None),
        ("GET", "/readyz?since=-5", None),
    ],
)
def test_nonsense_is_answered_with_a_line(loaded: Client, method: str, path: str, body: str | None) -> None:
    status, answer = loaded.ask(method, path, body)
    assert status == 400
    assert answer["error"] and "\n" not in answer["error"]
    assert loaded.stub.windows == [] and loaded.stub.deadlines == []


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/window"), ("POST", "/record"), ("GET", "/x")])
def test_other_paths_do_not_exist(loaded: Client, method: str, path: str) -> None:
    assert loaded.ask(method, path)[0] == 404


def test_the_record_is_waited_for_as_long_as_asked(loaded: Client) -> None:
    assert loaded.ask("GET", "/record?deadline_seconds=2.5") == (200, {"count": 1})
    assert loaded.stub.deadlines == [2.5]


def test_the_digest_is_waited_for_as_long_as_asked(loaded: Client) -> None:
    assert loaded.ask("GET", "/digest?deadline_seconds=2.5") == (200, {"output_digest": [1.0, None]})
    assert loaded.ask("GET", "/digest?deadline_seconds=0") == (200, {"output_digest": None})
    assert loaded.stub.deadlines == [2.5, 0]


def test_metrics_have_their_own_content_type(loaded: Client) -> None:
    assert loaded.ask("GET", "/metrics") == (200, "# planted\n")


def test_a_connection_can_be_used_again(loaded: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", loaded.server.port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status": "loading"}\n'
    connection.close()


def test_only_the_given_address_is_bound(client: Client) -> None:
    assert client.server.server_address[0] == "127.0.0.1"
    assert client.server.port > 0
