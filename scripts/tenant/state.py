"""What the loop thread and the HTTP thread both know, from before anything heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenant.failures import RefusedError

if TYPE_CHECKING:
    # It brings numpy along, whose import is a part of start-up that is timed while the server already
    # listens.
    from tenant.gpu.telemetry import Sampling
    from tenant.measure import Measurement


@dataclass
class State:
    """`status` is loading, warming, ready or failed; `measurement` is there once the workload is loaded.

    `sampling` is there while the GPU is sampled for the driver.
    """

    status: str = "loading"
    measurement: Measurement | None = None
    sampling: Sampling | None = None

    def loaded(self) -> Measurement:
        """The measurement. Raises RefusedError while there is none."""
        if self.measurement is None:
            raise RefusedError("the tenant is not ready")
        return self.measurement
