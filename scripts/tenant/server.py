"""The tenant's HTTP side: what the driver and Prometheus ask. It sleeps until a request comes."""

from __future__ import annotations

import hmac
import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

from tenant import FIRST_LINE_NS
from tenant.contract import boot_id
from tenant.failures import RefusedError

if TYPE_CHECKING:
    # It brings numpy along, whose import is a part of start-up that is timed while the server already listens.
    from tenant.contract import TenantReport
    from tenant.gpu.telemetry import Sampling
    from tenant.measure import Measurement
    from tenant.program import Exiting, Program, Scraping

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


# What anybody may ask; for all else the token is needed.
OPEN = ("GET /begun", "GET /healthz", "GET /metrics", "GET /readyz")


def answered(state: State, route: str, query: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, object]]:
    """Status and JSON of the answer to a method and path.

    Raises RefusedError, and LookupError, TypeError or ValueError for what makes no sense.
    """
    found: Mapping[str, object]
    match route:
        case "GET /healthz":
            found = {"status": state.status}
        case "GET /readyz":
            since_ns = int(query["since"]) if "since" in query else None
            verdict = None if state.measurement is None else state.measurement.readiness(since_ns)
            if verdict is None:
                return HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "stage": state.status}
            found = {"ready": True, "steady": verdict}
        case "GET /begun":
            has_begun = state.begins_ns is not None and time.monotonic_ns() >= state.begins_ns
            return HTTPStatus.OK if has_begun else HTTPStatus.SERVICE_UNAVAILABLE, {"begun": has_begun}
        case "GET /page":
            found = cast("Scraping", state.program).page(query["path"])
        case "GET /clock":
            times = {"monotonic_ns": time.monotonic_ns(), "realtime_ns": time.time_ns()}
            found = {"boot_id": boot_id(), "first_line_ns": FIRST_LINE_NS, **times}
        case "POST /window":
            window = json.loads(body)
            start_ns: int = window["start_ns"]
            state.loaded().set_window(**window)
            state.begins_ns = start_ns
            if state.program is not None:
                state.program.watch(start_ns, window["end_ns"])
            found = {"accepted": True}
        case "GET /record":
            report = state.loaded().wait_record(float(query["deadline_seconds"]))
            found = report if state.program is None else state.program.completed(cast("TenantReport", report))
        case "GET /digest":
            found = {"output_digest": state.loaded().wait_digest(float(query["deadline_seconds"]))}
        case "POST /telemetry":
            # Only tenants in pods are asked for it.
            from tenant.gpu.telemetry import Sampling

            if state.sampling is not None:
                raise RefusedError("the GPU is being sampled already")
            sampling = Sampling()
            state.sampling = sampling if sampling.reason is None else None
            found = {"reason": sampling.reason}
        case "GET /telemetry":
            if state.sampling is None:
                raise RefusedError("the GPU is not being sampled")
            ended, state.sampling = state.sampling, None
            found = cast(Mapping[str, object], ended.end())
        case _:
            return HTTPStatus.NOT_FOUND, {"error": f"there is no {route}"}
    return HTTPStatus.OK, found


def _json(code: int, document: Mapping[str, object]) -> tuple[int, bytes, str]:
    return code, json.dumps(document).encode() + b"\n", "application/json"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # Head and body go out as two pieces; the second must not wait for the first to be acknowledged.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        try:
            code, content, kind = self._answer()
        except RefusedError as error:
            code, content, kind = _json(HTTPStatus.CONFLICT, {"error": str(error)})
        except (LookupError, TypeError, ValueError) as error:
            # Only the driver asks, and knows what; whoever else does is not answered with a traceback in the log.
            code, content, kind = _json(HTTPStatus.BAD_REQUEST, {"error": f"{type(error).__name__}: {error}"})
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if code != HTTPStatus.OK:
            # The body may not have been read.
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def _answer(self) -> tuple[int, bytes, str]:
        url = urlsplit(self.path)
        route, state = f"{self.command} {url.path}", self.server.state
        if route not in OPEN and not self.server.knows(self.headers.get("Authorization", "")):
            return _json(HTTPStatus.UNAUTHORIZED, {"error": "wrong or missing token"})
        if route == "GET /metrics":
            if state.measurement is None:
                return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the tenant is loading"})
            return HTTPStatus.OK, *state.measurement.metrics()
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LONGEST_BODY_BYTES:
            raise ValueError(f"a body must have a length of at most {LONGEST_BODY_BYTES} bytes")
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        return _json(*answered(state, route, query, self.rfile.read(int(length))))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Server(ThreadingMixIn, TCPServer):
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
