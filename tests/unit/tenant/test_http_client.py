"""The client that measures HTTP servers."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenant.client.connection import MAX_ERROR_CHARACTERS
from tenant.parameters import ParameterError
from tenant.workload import RequestError
from tenant.workloads import http_client
from tenant.workloads.http_client import create

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]
Serve = Callable[..., tuple[str, "Log"]]


def ok(handler: http.server.BaseHTTPRequestHandler, body: bytes = b"ok", status: int = 200) -> None:
    """A short answer."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class Log:
    """A server's log: method, path, headers and body of each request, and the number of connections."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that gives these answers and then always the last one; returns its URL and its log."""
    servers = []

    def start(*answers: Answer) -> tuple[str, Log]:
        remaining, log = list(answers), Log()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                log.connections += 1
                super().setup()

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                log.requests.append((self.command, self.path, dict(self.headers), body))
                (remaining.pop(0) if len(remaining) > 1 else remaining[0])(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", log

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_request_has_the_configured_method_path_headers_and_body(serve: Serve, tmp_path: Path) -> None:
    url, log = serve(ok)
    client = create({"url": url, "method": "POST", "path": "/v1?x=1", "headers": {"A": "b"}, "body": "{}"}, "cpu")
    client.step()
    method, path, headers, body = log.requests[-1]
    assert (method, path, headers["A"], body) == ("POST", "/v1?x=1", "b", b"{}")
    assert (f"http://{headers['Host']}", headers["Accept-Encoding"]) == (url, "identity")
    (tmp_path / "body").write_bytes(b"\x00\xff")
    create({"url": url, "method": "POST", "body_file": str(tmp_path / "body")}, "cpu").step()
    assert log.requests[-1][3] == b"\x00\xff"


def test_environment_variables_are_filled_in_and_redacted_in_errors(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def echo(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(f"GET {handler.path}\r\n".encode())
        handler.close_connection = True

    monkeypatch.setenv("MY_KEY", "sk-1")
    url, log = serve(ok, ok, echo)
    params = {"url": url, "path": "/v1?key={env:MY_KEY}", "headers": {"Authorization": "Bearer {env:MY_KEY}"}}
    client = create(params | {"ready_path": "/health?key={env:MY_KEY}"}, "cpu")
    client.step()
    assert [request[1] for request in log.requests] == ["/health?key=sk-1", "/v1?key=sk-1"]
    assert log.requests[-1][2]["Authorization"] == "Bearer sk-1"
    with pytest.raises(RequestError) as failed:
        client.step()
    assert str(failed.value) == "no HTTP answer, but 'GET /v1?key=…'"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_truncated_error_has_no_part_of_a_secret(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    lengths = list(range(95, 150, 9))

    def echo(handler: http.server.BaseHTTPRequestHandler) -> None:
        text = "x" * lengths.pop() + handler.headers["A"] + "y" * 200
        if is_stream:
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.end_headers()
            text = f'data: {{"error": {{"message": "{text}"}}}}\n\n'
        handler.wfile.write(text.encode())
        handler.close_connection = True

    monkeypatch.setenv("MY_KEY", "SECRET" * 10)
    params = {"url": serve(ok, echo)[0], "ready_path": "/", "headers": {"A": "{env:MY_KEY}"}, "stream": is_stream}
    client = create(params, "cpu")
    while lengths:
        with pytest.raises(RequestError) as failed:
            client.step()
        assert "SECRET" not in str(failed.value) and len(str(failed.value)) == MAX_ERROR_CHARACTERS


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"headers": {"A": "{env:NO_KEY}"}}, r"\{env:NO_KEY\} is not set"),
        ({"headers": {"A": "{env:MY_KEY}"}}, r"\{env:MY_KEY\} holds .*a line break"),
        ({"path": "/a b"}, "/a b cannot be sent"),
        ({"ready_path": "/\n"}, "cannot be sent"),
        ({"headers": {"A": "b\r\nC: d"}}, "of one line"),
    ],
)
def test_parameters_that_make_no_valid_request_are_refused(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], line: str
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-1\n")
    with pytest.raises(ParameterError, match=line) as refused:
        create({"url": "http://127.0.0.1:1", **params}, "cpu")
    assert "sk-1" not in str(refused.value)


@pytest.mark.parametrize(("ready_path", "ready_request"), [(None, "POST /infer"), ("/health", "GET /health")])
def test_the_client_waits_until_the_server_is_ready(
    serve: Serve, capsys: pytest.CaptureFixture[str], ready_path: str | None, ready_request: str
) -> None:
    url, log = serve(lambda handler: ok(handler, status=503), lambda handler: ok(handler, status=503), ok)
    params = {"url": url, "method": "POST", "path": "/infer", "ready_path": ready_path}
    create(params, "cpu")
    assert [" ".join(request[:2]) for request in log.requests] == [ready_request] * 3
    line = f"{ready_request} is answered, but the warm-up with POST /infer has not ended"
    assert capsys.readouterr().err.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ([lambda handler: ok(handler, status=404)], "GET /health: status 404"),
        ([lambda _: time.sleep(60)], "GET /health: connected, but there is no answer"),
        ([], "GET /health: connection refused"),
    ],
    ids=["404", "silent", "refused"],
)
def test_the_note_has_the_reason_until_the_server_is_ready(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, answers: list[Answer], line: str
) -> None:
    url = serve(*answers)[0] if answers else "http://127.0.0.1:1"
    lines: list[str] = []

    def write(_: object, text: str) -> None:
        lines.append(text)
        if text == line or len(lines) == 100:
            raise KeyboardInterrupt

    monkeypatch.setattr(http_client.Note, "write", write)
    with pytest.raises(KeyboardInterrupt):
        create({"url": url, "method": "POST", "path": "/infer", "ready_path": "/health"}, "cpu")
    assert lines[-1] == line
