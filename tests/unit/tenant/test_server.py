import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tenant.contract import Steadiness
from tenant.failures import RefusedError
from tenant.server import Server, State

from .conftest import asked


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
        status, text = asked(self.server.port, method, path, body, authorization)
        return status, json.loads(text) if text.startswith("{") else text


@pytest.fixture
def client() -> Iterator[Client]:
    yield Client()


@pytest.fixture
def loaded(client: Client) -> Client:
    client.state.measurement = client.stub  # type: ignore[assignment]
    return client


@pytest.mark.parametrize("authorization", [None, "right", "Bearer wrong", "Bearer rightx", "Bearer é"])
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


def test_while_loading_nothing_can_be_measured(client: Client) -> None:
    assert client.ask("GET", "/healthz", authorization=None) == (200, {"status": "loading"})
    assert client.ask("GET", "/readyz") == (503, {"ready": False, "stage": "loading"})
    assert client.ask("GET", "/metrics")[0] == 503
    assert client.ask("POST", "/window", '{"start_ns": 1, "end_ns": 2}') == (409, {"error": "the tenant is not ready"})
    assert client.ask("GET", "/record?deadline_seconds=1")[0] == 409


def test_readiness_has_the_verdict(loaded: Client) -> None:
    loaded.state.status = "warming"
    assert loaded.ask("GET", "/readyz") == (503, {"ready": False, "stage": "warming"})
    steady: Steadiness = {"is_steady": True, "batches": 2, "change_percent": 1.5}
    loaded.stub.verdict = steady
    assert loaded.ask("GET", "/readyz?since=123", authorization=None) == (200, {"ready": True, "steady": steady})
    assert loaded.stub.since == [None, 123]
    assert loaded.ask("GET", "/metrics", authorization=None) == (200, "# planted\n")


def test_a_window_is_handed_over(loaded: Client) -> None:
    assert loaded.ask("POST", "/window", '{"start_ns": 1, "end_ns": 2}') == (200, {"accepted": True})
    assert loaded.ask("POST", "/window", '{"start_ns": 1, "end_ns": 2, "iterations": 7}') == (200, {"accepted": True})
    assert loaded.stub.windows == [(1, 2, None), (1, 2, 7)]
    assert loaded.ask("POST", "/window", '{"start_ns": 2, "end_ns": 1}') == (409, {"error": "planted"})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/window", "{", 400),
        ("POST", "/window", '{"start_ns": 1}', 400),
        ("POST", "/window", '{"start_ns": 1, "end_ns": 2' + " " * 20_000 + "}", 400),
        ("GET", "/record", None, 400),
        ("GET", "/digest?deadline_seconds=soon", None, 400),
        ("GET", "/readyz?since=yesterday", None, 400),
        ("GET", "/window", None, 404),
        ("POST", "/record", None, 404),
    ],
)
def test_nonsense_is_answered_with_a_line(
    loaded: Client, method: str, path: str, body: str | None, status: int
) -> None:
    found, answer = loaded.ask(method, path, body)
    assert found == status
    assert answer["error"] and "\n" not in answer["error"]
    assert loaded.stub.windows == [] and loaded.stub.deadlines == []


def test_record_and_digest_are_waited_for_as_long_as_asked(loaded: Client) -> None:
    assert loaded.ask("GET", "/record?deadline_seconds=2.5") == (200, {"count": 1})
    assert loaded.ask("GET", "/digest?deadline_seconds=1.5") == (200, {"output_digest": [1.0, None]})
    assert loaded.ask("GET", "/digest?deadline_seconds=0") == (200, {"output_digest": None})
    assert loaded.stub.deadlines == [2.5, 1.5, 0]


def test_a_connection_can_be_used_again(loaded: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", loaded.server.port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status": "loading"}\n'
    connection.close()
