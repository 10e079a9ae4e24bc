"""What the process used of its machine, as its kernel counts it."""

import contextlib
import threading
import time
from pathlib import Path
from typing import NamedTuple


class CpuTime(NamedTuple):
    """CPU time, and how long one thread was runnable without a CPU (None where unknown)."""

    cpu_seconds: float
    run_queue_seconds: float | None


class CpuMeter:
    """Reads the CPU time of the process, or of the thread that makes the meter, and the waiting of that thread."""

    def __init__(self, of_thread: bool = False) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident()) if of_thread else time.CLOCK_PROCESS_CPUTIME_ID
        self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def read(self) -> CpuTime:
        try:
            run_queue_seconds = int(self._schedstat.read_text().split()[1]) / 1e9
        except OSError:
            run_queue_seconds = None
        return CpuTime(time.clock_gettime(self._clock), run_queue_seconds)


def peak_bytes(status: Path) -> int | None:
    """Largest resident set of a process so far, by its `status` in /proc; None where there is no such file."""
    with contextlib.suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def peak_resident_bytes() -> int | None:
    """Largest resident set of this process so far; getrusage would count what its parent had when it started it."""
    return peak_bytes(Path("/proc/self/status"))
