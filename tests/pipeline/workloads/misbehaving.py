"""A test's workload: tenant 0 is well, so that calibration is; what ails the others is the parameter `how`.

One that `starts once` ails tenant 0: once measured, it never gets ready again. A test says from when on that counts, as
calibrations are repeated where the machine is busy.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenant.workload import Work, Workload

# Long enough for all tenants to be warm, so that it happens while they are measured.
WELL_SECONDS = 0.8


class Misbehaving(Workload):
    work = Work(flop=None, bytes=None, items=1)

    def __init__(self, how: str) -> None:
        self._how = how
        self._well_until = time.monotonic() + WELL_SECONDS

    def step(self) -> None:
        time.sleep(0.002)
        if time.monotonic() < self._well_until:
            return
        if self._how == "hangs":
            time.sleep(3600)
        if self._how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)

    def output_digest(self) -> list[float]:
        return [1.0]


def create(params: Mapping[str, Any], device: str) -> Misbehaving:
    # Next to the scratch folders of all cells.
    starts = Path.cwd().parents[1] / "starts"
    if params["how"] == "starts once" and starts.exists():
        starts.write_text(starts.read_text() + ".")
        if len(starts.read_text()) > 1:
            time.sleep(3600)
    how = params["how"] if os.environ["SHAREBENCH_TENANT"] != "0" else "is well"
    if how == "dies":
        raise RuntimeError("the weights are missing")
    if how == "is never ready":
        time.sleep(3600)
    if how == "runs out of memory":
        raise MemoryError
    return Misbehaving(how)
