"""One tenant in a pod, as the driver asks it, and the telemetry of a GPU that only its tenants can see."""

import contextlib
import http.client
import json
import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from sharebench.core.spec import WorkloadSpec
from sharebench.core.units import NS
from sharebench.nodes.contract import NodeError, TenantsFailed, TenantUnreachable
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.pods.forward import PodUnreachable
from sharebench.nodes.kubernetes.pods.manifest import TENANT_PORT
from sharebench.nodes.kubernetes.pods.status import Ending
from sharebench.nodes.programs import exited_job, exited_report
from sharebench.nodes.scraped import ScrapedProgram
from sharebench.nodes.tenant_http import READY_TIMEOUT_SECONDS, TIMEOUT_SECONDS, HttpEndpoint
from sharebench.records.telemetry import UNKNOWN_TELEMETRY, Row, Telemetry
from tenant.contract import ExitReport, Steadiness, SteadinessRule, TenantReport
from tenant.contract.gpu import GpuSample
from tenant.contract.requests import Page


class ClockReading(NamedTuple):
    """A tenant's clock, the driver's before and after, and when the tenant's own code began to run."""

    boot_id: str | None
    node_ns: int
    before_ns: int
    after_ns: int
    first_line_ns: int


class _ForwardedConnection(http.client.HTTPConnection):
    """A connection through what `forward` opens, given the seconds that it may take."""

    def __init__(self, host: str, port: int, timeout_seconds: float, forward: Callable[[float], Any]) -> None:
        super().__init__(host, port, timeout=timeout_seconds)
        self._forward = forward

    def connect(self) -> None:
        self.sock = self._forward(float(self.timeout or 0))


class PodEndpoint(HttpEndpoint):
    """A tenant behind its pod's address, or behind a port that the API server forwards.

    Its connection is kept from one question to the next: to open one takes the API server, the kubelet and the
    runtime a tenth of a second and more, which they take from the tenants.
    """

    def __init__(self, host: str, token: str, forward: Callable[[float], Any] | None, port: int = TENANT_PORT) -> None:
        super().__init__(host, port, token)
        self._forward = forward
        self._kept: http.client.HTTPConnection | None = None
        self._is_closed = False
        self.complaint: str | None = None
        """Why it will never be ready, as far as is known."""
        self.process_seconds: float | None = None
        """From the pod's creation to the first line of its code, which only the driver can know."""
        # The sampler asks from a thread of its own.
        self._lock = threading.Lock()

    def _connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        if self._forward is None:
            return super()._connection(timeout_seconds)
        return _ForwardedConnection(self.host, self.port, timeout_seconds, self._forward)

    def _keep(self, connection: http.client.HTTPConnection | None) -> http.client.HTTPConnection | None:
        """Keep this connection, or none; the one that was kept before."""
        with self._lock:
            before, self._kept = self._kept, connection
        return before

    def _take(self) -> http.client.HTTPConnection | None:
        """The kept connection, if it is still good; no other caller has it meanwhile."""
        kept = self._keep(None)
        # Nothing comes, not even its end, before a tenant is asked.
        if kept is not None and (kept.sock is None or select.select([kept.sock], [], [], 0)[0]):
            kept.close()
            return None
        return kept

    @property
    def connection(self) -> Any:
        """The socket of the kept connection, which can be read when it ends; None where none is kept."""
        return self._kept and self._kept.sock

    def close(self) -> None:
        """Keep no connection any more, and open none in place of one that breaks."""
        self._is_closed = True
        if (kept := self._keep(None)) is not None:
            kept.close()

    def _call(
        self, method: str, path: str, body: Mapping[str, int] | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> tuple[int, Json]:
        kept = self._take()
        try:
            if kept is not None:
                try:
                    return self._exchange(kept, method, path, body, timeout_seconds)
                except (ConnectionError, TimeoutError):
                    # It broke just now, or earlier without a sign: a forwarded port whose way to the API server is cut
                    # stays open at our end. What only asks may ask again.
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
        body: Mapping[str, int] | None,
        timeout_seconds: float,
    ) -> tuple[int, Json]:
        is_whole = False
        try:
            if connection.sock is None:
                try:
                    connection.connect()
                except TimeoutError as error:
                    # Where no program listens, or none that still runs, its kernel answers all the same.
                    line = f"nothing answers at the pod's address {self.host}, as behind a NetworkPolicy"
                    raise PodUnreachable(line) from error
            connection.sock.settimeout(timeout_seconds)
            connection.request(method, path, json.dumps(body) if body is not None else None, self.headers)
            response = connection.getresponse()
            answer = response.status, json.loads(response.read())
            is_whole = True
            return answer
        finally:
            # The tenant ends a connection on which it refused something.
            is_good = is_whole and connection.sock is not None
            surplus = self._keep(connection) if is_good else connection
            if surplus is not None:
                surplus.close()

    def _get_json(self, method: str, path: str) -> Json:
        status, answer = self._call(method, path)
        if status != 200:
            raise TenantUnreachable(f"{method} {path}: status {status} {answer.get('error', '')}")
        return answer

    def ready(self) -> bool:
        """Whether the tenant is warm for the first time.

        Asked by its status, which is an answer at any time: a tenant closes the connection with every refusal.
        """
        status, answer = self._call("GET", "/healthz", timeout_seconds=READY_TIMEOUT_SECONDS)
        return status == 200 and answer.get("status") == "ready"

    def clock(self) -> tuple[int, int, float]:
        """The node's monotonic and real time in ns, and 0: the tenants read one kernel's clock (see `_align_clocks`).

        How long the answer took says nothing about how far their windows are apart.
        """
        monotonic_ns, realtime_ns, _ = super().clock()
        return monotonic_ns, realtime_ns, 0.0

    def read_clock(self) -> ClockReading:
        before_ns = time.monotonic_ns()
        answer = self._get_json("GET", "/clock")
        after_ns = time.monotonic_ns()
        return ClockReading(answer["boot_id"], answer["monotonic_ns"], before_ns, after_ns, answer["first_line_ns"])

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """As of any tenant, with what only the driver knows of its start."""
        report = super().record(deadline_seconds, ahead_seconds)
        if self.process_seconds is not None and report["startup"] is not None:
            report["startup"]["process_seconds"] = self.process_seconds
        return report

    def begin_telemetry(self) -> str | None:
        """Have the pod's GPU sampled; why it cannot be, or None."""
        reason: str | None = self._get_json("POST", "/telemetry")["reason"]
        return reason

    def end_telemetry(self) -> tuple[list[GpuSample], str | None]:
        """The samples since `begin_telemetry`, and why they have no activity, where they have none."""
        seen = self._get_json("GET", "/telemetry")
        return [GpuSample(*values) for values in seen["samples"]], seen["activity_reason"]


class ClientEndpoint(PodEndpoint):
    """The client next to a user's server."""

    waiting_for: str | None = None
    """What it lacks, where that is not in the client's log."""
    _window = (0, 0)

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        self._window = (start_ns, end_ns)
        return super().set_window(start_ns, end_ns, iterations)

    def output_digest(self, deadline_seconds: float) -> None:
        """None: what a server answers may differ each time."""


class ScrapedPod(ScrapedProgram, ClientEndpoint):
    """A program that measures itself: the client next to it asks it for pages, which are read here.

    `log` is what the program has printed first; `ending` waits until the kubelet reports its end. Both raise NodeError.
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
        """As on a host; CPU time and memory by the client.

        Raises TenantsFailed when the program does not answer its client, NodeError as `report` does.
        """
        seen = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        try:
            made = self.report(seen["pages"], self._window, seen["environment"], self.process_seconds or 0.0)
        except TenantUnreachable as silence:
            # Its end is reported late; without one it hangs.
            with contextlib.suppress(NodeError):
                self._ending()
            raise TenantsFailed(f"a tenant does not answer: {silence}") from silence
        # Where its processes are not shared, it has not seen what it was given.
        return {
            **made,
            "cpu": seen["cpu"],
            "memory_bytes": seen["memory_bytes"],
            "outside": seen["outside"],
            "view": seen.get("view"),
        }


class ExitEndpoint(ClientEndpoint):
    """The container next to a program that runs to its end.

    `ending` waits for the exit code, which only the kubelet knows: status, reason and code of one that failed, or None.
    """

    def __init__(self, *connection: Any, index: int, workload: str, ending: Callable[[], Ending | None]) -> None:
        super().__init__(*connection)
        self._index, self._workload, self._ending = index, workload, ending

    def steadiness(self, since_ns: int | None) -> Steadiness:
        """There is no warm-up: starting is part of the work."""
        return {"is_steady": True, "batches": 0, "change_percent": None}

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """How long it took from its own first moment on, once it has exited or its deadline is over.

        How long the kubelet took to start it is `start_delay_seconds`. Raises TenantsFailed when it did not end well,
        unless it had no memory: how many others have is a result.
        """
        seen: ExitReport = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        started_ns, ended_ns, seconds = seen["started_ns"], seen["ended_ns"], None
        if ended_ns is not None and (failed := self._ending()) is None:
            seconds = (ended_ns - (started_ns or ended_ns)) / NS
        elif ended_ns is not None and failed is not None and failed[0] != "oom":
            raise TenantsFailed("a program did not end well")
        return {
            **exited_report(self._index, self._workload, seconds),
            "job": exited_job(seconds, ((started_ns or self._window[0]) - self._window[0]) / NS),
            "cpu": seen["cpu"],
            "memory_bytes": seen["memory_bytes"],
            "outside": seen["outside"],
            "view": seen["view"],
            "environment": seen["environment"],
        }


class PodSampler:
    """Has the GPU sampled through NVML from within the pod behind `endpoint`, where it has the library, from now on.

    To start a process in a pod whose tenant is at work takes most of a second where all share two cores. So it is
    asked for when the tenants are warm, and has begun before a window is announced (`begun`): nothing of it falls into
    one. What cannot be sampled costs no cell: its telemetry is blank, with the reason.
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
        """Itself, once it samples or is known not to."""
        self._beginning.join()
        return self

    def start(self) -> None:
        """Nothing to begin: it samples already."""

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        """End; the rows of the window, by seconds since its start, and the record's summary."""
        self._beginning.join()
        samples, activity_reason = list[GpuSample](), None
        if self._reason is None:
            try:
                samples, activity_reason = self._endpoint.end_telemetry()
            except TenantUnreachable as silence:
                self._reason = f"tenant 0 did not deliver its samples: {silence}"
        if self._reason is not None:
            return [], {**UNKNOWN_TELEMETRY, "reason": self._reason}
        # Imported here: it brings NVML's package along, which takes its time to start.
        from sharebench.nodes.gpu_summary import summarise

        # Whose processes are on the GPU cannot be seen from a pod.
        rows, summary = summarise(samples, {}, (), (), window_start_seconds, window_end_seconds, activity_reason)
        return rows, {**summary, "source": "nvml-in-tenant-0"}
