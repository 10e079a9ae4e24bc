"""A program as its host sees it: where it may run, what it uses, and both at the two ends of a window."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import psutil

from tenant.contract import ProcessView

T = TypeVar("T")
VISIBLE_DEVICES = b"CUDA_VISIBLE_DEVICES="


class ProcessTree:
    """A process and all that it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def pids(self) -> list[int]:
        """The process first, then those that come from it and live."""
        found = [self.pid]
        with contextlib.suppress(psutil.Error):
            found += [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
        return found

    def cpu_seconds(self) -> float:
        """CPU time that those that live have used so far."""
        total = 0.0
        for pid in self.pids():
            with contextlib.suppress(psutil.Error):
                spent = psutil.Process(pid).cpu_times()
                total += spent.user + spent.system
        return total

    def affinity(self) -> list[int] | None:
        """CPUs that the process may run on; None where the system does not tell."""
        with contextlib.suppress(OSError, AttributeError):
            return sorted(os.sched_getaffinity(self.pid))
        return None

    def peak_resident_bytes(self) -> int | None:
        """Sum of the largest resident sets of those that live; None where the system does not tell."""
        peaks = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                peaks += [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
        return sum(peaks) if peaks else None

    def seen(self) -> ProcessView:
        """What evidence is made from: `pids`, and the GPU that the process was shown (None where it was shown all)."""
        visible = None
        with contextlib.suppress(OSError):
            for variable in Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(VISIBLE_DEVICES):
                    visible = variable.removeprefix(VISIBLE_DEVICES).decode(errors="replace")
        return {"pids": self.pids(), "visible_devices": visible}


class AtEdges(Generic[T]):
    """Looks at something twice, at the start and at the end of a window, in a thread of its own."""

    def __init__(self, look: Callable[[], T], start_ns: int, end_ns: int) -> None:
        self._look = look
        self._seen: list[T] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(start_ns, end_ns), daemon=True)
        self._thread.start()

    def _run(self, *edges_ns: int) -> None:
        try:
            for edge_ns in edges_ns:
                time.sleep(max(0, edge_ns - time.monotonic_ns()) / 1e9)
                self._seen.append(self._look())
        except Exception as failure:
            self._failure = failure

    def seen(self, timeout_seconds: float) -> tuple[T, T] | None:
        """What was seen at both; None when that is not there in time. Raises what looking raised."""
        self._thread.join(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return (self._seen[0], self._seen[1]) if len(self._seen) == 2 else None
