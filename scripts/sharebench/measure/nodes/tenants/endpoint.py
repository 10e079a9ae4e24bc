"""The driver's side of a tenant's HTTP contract."""

import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sharebench.measure.nodes.contract import PlannedLoad, TenantUnreachable
from tenant.contract import Outputs, Steadiness, TenantReport, boot_id
from tenant.contract.gpu import GpuSample

# A tenant answers within milliseconds, but N of them may share one busy core.
TIMEOUT_SECONDS = 20.0
# Asked repeatedly while tenants warm up; one that hangs must not delay the others.
READY_TIMEOUT_SECONDS = 2.0
Connect = Callable[[float], Any]
"""Opens a socket with this time-out in seconds. Raises OSError."""


class ClockReading(NamedTuple):
    """A tenant's clocks, the driver's clock before and after, and the time of the first line of the tenant's code."""

    boot_id: str | None
    node_ns: int
    realtime_ns: int
    before_ns: int
    after_ns: int
    first_line_ns: int


class _Connection(http.client.HTTPConnection):
    """A connection over a socket that a function opens."""

    def __init__(self, port: int, timeout_seconds: float, open_socket: Connect) -> None:
        super().__init__("localhost", port, timeout=timeout_seconds)
        self._open_socket = open_socket

    def connect(self) -> None:
        self.sock = self._open_socket(float(self.timeout or 0))


def connect_to(host: str, port: int, timeout_seconds: float) -> socket.socket:
    """Raises OSError."""
    made = socket.create_connection((host, port), timeout_seconds)
    # Head and body are two writes; the second must not wait for the acknowledgement of the first.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class HttpEndpoint:
    """One tenant behind a port of this host, or behind what `connect` reaches.

    The connection is kept between requests. Opening one costs a tenant a thread, and in a cluster the API server, the
    kubelet and the runtime 0.1 s or more of CPU time, which the tenants would lack.
    """

    complaint: str | None = None
    """The error that keeps it from ever being ready; None where it may only be slow."""
    waiting_for: str | None = None
    """The unmet condition of its readiness; None where that is not known."""
    overdue: str | None = None
    """How it missed its deadline; None where it did not."""
    process_seconds: float | None = None
    """Time from the tenant's creation to the first line of its code, where only the driver can measure it."""
    is_clock_aligned = False
    """Whether all tenants are known to use one kernel's clock, whose offset the driver has measured."""

    def __init__(self, port: int, token: str, connect: Connect | None = None) -> None:
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connect = connect or (lambda seconds: connect_to("127.0.0.1", port, seconds))
        # A forwarded port that lost the API server stays open on our side; a process that does not answer hangs.
        self._is_broken = (ConnectionError, *([TimeoutError] if connect else []))
        self._kept: http.client.HTTPConnection | None = None
        self._is_closed = False
        # The sampler sends requests from its own thread.
        self._lock = threading.Lock()

    def _keep(self, connection: http.client.HTTPConnection | None) -> http.client.HTTPConnection | None:
        """Keep this connection, or none; returns the one that was kept before."""
        with self._lock:
            before, self._kept = self._kept, connection
        return before

    def _take(self) -> http.client.HTTPConnection | None:
        """Take the kept connection, if it is still usable, so that no other caller uses it."""
        kept = self._keep(None)
        # Without a request, the socket is readable only if the connection has ended.
        if kept is not None and (kept.sock is None or select.select([kept.sock], [], [], 0)[0]):
            kept.close()
            return None
        return kept

    @property
    def connection(self) -> Any:
        """The socket of the kept connection, readable once it ends; None if none is kept."""
        return self._kept and self._kept.sock

    def close(self) -> None:
        """Close the kept connection, and do not retry on a new one any more."""
        self._is_closed = True
        if (kept := self._keep(None)) is not None:
            kept.close()

    def _call(
        self, method: str, path: str, body: Mapping[str, object] | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> tuple[int, Any]:
        kept = self._take()
        try:
            if kept is not None:
                try:
                    return self._exchange(kept, method, path, body, timeout_seconds)
                except self._is_broken:
                    # The connection may have broken earlier. Only a GET may be repeated.
                    if method != "GET" or self._is_closed:
                        raise
            connection = _Connection(self.port, timeout_seconds, self._connect)
            return self._exchange(connection, method, path, body, timeout_seconds)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TenantUnreachable(f"{method} {path.split('?')[0]}: {error}") from error

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        timeout_seconds: float,
    ) -> tuple[int, Any]:
        is_complete = False
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(timeout_seconds)
            connection.request(method, path, json.dumps(body) if body is not None else None, self.headers)
            response = connection.getresponse()
            answer = response.status, json.loads(response.read())
            is_complete = True
            return answer
        finally:
            # The tenant closes the connection after it has refused a request.
            is_usable = is_complete and connection.sock is not None
            unused = self._keep(connection) if is_usable else connection
            if unused is not None:
                unused.close()

    def _get_json(self, method: str, path: str, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
        status, answer = self._call(method, path, timeout_seconds=timeout_seconds)
        if status != 200:
            raise TenantUnreachable(f"{method} {path.split('?')[0]}: status {status} {answer.get('error', '')}")
        return answer

    def ready(self) -> bool:
        """Whether the tenant is warm. Uses its status, since a tenant closes the connection with every refusal."""
        status, answer = self._call("GET", "/healthz", timeout_seconds=READY_TIMEOUT_SECONDS)
        return bool(status == 200 and answer.get("status") == "ready")

    def steadiness(self, since_ns: int | None) -> Steadiness | None:
        status, answer = self._call("GET", "/readyz" if since_ns is None else f"/readyz?since={since_ns}")
        if status != 200:
            return None
        verdict: Steadiness = answer["steady"]
        return verdict

    def read_clock(self) -> ClockReading:
        before_ns = time.monotonic_ns()
        answer = self._get_json("GET", "/clock")
        after_ns = time.monotonic_ns()
        times = answer["monotonic_ns"], answer["realtime_ns"]
        return ClockReading(answer["boot_id"], *times, before_ns, after_ns, answer["first_line_ns"])

    def clock(self) -> tuple[int, int, float]:
        """The round trip counts as 0 where the driver reads the same clock, or knows its offset."""
        read = self.read_clock()
        is_ours = read.boot_id == boot_id() and read.before_ns <= read.node_ns <= read.after_ns
        seconds = 0.0 if is_ours or self.is_clock_aligned else (read.after_ns - read.before_ns) / 1e9
        return read.node_ns, read.realtime_ns, seconds

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        body = {"start_ns": start_ns, "end_ns": end_ns} | ({} if iterations is None else {"iterations": iterations})
        return self._call("POST", "/window", body)[0] == 200

    def set_load(self, name: str, load: PlannedLoad, watched_cell: str) -> None:
        """Have the tenant go on as the workload `name`; it warms up again when no request is in flight any more."""
        status, answer = self._call("POST", "/load", {"name": name, "load": load, "watched_cell": watched_cell})
        if status != 200:
            raise TenantUnreachable(f"POST /load: status {status} {answer.get('error', '')}")

    def task(self, name: str, params: Mapping[str, object], deadline_seconds: float) -> Mapping[str, Any]:
        body = {"name": name, "params": params, "deadline_seconds": deadline_seconds}
        status, answer = self._call("POST", "/task", body, deadline_seconds + TIMEOUT_SECONDS)
        if status != 200:
            raise TenantUnreachable(f"POST /task {name}: status {status} {answer.get('error', '')}")
        result: Mapping[str, Any] = answer
        return result

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The tenant's record, with the part of its start-up time that only the driver can measure."""
        report: TenantReport = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        if self.process_seconds is not None and report["startup"] is not None:
            report["startup"]["process_seconds"] = self.process_seconds
        return report

    def outputs(self, deadline_seconds: float) -> Outputs:
        outputs: Outputs = self._get_and_wait("/digest", deadline_seconds)
        return outputs

    def _get_and_wait(self, path: str, deadline_seconds: float, ahead_seconds: float = 0.0) -> Any:
        timeout_seconds = ahead_seconds + deadline_seconds + TIMEOUT_SECONDS
        return self._get_json("GET", f"{path}?deadline_seconds={deadline_seconds}", timeout_seconds)

    def begin_telemetry(self) -> str | None:
        """Start sampling the tenant's GPU from within its pod; returns why that is impossible, or None."""
        reason: str | None = self._get_json("POST", "/telemetry")["reason"]
        return reason

    def end_telemetry(self) -> tuple[list[GpuSample], str | None]:
        """The samples since `begin_telemetry`, and why they lack activity, or None."""
        answer = self._get_json("GET", "/telemetry")
        return [GpuSample(*values) for values in answer["samples"]], answer["activity_reason"]
