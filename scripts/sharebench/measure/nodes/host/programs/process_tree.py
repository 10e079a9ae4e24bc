"""A program and its descendants as its host sees them: CPUs, usage at the ends of a window, and orphans."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import psutil

from sharebench.core.units import NS
from sharebench.measure.nodes.host.host_cpu import cpu_seconds
from tenant.contract import CpuUse, ProcessView

T = TypeVar("T")
# linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
# A process may start another while it is being ended.
ROUNDS = 5
GRACE_SECONDS = 2.0


class ProcessTree:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def _processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def pids(self) -> list[int]:
        """The process first, then its living descendants."""
        return [self.pid, *(child.pid for child in self._processes())]

    def cpu_seconds(self) -> float:
        with contextlib.suppress(psutil.Error):
            return cpu_seconds([psutil.Process(self.pid), *self._processes()])
        return 0.0

    def cpu_use(self, cpu_seconds: float) -> CpuUse:
        return {"cpu_seconds": cpu_seconds, "run_queue_seconds": None, "affinity": self.affinity()}

    def affinity(self) -> list[int] | None:
        """The CPUs that the process may run on; None where not known, or after its end."""
        with contextlib.suppress(psutil.Error, AttributeError):
            return sorted(psutil.Process(self.pid).cpu_affinity())
        return None

    def peak_resident_bytes(self) -> int | None:
        """Sum of the peak resident sets of the living processes; None where not known."""
        peaks = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                peaks += [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
        return sum(peaks) if peaks else None

    def view(self) -> ProcessView:
        """Its processes and its visible GPU (None where all are visible), for the evidence."""
        variables: dict[str, str] = {}
        named: dict[int, str] = {}
        with contextlib.suppress(psutil.Error, OSError):
            variables = psutil.Process(self.pid).environ()
        for pid in self.pids():
            named[pid] = "ended"
            with contextlib.suppress(psutil.Error):
                named[pid] = psutil.Process(pid).name()
        visible = variables.get("CUDA_VISIBLE_DEVICES")
        return {"pids": list(named), "names": list(named.values()), "visible_devices": visible}


class EdgeReader(Generic[T]):
    """Reads something twice, at the start and at the end of a window, in a separate thread."""

    def __init__(self, read: Callable[[], T], start_ns: int, end_ns: int) -> None:
        self._read = read
        self._readings: list[T] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(start_ns, end_ns), daemon=True)
        self._thread.start()

    def _run(self, *edges_ns: int) -> None:
        try:
            for edge_ns in edges_ns:
                time.sleep(max(0, edge_ns - time.monotonic_ns()) / NS)
                self._readings.append(self._read())
        except Exception as failure:
            self._failure = failure

    def readings(self, timeout_seconds: float) -> tuple[T, T] | None:
        """Both readings; None when they are not available in time. Raises the exception of a failed reading."""
        self._thread.join(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return (self._readings[0], self._readings[1]) if len(self._readings) == 2 else None


def set_subreaper(is_on: bool) -> None:
    """Let orphaned descendants become children of this process instead of init, or stop that."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


class Orphans:
    """The orphans among this process's descendants from now on, whatever their session or environment."""

    def __init__(self) -> None:
        self._earlier = {child.pid for child in psutil.Process().children()}
        set_subreaper(True)

    def end(self) -> None:
        """End all processes that have become children of this one since, and what they started."""
        for _ in range(ROUNDS):
            left = self._remaining()
            if not left:
                break
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, GRACE_SECONDS)
        set_subreaper(False)

    def _remaining(self) -> list[psutil.Process]:
        remaining = [child for child in psutil.Process().children() if child.pid not in self._earlier]
        for child in remaining.copy():
            # A process may end meanwhile, which must not hide the others.
            with contextlib.suppress(psutil.Error):
                remaining += child.children(recursive=True)
        return remaining
