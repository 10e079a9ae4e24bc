"""The tenant's HTTP side: what the driver and Prometheus ask. It sleeps until a request comes."""

from __future__ import annotations

import hmac
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

from tenant import FIRST_LINE_NS
from tenant.contract import boot_id
from tenant.failures import RefusedError

if TYPE_CHECKING:
    # It brings numpy along, whose import is a part of start-up that is timed while the server already
    # listens.
    from tenant.contract import TenantReport
    from tenant.exiting import Exiting
    from tenant.gpu.telemetry import Sampling
    from tenant.measure import Measurement
    from tenant.program import Program
    from tenant.scraping import Scraping

LONGEST_BODY_BYTES = 10_000


@dataclass
class State:
    """What the loop's and the HTTP threads share; `status` is loading, warming, ready or failed.

    `measurement` is there once the workload is loaded, `sampling` while the GPU is sampled for the driver, `program`
    next to a user's container.
    """

    status: str = "loading"
    measurement: Measurement | Exiting | Scraping | None = None
    program: Program | None = None
    begins_ns: int | None = None
    """When the last window began, or will."""
    sampling: Sampling | None = None

    def loaded(self) -> Measurement | Exiting | Scraping:
        """The measurement. Raises RefusedError while there is none."""
        if self.measurement is None:
            raise RefusedError("the tenant is not ready")
        return self.measurement


class Reply(NamedTuple):
    """An answer before it is written."""

    code: int
    body: bytes
    content_type: str = "application/json"


class Request(NamedTuple):
    """A request after it was read; of several values of a parameter the last one counts."""

    query: dict[str, str]
    body: bytes


def _json(document: Mapping[str, object], code: int = HTTPStatus.OK) -> Reply:
    return Reply(code, json.dumps(document).encode() + b"\n")


def _healthz(state: State, _request: Request) -> Reply:
    if state.program is None or state.status != "loading":
        return _json({"status": state.status})
    return _json({"status": state.status, "listens": state.program.listening()})


def _readyz(state: State, request: Request) -> Reply:
    since, verdict = request.query.get("since"), None
    if state.measurement is not None:
        verdict = state.measurement.readiness(None if since is None else int(since))
    if verdict is None:
        return _json({"ready": False, "stage": state.status}, HTTPStatus.SERVICE_UNAVAILABLE)
    return _json({"ready": True, "steady": verdict})


def _metrics(state: State, _request: Request) -> Reply:
    if state.measurement is None:
        return _json({"error": "the tenant is loading"}, HTTPStatus.SERVICE_UNAVAILABLE)
    return Reply(HTTPStatus.OK, *state.measurement.metrics())


def _page(state: State, request: Request) -> Reply:
    # Only clients of a program that measures itself are asked for it.
    from tenant.scraping import Scraping

    assert isinstance(state.program, Scraping)
    return _json({"page": state.program.page(request.query["path"]), "listens": state.program.listening()})


def _clock(_state: State, _request: Request) -> Reply:
    times = {"monotonic_ns": time.monotonic_ns(), "realtime_ns": time.time_ns()}
    return _json({"boot_id": boot_id(), "first_line_ns": FIRST_LINE_NS, **times})


def _window(state: State, request: Request) -> Reply:
    window = json.loads(request.body)
    start_ns: int = window["start_ns"]
    state.loaded().set_window(**window)
    state.begins_ns = start_ns
    if state.program is not None:
        state.program.watch(start_ns, window["end_ns"])
    return _json({"accepted": True})


def _begun(state: State, _request: Request) -> Reply:
    has_begun = state.begins_ns is not None and time.monotonic_ns() >= state.begins_ns
    return _json({"begun": has_begun}, HTTPStatus.OK if has_begun else HTTPStatus.SERVICE_UNAVAILABLE)


def _record(state: State, request: Request) -> Reply:
    report = state.loaded().wait_record(float(request.query["deadline_seconds"]))
    return _json(report if state.program is None else state.program.completed(cast("TenantReport", report)))


def _digest(state: State, request: Request) -> Reply:
    return _json({"output_digest": state.loaded().wait_digest(float(request.query["deadline_seconds"]))})


def _begin_telemetry(state: State, _request: Request) -> Reply:
    # Only tenants in pods are asked for it.
    from tenant.gpu.telemetry import Sampling

    if state.sampling is not None:
        raise RefusedError("the GPU is being sampled already")
    sampling = Sampling()
    state.sampling = sampling if sampling.reason is None else None
    return _json({"reason": sampling.reason})


def _end_telemetry(state: State, _request: Request) -> Reply:
    sampling, state.sampling = state.sampling, None
    if sampling is None:
        raise RefusedError("the GPU is not being sampled")
    return _json(sampling.end())


Answer = Callable[[State, Request], Reply]
OPEN: dict[tuple[str, str], Answer] = {
    ("GET", "/begun"): _begun,
    ("GET", "/healthz"): _healthz,
    ("GET", "/readyz"): _readyz,
    ("GET", "/metrics"): _metrics,
}
GUARDED: dict[tuple[str, str], Answer] = {
    ("GET", "/clock"): _clock,
    ("GET", "/digest"): _digest,
    ("GET", "/page"): _page,
    ("GET", "/record"): _record,
    ("GET", "/telemetry"): _end_telemetry,
    ("POST", "/telemetry"): _begin_telemetry,
    ("POST", "/window"): _window,
}


class Handler(BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    server: Server
    protocol_version = "HTTP/1.1"
    # Head and body go out as two pieces; the second must not wait for the first to be acknowledged.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        try:
            reply = self._reply()
        except RefusedError as error:
            reply = _json({"error": str(error)}, HTTPStatus.CONFLICT)
        except (LookupError, TypeError, ValueError) as error:
            # Only the driver asks, and knows what; whoever else does is not answered with a traceback in the log.
            reply = _json({"error": f"{type(error).__name__}: {error}"}, HTTPStatus.BAD_REQUEST)
        self.send_response(reply.code)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        if reply.code != HTTPStatus.OK:
            # The body may not have been read.
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply.body)

    do_POST = do_GET

    def _reply(self) -> Reply:
        url = urlsplit(self.path)
        route = (self.command, url.path)
        answer = OPEN.get(route) or GUARDED.get(route)
        if answer is None:
            return _json({"error": f"there is no {self.command} {url.path}"}, HTTPStatus.NOT_FOUND)
        if route in GUARDED and not self.server.knows(self.headers.get("Authorization", "")):
            return _json({"error": "wrong or missing token"}, HTTPStatus.UNAUTHORIZED)
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LONGEST_BODY_BYTES:
            raise ValueError(f"a body must have a length of at most {LONGEST_BODY_BYTES} bytes")
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        return answer(self.server.state, Request(query, self.rfile.read(int(length))))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Server(ThreadingMixIn, TCPServer):
    """Listens on `bind`; port 0 picks a free one."""

    # Not http.server.HTTPServer: it looks up the host's name, which in a pod may take seconds.
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, bind: str, port: int, token: str, state: State) -> None:
        super().__init__((bind, port), Handler)
        self.state = state
        self._authorization = f"Bearer {token}".encode()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def knows(self, authorization: str) -> bool:
        """Whether the header carries the token, compared in constant time."""
        return hmac.compare_digest(authorization.encode(), self._authorization)

    def start(self) -> None:
        """Serve from a daemon thread, without the periodic wake-ups of `serve_forever`."""
        threading.Thread(target=self._serve, name="http", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.handle_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print every error but that of a client that went away."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
