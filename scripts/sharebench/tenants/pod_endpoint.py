"""One tenant in a pod, as the driver asks it."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Any

from sharebench.collect.scrape import HttpEndpoint
from sharebench.nodes.base import TenantUnreachable
from sharebench.tenants.pod_spec import PORT


class PodEndpoint(HttpEndpoint):
    """A tenant behind its pod's address, or behind a port that the API server forwards."""

    def __init__(self, host: str, token: str, forward: Callable[[float], Any] | None) -> None:
        super().__init__(host, PORT, token)
        self._forward = forward

    def _connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        connection = super()._connection(timeout_seconds)
        if self._forward is not None:
            connection.sock = self._forward(timeout_seconds)
        return connection

    def clock(self) -> tuple[int, int, float]:
        """The node's monotonic and real time in ns, and 0: the tenants read one kernel's clock (see `_same_clock`).

        How long the answer took says nothing about how far their windows are apart.
        """
        monotonic_ns, realtime_ns, _ = super().clock()
        return monotonic_ns, realtime_ns, 0.0

    def reading(self) -> tuple[str | None, int, int, int]:
        """The name of the kernel's start, its monotonic time, and this process's before and after the question."""
        before_ns = time.monotonic_ns()
        status, answer = self._call("GET", "/clock")
        after_ns = time.monotonic_ns()
        if status != 200:
            raise TenantUnreachable(f"GET /clock: status {status}")
        return answer["boot_id"], int(answer["monotonic_ns"]), before_ns, after_ns

    def begin_telemetry(self) -> str | None:
        """Have the pod's GPU sampled; why it cannot be, or None."""
        status, answer = self._call("POST", "/telemetry")
        if status != 200:
            raise TenantUnreachable(f"POST /telemetry: status {status} {answer.get('error', '')}")
        reason: str | None = answer["reason"]
        return reason

    def end_telemetry(self) -> list[list[float | None]]:
        """The samples since `begin_telemetry`, each with a value for each of tenant.telemetry's FIELDS."""
        status, answer = self._call("GET", "/telemetry")
        if status != 200:
            raise TenantUnreachable(f"GET /telemetry: status {status} {answer.get('error', '')}")
        return list(answer["samples"])
