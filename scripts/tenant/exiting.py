"""A user's container that runs to its end, as the container next to it sees it: it begins with the window, and exits.

The kubelet starts it when this container's startup probe says so (`GET /begun`).
"""

import contextlib
import os
import select
import threading
import time

from tenant.contract import SeenToItsEnd, Steadiness, environment
from tenant.failures import RefusedError
from tenant.program import Program

# How often it is looked for, and at, while it runs.
FIND_SECONDS = 0.01
LOOK_SECONDS = 0.5


class Exiting(Program):
    def __init__(self) -> None:
        self._window: tuple[int, int] | None = None
        self._over = threading.Event()
        self._seen: SeenToItsEnd = {
            "started_ns": None,
            "ended_ns": None,
            "cpu": None,
            "memory_bytes": None,
            "outside": None,
            "view": None,
            "environment": environment({}),
        }

    def readiness(self, since_ns: int | None) -> Steadiness:
        """There is no warm-up: starting is part of the work."""
        return {"is_steady": True, "batches": 0, "change_percent": None}

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> None:
        """Have it begin at the start; the end is its deadline. Raises RefusedError for a second one."""
        if self._window is not None:
            raise RefusedError("the program has begun in another window")
        if start_ns < time.monotonic_ns():
            raise RefusedError("the window starts in the past")
        self._window = (start_ns, end_ns)
        threading.Thread(target=self._wait, args=(end_ns,), daemon=True).start()

    def _wait(self, end_ns: int) -> None:
        while (pid := self.pid()) is None and time.monotonic_ns() < end_ns:
            time.sleep(FIND_SECONDS)
        if pid is not None:
            self._seen["started_ns"] = time.monotonic_ns()
            self._seen["view"] = self.view
            with contextlib.suppress(ProcessLookupError):
                self._follow(os.pidfd_open(pid), end_ns)
        self._over.set()

    def _follow(self, process: int, end_ns: int) -> None:
        while (left_seconds := (end_ns - time.monotonic_ns()) / 1e9) > 0:
            self._note()
            if select.select([process], [], [], min(left_seconds, LOOK_SECONDS))[0]:
                self._seen["ended_ns"] = time.monotonic_ns()
                # As long as no one has asked for its exit code.
                self._note()
                return

    def _note(self) -> None:
        cpu_seconds, outside = self.cpu_seconds(), self.seen()
        if cpu_seconds > 0:
            self._seen["cpu"] = self.cpu_use(cpu_seconds)
            self._seen["memory_bytes"] = self.peak_resident_bytes() or self._seen["memory_bytes"]
            self._seen["outside"] = outside

    def wait_record(self, deadline_seconds: float) -> SeenToItsEnd:
        """What was seen of it, once it has exited or its deadline is over."""
        if self._window is None:
            raise RefusedError("no window was set")
        self._over.wait()
        return self._seen
