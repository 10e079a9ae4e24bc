"""The driver's connection to a tenant in a pod, and the telemetry of a GPU that only its tenants can see."""

import contextlib
import http.client
import json
import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import NodeError, TenantsFailed, TenantUnreachable
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.pods.forward import PodUnreachable
from sharebench.measure.nodes.kubernetes.pods.manifest import TENANT_PORT
from sharebench.measure.nodes.programs import exited_job, exited_report
from sharebench.measure.nodes.scraped import ScrapedProgram
from sharebench.measure.nodes.tenant_http import READY_TIMEOUT_SECONDS, TIMEOUT_SECONDS, HttpEndpoint
from sharebench.measure.nodes.tenants.tenant_set import Ending
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, Row, Telemetry
from sharebench.model.spec import WorkloadSpec
from tenant.contract import NO_OUTPUTS, ExitReport, Outputs, Steadiness, SteadinessRule, TenantReport
from tenant.contract.gpu import GpuSample
from tenant.contract.requests import Page


class ClockReading(NamedTuple):
    """A tenant's clock, the driver's clock before and after, and the time of the first line of the tenant's code."""

    boot_id: str | None
    node_ns: int
    before_ns: int
    after_ns: int
    first_line_ns: int


class _ForwardedConnection(http.client.HTTPConnection):
    """A connection over a socket that `forward` opens, which is given the time-out in seconds."""

    def __init__(self, host: str, port: int, timeout_seconds: float, forward: Callable[[float], Any]) -> None:
        super().__init__(host, port, timeout=timeout_seconds)
        self._forward = forward

    def connect(self) -> None:
        self.sock = self._forward(float(self.timeout or 0))


class PodEndpoint(HttpEndpoint):
    """A tenant at its pod's address, or behind a port that the API server forwards.

    The connection is kept between requests. Opening one costs the API server, the kubelet and the runtime 0.1 s or
    more of CPU time, which the tenants would lack.
    """

    def __init__(self, host: str, token: str, forward: Callable[[float], Any] | None, port: int = TENANT_PORT) -> None:
        super().__init__(host, port, token)
        self._forward = forward
        self._kept: http.client.HTTPConnection | None = None
        self._is_closed = False
        self.complaint: str | None = None
        """Why the tenant will never be ready; None if unknown."""
        self.process_seconds: float | None = None
        """Time from the pod's creation to the first line of its code, which only the driver can measure."""
        # The sampler sends requests from its own thread.
        self._lock = threading.Lock()

    def _connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        if self._forward is None:
            return super()._connection(timeout_seconds)
        return _ForwardedConnection(self.host, self.port, timeout_seconds, self._forward)

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
    ) -> tuple[int, Json]:
        kept = self._take()
        try:
            if kept is not None:
                try:
                    return self._exchange(kept, method, path, body, timeout_seconds)
                except (ConnectionError, TimeoutError):
                    # The connection may have broken earlier: a forwarded port that lost the API server stays open on
                    # our side. Only a GET may be repeated.
                    if method != "GET" or self._is_closed:
                        raise
            return self._exchange(self._connection(timeout_seconds), method, path, body, timeout_seconds)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TenantUnreachable(f"{method} {path.split('?')[0]}: {error}") from error

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        timeout_seconds: float,
    ) -> tuple[int, Json]:
        is_complete = False
        try:
            if connection.sock is None:
                try:
                    connection.connect()
                except TimeoutError as error:
                    # A kernel would answer even without a program that listens.
                    line = f"nothing answers at the pod's address {self.host}, as behind a NetworkPolicy"
                    raise PodUnreachable(line) from error
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

    def _get_json(self, method: str, path: str) -> Json:
        status, answer = self._call(method, path)
        if status != 200:
            raise TenantUnreachable(f"{method} {path}: status {status} {answer.get('error', '')}")
        return answer

    def ready(self) -> bool:
        """Whether the tenant is warm. Uses its status, since a tenant closes the connection with every refusal."""
        status, answer = self._call("GET", "/healthz", timeout_seconds=READY_TIMEOUT_SECONDS)
        return status == 200 and answer.get("status") == "ready"

    def clock(self) -> tuple[int, int, float]:
        """The node's monotonic and real time in ns, and an uncertainty of 0, since all tenants use one kernel's clock.

        `PodTenants._align_clocks` checks that. The duration of the request does not move the tenants' windows apart.
        """
        monotonic_ns, realtime_ns, _ = super().clock()
        return monotonic_ns, realtime_ns, 0.0

    def read_clock(self) -> ClockReading:
        before_ns = time.monotonic_ns()
        answer = self._get_json("GET", "/clock")
        after_ns = time.monotonic_ns()
        return ClockReading(answer["boot_id"], answer["monotonic_ns"], before_ns, after_ns, answer["first_line_ns"])

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The tenant's record, with the part of its start-up time that only the driver can measure."""
        report = super().record(deadline_seconds, ahead_seconds)
        if self.process_seconds is not None and report["startup"] is not None:
            report["startup"]["process_seconds"] = self.process_seconds
        return report

    def begin_telemetry(self) -> str | None:
        """Start sampling the pod's GPU; returns why that is impossible, or None."""
        reason: str | None = self._get_json("POST", "/telemetry")["reason"]
        return reason

    def end_telemetry(self) -> tuple[list[GpuSample], str | None]:
        """The samples since `begin_telemetry`, and why they lack activity, or None."""
        answer = self._get_json("GET", "/telemetry")
        return [GpuSample(*values) for values in answer["samples"]], answer["activity_reason"]


class ClientEndpoint(PodEndpoint):
    """The client next to a user's server."""

    waiting_for: str | None = None
    """What is missing until it is ready; None if the client's log says it."""
    _window = (0, 0)

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        self._window = (start_ns, end_ns)
        return super().set_window(start_ns, end_ns, iterations)

    def outputs(self, deadline_seconds: float) -> Outputs:
        """Answers only: there is no digest, since a server's last answer is another each time."""
        return super().outputs(deadline_seconds) | NO_OUTPUTS


class ScrapedPod(ScrapedProgram, ClientEndpoint):
    """A program that measures itself: the client next to it fetches its metrics pages, which are parsed here.

    `log` returns the beginning of the program's log; `ending` waits until the kubelet reports its end. Both raise
    NodeError.
    """

    def __init__(
        self,
        *connection: Any,
        index: int,
        workload: WorkloadSpec,
        rule: SteadinessRule,
        log: Callable[[], str],
        ending: Callable[[], Ending | None],
    ) -> None:
        ClientEndpoint.__init__(self, *connection)
        ScrapedProgram.__init__(self, index, workload, rule)
        self._log, self._ending = log, ending

    def page(self, path: str) -> Page:
        page: Page = self._get_json("GET", f"/page?{urlencode({'path': path})}")  # type: ignore[assignment]
        self.offset_ns = self.offset_ns or page["ended_ns"] - time.monotonic_ns()
        return page

    def has_printed(self, text: str) -> bool:
        with contextlib.suppress(NodeError):
            return text in self._log()
        return False

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The record as on a host, with CPU time and memory measured by the client.

        Raises TenantsFailed if the program does not answer its client, and NodeError as `report` does.
        """
        answer = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        try:
            report = self.report(answer["pages"], self._window, answer["environment"], self.process_seconds or 0.0)
        except TenantUnreachable as silence:
            # Its end, if any, is reported late; without one, it hangs.
            with contextlib.suppress(NodeError):
                self._ending()
            raise TenantsFailed(f"a tenant does not answer: {silence}") from silence
        # Without a shared process namespace, the client does not see the program's devices.
        return {
            **report,
            "cpu": answer["cpu"],
            "memory_bytes": answer["memory_bytes"],
            "outside": answer["outside"],
            "view": answer.get("view"),
        }


class ExitEndpoint(ClientEndpoint):
    """The client next to a program that runs to its end.

    `ending` waits for the exit code, which only the kubelet knows. It returns how the program failed, or None.
    """

    def __init__(self, *connection: Any, index: int, workload: str, ending: Callable[[], Ending | None]) -> None:
        super().__init__(*connection)
        self._index, self._workload, self._ending = index, workload, ending

    def steadiness(self, since_ns: int | None) -> Steadiness:
        """Steady at once, since starting is part of the work and there is no warm-up."""
        return {"is_steady": True, "batches": 0, "change_percent": None}

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The record with the program's run time, once it has exited or its deadline is over.

        The time that the kubelet took to start it is `start_delay_seconds`. Raises TenantsFailed if the program failed,
        except for lack of memory, which is a result.
        """
        answer: ExitReport = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        started_ns, ended_ns, seconds = answer["started_ns"], answer["ended_ns"], None
        if ended_ns is not None and (failed := self._ending()) is None:
            seconds = (ended_ns - (started_ns or ended_ns)) / NS
        elif ended_ns is not None and failed is not None and failed[0] != "oom":
            raise TenantsFailed("a program did not end well")
        return {
            **exited_report(self._index, self._workload, seconds),
            "job": exited_job(seconds, ((started_ns or self._window[0]) - self._window[0]) / NS),
            "cpu": answer["cpu"],
            "memory_bytes": answer["memory_bytes"],
            "outside": answer["outside"],
            "view": answer["view"],
            "environment": answer["environment"],
        }


class PodSampler:
    """Samples the GPU through NVML from within the pod behind `endpoint`, if that has the library, from now on.

    Starting a process in a busy pod takes most of a second on two shared cores. So sampling starts when the tenants are
    warm, before a window is announced (`wait_until_begun`). If it is impossible, telemetry is blank, with the reason.
    """

    def __init__(self, endpoint: PodEndpoint) -> None:
        self._endpoint = endpoint
        self._reason: str | None = None
        self._beginning = threading.Thread(target=self._begin, name="telemetry", daemon=True)
        self._beginning.start()

    def _begin(self) -> None:
        try:
            self._reason = self._endpoint.begin_telemetry()
        except TenantUnreachable as silence:
            self._reason = f"tenant 0 did not answer whether it can sample: {silence}"

    def wait_until_begun(self) -> Self:
        """Wait until it samples, or is known not to; returns itself."""
        self._beginning.join()
        return self

    def start(self) -> None:
        """Do nothing, since it samples already."""

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        """End sampling; returns the window's rows, by seconds since its start, and the record's summary."""
        self._beginning.join()
        samples, activity_reason = list[GpuSample](), None
        if self._reason is None:
            try:
                samples, activity_reason = self._endpoint.end_telemetry()
            except TenantUnreachable as silence:
                self._reason = f"tenant 0 did not deliver its samples: {silence}"
        if self._reason is not None:
            return [], {**UNKNOWN_TELEMETRY, "reason": self._reason}
        # Imported here, since it imports NVML's package, which is slow.
        from sharebench.measure.nodes.gpu_summary import summarise

        # The owners of processes on the GPU are not visible from a pod.
        rows, summary = summarise(samples, {}, (), (), window_start_seconds, window_end_seconds, activity_reason)
        return rows, {**summary, "source": "nvml-in-tenant-0"}
