"""A test's workload: all tenants but tenant 0 fail as the parameter `how` says, so calibration succeeds.

With `starts once` tenant 0 fails too: after one start it does not start again. Starts count once a test has made the
file `starts`, since a busy machine may repeat calibrations.
"""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenant.workload import Work, Workload


class Misbehaving(Workload):
    work = Work(flop=None, bytes=None, items=1)

    def __init__(self, how: str) -> None:
        self._how = how
        self._fails_at_ns: int | None = None

    def on_window(self, start_ns: int, end_ns: int) -> None:
        self._fails_at_ns = (start_ns + end_ns) // 2

    def step(self) -> None:
        time.sleep(0.002)
        if self._fails_at_ns is None or time.monotonic_ns() < self._fails_at_ns:
            return
        if self._how == "hangs":
            time.sleep(3600)
        if self._how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)

    def output_digest(self) -> list[float]:
        return [1.0]


def create(params: Mapping[str, Any], device: str) -> Misbehaving:
    # The file lies next to the scratch folders of all cells.
    starts = Path.cwd().parents[1] / "starts"
    if params["how"] == "starts once" and starts.exists():
        starts.write_text(starts.read_text() + ".")
        if len(starts.read_text()) > 1:
            raise RuntimeError("the device takes no new tenant")
    how = params["how"] if os.environ["SHAREBENCH_TENANT"] != "0" else "is well"
    if how == "dies":
        raise RuntimeError("the weights are missing")
    if how == "is never ready":
        time.sleep(3600)
    if how == "runs out of memory":
        raise MemoryError
    return Misbehaving(how)
