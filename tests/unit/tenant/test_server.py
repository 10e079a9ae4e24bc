import json
from typing import Any
from unittest.mock import call, create_autospec

import pytest

from tenant.failures import RefusedError
from tenant.load import Load, NamedLoad
from tenant.measure import Measurement
from tenant.server import Server, State

from .conftest import http_request


class Client:
    """A tenant's server with a mocked measurement."""

    def __init__(self) -> None:
        self.state = State()
        self.measurement = create_autospec(Measurement, instance=True)
        self.server = Server("127.0.0.1", 0, "right", self.state)
        self.server.start()

    def ask(
        self, method: str, path: str, body: str | None = None, authorization: str | None = "Bearer right"
    ) -> tuple[int, Any]:
        status, text = http_request(self.server.port, method, path, body, authorization)
        return status, json.loads(text) if text.startswith("{") else text


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def loaded(client: Client) -> Client:
    client.state.measurement = client.measurement
    return client


@pytest.mark.parametrize("authorization", [None, "right", "Bearer wrong", "Bearer rightx", "Bearer é"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/clock"),
        ("POST", "/window"),
        ("POST", "/load"),
        ("GET", "/record?deadline_seconds=1"),
        ("GET", "/digest?deadline_seconds=1"),
    ],
)
def test_the_server_refuses_the_driver_without_its_token(
    loaded: Client, method: str, path: str, authorization: str | None
) -> None:
    status, answer = loaded.ask(method, path, '{"start_ns": 1, "end_ns": 2}', authorization)
    assert (status, answer) == (401, {"error": "wrong or missing token"})
    assert loaded.measurement.mock_calls == []


def test_a_loading_tenant_refuses_windows_and_records(client: Client) -> None:
    assert client.ask("GET", "/healthz", authorization=None) == (200, {"status": "loading"})
    assert client.ask("GET", "/readyz") == (503, {"ready": False, "stage": "loading"})
    assert client.ask("GET", "/metrics")[0] == 503
    assert client.ask("POST", "/window", '{"start_ns": 1, "end_ns": 2}') == (409, {"error": "the tenant is not ready"})
    assert client.ask("GET", "/record?deadline_seconds=1")[0] == 409


def test_readiness_reports_the_steadiness_verdict(loaded: Client) -> None:
    loaded.state.status, loaded.measurement.readiness.return_value = "warming", None
    assert loaded.ask("GET", "/readyz") == (503, {"ready": False, "stage": "warming"})
    steady = loaded.measurement.readiness.return_value = {"is_steady": True, "batches": 2, "change_percent": 1.5}
    assert loaded.ask("GET", "/readyz?since=123", authorization=None) == (200, {"ready": True, "steady": steady})
    assert loaded.measurement.readiness.call_args_list == [call(None), call(123)]
    loaded.measurement.metrics.return_value = b"# planted\n", "text/planted"
    assert loaded.ask("GET", "/metrics", authorization=None) == (200, "# planted\n")


def test_the_server_passes_windows_to_the_measurement(loaded: Client) -> None:
    for window in ({"start_ns": 1, "end_ns": 2}, {"start_ns": 1, "end_ns": 2, "iterations": 7}):
        assert loaded.ask("POST", "/window", json.dumps(window)) == (200, {"accepted": True})
        loaded.measurement.set_window.assert_called_with(**window)
    loaded.measurement.set_window.side_effect = RefusedError("planted")
    assert loaded.ask("POST", "/window", '{"start_ns": 2, "end_ns": 1}') == (409, {"error": "planted"})


def test_a_tenant_that_is_told_its_next_load_warms_up_again(loaded: Client) -> None:
    body = json.dumps({"name": "chat-2", "load": {"arrival": "poisson", "rate_hz": 2.0, "seed": 5}})
    assert loaded.ask("POST", "/load", body) == (409, {"error": "the tenant is not ready"})
    loaded.state.status = "ready"
    assert loaded.ask("POST", "/load", body) == (200, {"accepted": True})
    loaded.measurement.set_load.assert_called_once_with(NamedLoad("chat-2", Load("poisson", 2.0, seed=5)))
    assert loaded.ask("GET", "/healthz") == (200, {"status": "warming"})


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
def test_a_malformed_request_is_answered_with_one_line(
    loaded: Client, method: str, path: str, body: str | None, status: int
) -> None:
    answer_status, answer = loaded.ask(method, path, body)
    assert answer_status == status
    assert answer["error"] and "\n" not in answer["error"]


def test_record_and_digest_are_waited_for_until_the_deadline(loaded: Client) -> None:
    loaded.measurement.wait_record.return_value, loaded.measurement.wait_outputs.return_value = (
        {"count": 1},
        {"output_digest": [1.0, None]},
    )
    assert loaded.ask("GET", "/record?deadline_seconds=2.5") == (200, {"count": 1})
    assert loaded.ask("GET", "/digest?deadline_seconds=1.5") == (200, {"output_digest": [1.0, None]})
    loaded.measurement.wait_record.assert_called_with(2.5)
    loaded.measurement.wait_outputs.assert_called_with(1.5)
