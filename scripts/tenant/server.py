"""The tenant's HTTP server, for the driver and Prometheus. It sleeps until a request comes."""

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
    # These import numpy, whose import counts as start-up and must happen after the server listens.
    from tenant.contract import TenantReport
    from tenant.gpu.telemetry import GpuSampler
    from tenant.measure import Measurement
    from tenant.program import ExitingProgram, SelfMeasuringProgram, UserProgram

MAX_BODY_BYTES = 10_000


@dataclass
class State:
    """State that the loop thread and the HTTP threads share; `status` is loading, warming, ready or failed.

    `measurement` is set once the workload is loaded, `sampler` while the GPU is sampled for the driver, and `program`
    next to a user's container. The start of the last window may lie in the future.
    """

    status: str = "loading"
    measurement: Measurement | ExitingProgram | SelfMeasuringProgram | None = None
    program: UserProgram | None = None
    window_start_ns: int | None = None
    sampler: GpuSampler | None = None

    def require_measurement(self) -> Measurement | ExitingProgram | SelfMeasuringProgram:
        """Return the measurement. Raises RefusedError before there is one."""
        if self.measurement is None:
            raise RefusedError("the tenant is not ready")
        return self.measurement


# Routes without authorization; all others need the token.
PUBLIC_ROUTES = ("GET /begun", "GET /healthz", "GET /metrics", "GET /readyz")


def answer(state: State, route: str, query: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, object]]:
    """Status and JSON of the answer to a route, which is a method and a path.

    Raises RefusedError, and LookupError, TypeError or ValueError for malformed requests.
    """
    document: Mapping[str, object]
    match route:
        case "GET /healthz":
            document = {"status": state.status}
        case "GET /readyz":
            since_ns = int(query["since"]) if "since" in query else None
            verdict = None if state.measurement is None else state.measurement.readiness(since_ns)
            if verdict is None:
                return HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "stage": state.status}
            document = {"ready": True, "steady": verdict}
        case "GET /begun":
            has_begun = state.window_start_ns is not None and time.monotonic_ns() >= state.window_start_ns
            return HTTPStatus.OK if has_begun else HTTPStatus.SERVICE_UNAVAILABLE, {"begun": has_begun}
        case "GET /page":
            document = cast("SelfMeasuringProgram", state.program).page(query["path"])
        case "GET /clock":
            times = {"monotonic_ns": time.monotonic_ns(), "realtime_ns": time.time_ns()}
            document = {"boot_id": boot_id(), "first_line_ns": FIRST_LINE_NS, **times}
        case "POST /window":
            window = json.loads(body)
            start_ns: int = window["start_ns"]
            state.require_measurement().set_window(**window)
            state.window_start_ns = start_ns
            if state.program is not None:
                state.program.watch(start_ns, window["end_ns"])
            document = {"accepted": True}
        case "POST /load":
            if state.status != "ready":
                raise RefusedError("the tenant is not ready")
            from tenant.load import Load, NamedLoad

            following = json.loads(body)
            # Before the loop thread knows of it, which sets it to `ready` again.
            state.status = "warming"
            measurement = cast("Measurement", state.require_measurement())
            measurement.set_load(NamedLoad(**following | {"load": Load(**following["load"])}))
            document = {"accepted": True}
        case "GET /record":
            report = state.require_measurement().wait_record(float(query["deadline_seconds"]))
            document = report if state.program is None else state.program.complete_report(cast("TenantReport", report))
        case "POST /task":
            document = cast("Measurement", state.require_measurement()).wait_task(**json.loads(body))
        case "GET /digest":
            document = state.require_measurement().wait_outputs(float(query["deadline_seconds"]))
        case "POST /telemetry":
            # Imported here, because only tenants in pods need it.
            from tenant.gpu.telemetry import GpuSampler

            if state.sampler is not None:
                raise RefusedError("the GPU is being sampled already")
            sampler = GpuSampler()
            state.sampler = sampler if sampler.reason is None else None
            document = {"reason": sampler.reason}
        case "GET /telemetry":
            if state.sampler is None:
                raise RefusedError("the GPU is not being sampled")
            sampler, state.sampler = state.sampler, None
            document = cast(Mapping[str, object], sampler.end())
        case _:
            return HTTPStatus.NOT_FOUND, {"error": f"there is no {route}"}
    return HTTPStatus.OK, document


def _json(code: int, document: Mapping[str, object]) -> tuple[int, bytes, str]:
    return code, json.dumps(document).encode() + b"\n", "application/json"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; the second must not wait for the acknowledgement of the first.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        try:
            code, content, kind = self._answer()
        except RefusedError as error:
            code, content, kind = _json(HTTPStatus.CONFLICT, {"error": str(error)})
        except (LookupError, TypeError, ValueError) as error:
            # The driver sends no malformed requests; those of other clients must not fill the log with tracebacks.
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
        if route not in PUBLIC_ROUTES and not self.server.is_authorized(self.headers.get("Authorization", "")):
            return _json(HTTPStatus.UNAUTHORIZED, {"error": "wrong or missing token"})
        if route == "GET /metrics":
            if state.measurement is None:
                return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the tenant is loading"})
            return HTTPStatus.OK, *state.measurement.metrics()
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise ValueError(f"a body must have a length of at most {MAX_BODY_BYTES} bytes")
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        return _json(*answer(state, route, query, self.rfile.read(int(length))))

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class Server(ThreadingMixIn, TCPServer):
    # http.server.HTTPServer would look up the host's name, which may take seconds in a pod.
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

    def is_authorized(self, authorization: str) -> bool:
        """Whether the header carries the token, compared in constant time."""
        return hmac.compare_digest(authorization.encode(), self._authorization)

    def start(self) -> None:
        """Serve from a daemon thread, without the periodic wake-ups of `serve_forever`."""
        threading.Thread(target=self._serve, name="http", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.handle_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print all errors but those of clients that closed the connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
