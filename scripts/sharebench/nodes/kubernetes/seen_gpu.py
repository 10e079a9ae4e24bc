"""What tenants saw of a node's GPU: no object of the cluster has its SMs, and under the device plugin none its id."""

from collections.abc import Sequence
from pathlib import Path

from sharebench.core.files import read_json, write_json
from sharebench.core.spec import TenantLimits
from tenant.contract import View


class SeenGpu:
    """The GPU as the tenants of earlier cells saw it; a file in the node's folder is read by all jobs of a run."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "gpu.json"
        self.device: str | None = None
        """Digest of its id; None until a tenant had the whole GPU."""
        self.sm_count: int | None = None
        """Of the whole GPU; None until a tenant without limits had it."""
        if self._file.exists():
            known = read_json(self._file, "device", "sm_count")
            self.device, self.sm_count = known["device"], known["sm_count"]

    def look(self, views: Sequence[View], limits: TenantLimits) -> None:
        """Learn from what the tenants of a cell saw of their device."""
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
