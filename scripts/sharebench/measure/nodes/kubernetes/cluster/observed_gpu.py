"""What pods have seen of their GPU, which no API object says."""

from collections.abc import Sequence
from pathlib import Path

from sharebench.core.files import read_json, write_json
from sharebench.model.strategy import TenantLimits
from tenant.contract import DeviceView


class ObservedGpu:
    """The GPU as tenants of earlier cells saw it, in a file of the node's folder for all jobs of a run.

    No API object has the number of its SMs, and under the device plugin none has its UUID.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "gpu.json"
        known = read_json(self._file, "device", "sm_count") if self._file.exists() else {}
        self.device: str | None = known.get("device")
        """Digest of its UUID; None until a tenant has had the whole GPU."""
        self.sm_count: int | None = known.get("sm_count")
        """SMs of the whole GPU; None until a tenant has had it without limits."""

    def observe(self, views: Sequence[DeviceView], limits: TenantLimits) -> None:
        devices = {view.get("device") for view in views if view.get("is_mig") is False}
        if len(devices) != 1 or None in devices:
            return
        (device,) = devices
        if device != self.device:
            self.sm_count = None
        self.device = device
        if limits.thread_percent is None and self.sm_count is None:
            self.sm_count = max((view["sm_count"] or 0 for view in views), default=0) or None
        write_json(self._file, {"device": self.device, "sm_count": self.sm_count})
