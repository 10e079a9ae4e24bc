"""The telemetry of a GPU that only its tenants can see."""

import threading
from typing import Self

from sharebench.measure.nodes.contract import TenantUnreachable
from sharebench.measure.nodes.gpu_summary import summarise
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, Row, Telemetry
from tenant.contract.gpu import GpuSample


class PodSampler:
    """Samples the GPU through NVML from within the pod behind `endpoint`, if that has the library, from now on.

    Starting a process in a busy pod takes most of a second on two shared cores. So sampling starts when the tenants are
    warm, before a window is announced (`wait_until_begun`). If it is impossible, telemetry is blank, with the reason.
    """

    def __init__(self, endpoint: HttpEndpoint) -> None:
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
        # The owners of processes on the GPU are not visible from a pod.
        rows, summary = summarise(samples, {}, (), (), window_start_seconds, window_end_seconds, activity_reason)
        return rows, {**summary, "source": "nvml-in-tenant-0"}
