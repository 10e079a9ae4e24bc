"""The driver's side of a tenant's HTTP contract."""

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any

from sharebench.measure.nodes.contract import TenantUnreachable
from tenant.contract import Outputs, Steadiness, TenantReport, boot_id

# A tenant answers within milliseconds, but N of them may share one busy core.
TIMEOUT_SECONDS = 20.0
# Asked repeatedly while tenants warm up; one that hangs must not delay the others.
READY_TIMEOUT_SECONDS = 2.0


class HttpEndpoint:
    """One tenant behind a port of this host or a pod's address."""

    complaint: str | None = None
    waiting_for: str | None = None
    overdue: str | None = None

    def __init__(self, host: str, port: int, token: str) -> None:
        self.host = host
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def _connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_seconds)

    def _call(
        self, method: str, path: str, body: Mapping[str, object] | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> tuple[int, Any]:
        connection = None
        try:
            connection = self._connection(timeout_seconds)
            connection.request(method, path, json.dumps(body) if body is not None else None, self.headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TenantUnreachable(f"{method} {path.split('?')[0]}: {error}") from error
        finally:
            if connection is not None:
                connection.close()

    def ready(self) -> bool:
        return self._call("GET", "/readyz", timeout_seconds=READY_TIMEOUT_SECONDS)[0] == 200

    def steadiness(self, since_ns: int | None) -> Steadiness | None:
        status, answer = self._call("GET", "/readyz" if since_ns is None else f"/readyz?since={since_ns}")
        if status != 200:
            return None
        verdict: Steadiness = answer["steady"]
        return verdict

    def clock(self) -> tuple[int, int, float]:
        """A tenant under the driver's own kernel reads the driver's clock, so the round trip counts as 0."""
        before_ns = time.monotonic_ns()
        status, answer = self._call("GET", "/clock")
        after_ns = time.monotonic_ns()
        if status != 200:
            raise TenantUnreachable(f"GET /clock: status {status}")
        is_ours = answer["boot_id"] == boot_id() and before_ns <= answer["monotonic_ns"] <= after_ns
        return int(answer["monotonic_ns"]), int(answer["realtime_ns"]), 0.0 if is_ours else (after_ns - before_ns) / 1e9

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        body = {"start_ns": start_ns, "end_ns": end_ns} | ({} if iterations is None else {"iterations": iterations})
        return self._call("POST", "/window", body)[0] == 200

    def task(self, name: str, params: Mapping[str, object], deadline_seconds: float) -> Mapping[str, Any]:
        body = {"name": name, "params": params, "deadline_seconds": deadline_seconds}
        status, answer = self._call("POST", "/task", body, deadline_seconds + TIMEOUT_SECONDS)
        if status != 200:
            raise TenantUnreachable(f"POST /task {name}: status {status} {answer.get('error', '')}")
        result: Mapping[str, Any] = answer
        return result

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        report: TenantReport = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        return report

    def outputs(self, deadline_seconds: float) -> Outputs:
        outputs: Outputs = self._get_and_wait("/digest", deadline_seconds)
        return outputs

    def _get_and_wait(self, path: str, deadline_seconds: float, ahead_seconds: float = 0.0) -> Any:
        query = f"{path}?deadline_seconds={deadline_seconds}"
        status, answer = self._call("GET", query, timeout_seconds=ahead_seconds + deadline_seconds + TIMEOUT_SECONDS)
        if status != 200:
            raise TenantUnreachable(f"GET {path}: status {status} {answer.get('error', '')}")
        return answer
