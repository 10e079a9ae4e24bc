"""CPU time and memory of this process, from the kernel."""

import contextlib
import threading
import time
from pathlib import Path
from typing import NamedTuple


class CpuTime(NamedTuple):
    """CPU time, and the time that one thread was runnable but had no CPU (None if unknown)."""

    cpu_seconds: float
    run_queue_seconds: float | None


class CpuMeter:
    """Reads the CPU time of the process or of the creating thread, and the run queue time of that thread."""

    def __init__(self, of_thread: bool = False) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident()) if of_thread else time.CLOCK_PROCESS_CPUTIME_ID
        self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def read(self) -> CpuTime:
        try:
            run_queue_seconds = int(self._schedstat.read_text().split()[1]) / 1e9
        except OSError:
            run_queue_seconds = None
        return CpuTime(time.clock_gettime(self._clock), run_queue_seconds)


def read_peak_bytes(status: Path) -> int | None:
    """Peak resident memory of a process, from its `status` file in /proc; None without the file."""
    with contextlib.suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def peak_resident_bytes() -> int | None:
    """Peak resident memory of this process. (getrusage would include its parent's memory at the fork.)"""
    return read_peak_bytes(Path("/proc/self/status"))
