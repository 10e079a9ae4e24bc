"""A program that runs until it exits: it waits, stopped, until all tenants are ready, and then starts with them."""

import contextlib
import os
import resource
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import NodeError, TenantsFailed, classify_exit
from sharebench.measure.nodes.host.logs import log_end
from sharebench.measure.nodes.host.programs.process_tree import ProcessTree
from sharebench.measure.nodes.programs import exited_job, exited_report
from sharebench.model.spec import WorkloadSpec
from tenant.contract import NO_OUTPUTS, CpuUse, Outputs, ProcessView, Steadiness, TenantReport, environment

# Stops itself; after SIGCONT it becomes the program, under the same process id.
LAUNCHER = ["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]
# How often its affinity is read while it runs.
AFFINITY_POLL_SECONDS = 0.5
NOTHING_TO_SETTLE: Steadiness = {"is_steady": True, "batches": 0, "change_percent": None}


@dataclass(frozen=True)
class ProgramExit:
    """A program's exit: its time, its code, and the resources of the program and its awaited children."""

    at_ns: int
    code: int
    usage: resource.struct_rusage

    @property
    def cpu_seconds(self) -> float:
        return self.usage.ru_utime + self.usage.ru_stime


class ExitEndpoint:
    """A program that runs until it exits; `log` is its output. A thread waits for its exit."""

    complaint: str | None = None
    waiting_for: str | None = None

    def __init__(self, index: int, workload: WorkloadSpec, port: int, log: Path, pid: int) -> None:
        self.index = index
        self.workload = workload
        self.port = port
        self.log = log
        self.ended: ProgramExit | None = None
        self.overdue: str | None = None
        self._tree = ProcessTree(pid)
        self._has_ended = threading.Event()
        self._released_ns: int | None = None
        self._window = (0, 0)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        # After a failed cell, Popen may have waited first.
        with contextlib.suppress(ChildProcessError):
            # Unlike Popen, wait4 returns the program's resource usage.
            _, status, usage = os.wait4(self._tree.pid, 0)
            self.ended = ProgramExit(time.monotonic_ns(), os.waitstatus_to_exitcode(status), usage)
        self._has_ended.set()

    def ready(self) -> bool:
        # A dead program is detected by its exit code.
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self._tree.pid).status() == psutil.STATUS_STOPPED
        return False

    def steadiness(self, since_ns: int | None) -> Steadiness:
        """Steady at once, since there is no warm-up: starting is part of the work."""
        return NOTHING_TO_SETTLE

    def clock(self) -> tuple[int, int, float]:
        return time.monotonic_ns(), time.time_ns(), 0.0

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        """Let the program begin at the window's start, or at once after it; the end is its deadline."""
        if self._window != (0, 0):
            raise NodeError(f"{self.workload['name']} has begun in a window that a neighbour refused")
        self._window = (start_ns, end_ns)
        threading.Thread(target=self._release, args=(start_ns,), daemon=True).start()
        return True

    def _release(self, start_ns: int) -> None:
        time.sleep(max(0, start_ns - time.monotonic_ns()) / NS)
        self._released_ns = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._tree.pid, signal.SIGCONT)

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The report, once the program has exited or missed its deadline.

        Raises TenantsFailed when it failed, except for lack of memory: the number that fits is a result.
        """
        start_ns, end_ns = self._window
        view = self._tree.view()
        # The launcher's process becomes the program.
        outside: ProcessView = {**view, "names": [Path((self.workload["command"] or [""])[0]).name] * len(view["pids"])}
        affinity = None
        while not self._has_ended.is_set() and (left := (end_ns - time.monotonic_ns()) / NS) > 0:
            # Its affinity can be read only while it runs.
            affinity = self._tree.affinity() or affinity
            self._has_ended.wait(min(left, AFFINITY_POLL_SECONDS))
        ended = self.ended
        if ended is None:
            self.overdue = f"it had not exited {(end_ns - start_ns) / NS:g} s after its start"
        elif ended.code and classify_exit(ended.code, False, log_end(self.log))[0] != "oom":
            raise TenantsFailed("a program did not end well")
        seconds = (ended.at_ns - start_ns) / NS if ended is not None and ended.code == 0 else None
        cpu: CpuUse = {
            "cpu_seconds": ended.cpu_seconds if ended else self._tree.cpu_seconds(),
            "run_queue_seconds": None,
            "affinity": affinity,
        }
        return {
            **exited_report(self.index, self.workload["name"], seconds),
            "job": exited_job(seconds, ((self._released_ns or start_ns) - start_ns) / NS),
            "cpu": cpu,
            "memory_bytes": ended.usage.ru_maxrss * 1024 if ended else None,
            "outside": outside,
            "environment": environment({}),
        }

    def outputs(self, deadline_seconds: float) -> Outputs:
        return NO_OUTPUTS
