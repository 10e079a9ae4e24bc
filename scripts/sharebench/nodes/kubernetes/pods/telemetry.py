"""Telemetry of a GPU that only its tenants can see: the first one's pod samples NVML, where it has the library."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sharebench.nodes.contract import TenantUnreachable
from sharebench.records.telemetry import NOTHING_KNOWN, Row, Telemetry
from tenant.contract import GpuSample

if TYPE_CHECKING:
    from sharebench.nodes.kubernetes.pods.endpoint import PodEndpoint


class PodSampler:
    """Has the GPU sampled from within the pod behind `endpoint`, from now on.

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
            self._reason = f"tenant 0 did not say whether it can sample: {silence}"

    def begun(self) -> PodSampler:
        """Itself, once it samples or is known not to."""
        self._beginning.join()
        return self

    def start(self) -> None:
        """Nothing to begin: it samples already."""

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        """End; the rows of the window, by seconds since its start, and the record's summary."""
        self._beginning.join()
        samples: list[GpuSample] = []
        if self._reason is None:
            try:
                samples = self._endpoint.end_telemetry()
            except TenantUnreachable as silence:
                self._reason = f"tenant 0 did not deliver its samples: {silence}"
        if self._reason is not None:
            return [], {**NOTHING_KNOWN, "reason": self._reason}
        # Imported here: it brings NVML's package along, which takes its time to start.
        from sharebench.nodes.gpu_summary import summarise

        # Whose processes are on the GPU cannot be seen from a pod.
        rows, summary = summarise(samples, {}, (), (), window_start_seconds, window_end_seconds)
        return rows, {**summary, "source": "nvml-in-tenant-0"}
