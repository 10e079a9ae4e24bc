"""Names by which the processes and scratch folders of a run are found, and the signals that stop it."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

RUN_ID_VARIABLE = "SHAREBENCH_RUN_ID"
RUN_OWNER_VARIABLE = "SHAREBENCH_RUN_OWNER"
"""The process that owns the run, as `PID:START`, by which its processes are known to be left over once it has died."""
DEVICE_VARIABLE = "SHAREBENCH_DEVICE"
"""Number of the device that a job and its processes use, where a run measures on several."""
# Ctrl-C, a plain kill, and a closed terminal.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def scratch_folders(run_id: str | None) -> Iterator[Path]:
    """Existing scratch folders of that run's tenants; in a job for one device, only of the tenants on it."""
    return Path(tempfile.gettempdir()).glob(f"{scratch_prefix(run_id)}*")


def scratch_prefix(run_id: str | None) -> str:
    """Prefix of the names of scratch folders, by which a later run finds those of a dead one."""
    number = os.environ.get(DEVICE_VARIABLE)
    return f"sharebench-{run_id}-" + (f"device{number}-" if number else "")
