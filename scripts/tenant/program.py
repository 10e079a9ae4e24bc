"""Observes the user's program next to this process: on a host by its pid, in a pod through the shared processes."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tenant import contract
from tenant.contract.requests import EDGE_TIMEOUT_SECONDS, Page, ScrapeReport, fetch_page
from tenant.failures import RefusedError
from tenant.startup import granted_view
from tenant.usage import read_peak_bytes

PROC = Path("/proc")
# Pid of the pause process, which holds the pod's namespaces.
PAUSE_PID = 1
# Intervals of the search for the program, and of its observation while it runs.
FIND_PERIOD_SECONDS = 0.01
POLL_PERIOD_SECONDS = 1.0
# Index of the exit code in proc_pid_stat(5), counted from the third field; 0 to a reader without the right to it.
EXIT_CODE_FIELD = 49
# What proc_pid_clear_refs(5) takes to lower the peak resident set to the present one.
RESET_PEAK = "5"
# Names of a container runtime's own process, before it becomes the container's.
RUNTIMES = ("runc", "crun", "exe")


def _stat(pid: int) -> list[str]:
    """The fields of proc_pid_stat(5) from the third on; empty if the process is gone."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return []


def _parents() -> dict[int, int]:
    """The parent pid of each process, 0 for the first process of a container."""
    pids = [int(path.name) for path in PROC.iterdir() if path.name.isdecimal()]
    return {pid: int(fields[1]) for pid in pids if (fields := _stat(pid))}


def _children(pid: int) -> list[int]:
    """The living children of a process. Most kernels list them by thread, without a look at every process."""
    if not (PROC / "thread-self" / "children").exists():
        return [child for child, parent in _parents().items() if parent == pid]
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def _environment(pid: int) -> dict[str, str] | None:
    """The initial environment of a process; None if this user may not read it."""
    with contextlib.suppress(OSError):
        pairs = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return None


class UserProgram:
    """A user's program: on a host the process `pid`, 0 for one that runs elsewhere.

    In a pod (None) it is in the container that has the GPU, and not visible if the containers do not share their
    processes. Subclasses take the place of the `Measurement` of a tenant that runs our code.
    """

    _edges: list[float]
    _pids_before: list[int]
    view: contract.DeviceView | None = None

    def __init__(self, pid: int | None = None) -> None:
        self._pid = pid or None
        self._is_in_pod = pid is None

    def readiness(self, since_ns: int | None) -> contract.Steadiness | None:
        """None, because the driver decides whether a program is ready."""

    def wait_outputs(self, deadline_seconds: float) -> contract.Outputs:
        return contract.NO_OUTPUTS

    def metrics(self) -> tuple[bytes, str]:
        return b"", "text/plain"

    def pid(self) -> int | None:
        """Pid of the program's first process; None if it is not found or not unique."""
        if self._pid is None and self._is_in_pod:
            excluded = (PAUSE_PID, os.getpid())
            roots = [pid for pid, parent in _parents().items() if parent == 0 and pid not in excluded]
            environments = {pid: _environment(pid) for pid in roots}
            granted = [pid for pid, own in environments.items() if own and contract.GRANTED_VARIABLE in own]
            # The environment of another user's process cannot be read.
            candidates = granted or [pid for pid, own in environments.items() if own is None and not _is_runtime(pid)]
            if len(candidates) == 1 and os.getpid() != PAUSE_PID:
                self._pid = candidates[0]
                self.view = self._view(self._pid, environments[self._pid])
        return self._pid

    @staticmethod
    def _view(pid: int, variables: dict[str, str] | None) -> contract.DeviceView | None:
        if variables is None:
            return None
        view = granted_view(variables, PROC / str(pid) / "root" / "dev")
        if view is None:
            return None
        # If the devices come by CDI, no variable names them.
        files, is_mig = view.get("nodes", []), view.get("is_mig")
        if is_mig is None and files:
            is_mig = any("/" in file for file in files)
        return {**view, "pid": pid, "device": view["device"] or _device_of_files(files), "is_mig": is_mig}

    def pids(self) -> list[int]:
        first = self.pid()
        pids = [] if first is None else [first]
        for pid in pids:
            pids += _children(pid)
        return pids

    def cpu_seconds(self, pids: Iterable[int]) -> float:
        """CPU time of processes, and of ended children that they have waited for."""
        ticks = (sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid)))
        return sum(ticks) / os.sysconf("SC_CLK_TCK")

    def peak_resident_bytes(self) -> int | None:
        """Sum of the peak resident sets of the running processes; None if there are none."""
        peaks = [peak for pid in self.pids() if (peak := read_peak_bytes(PROC / str(pid) / "status")) is not None]
        return sum(peaks) if peaks else None

    def process_view(self) -> contract.ProcessView:
        paths = [(PROC / str(pid) / "comm", pid) for pid in self.pids()]
        names = {pid: path.read_text().strip() for path, pid in paths if path.exists()}
        variables = _environment(self.pid() or 0) or {}
        devices = variables.get("CUDA_VISIBLE_DEVICES")
        return {"pids": list(names), "names": list(names.values()), "visible_devices": devices}

    def read_at_edge(self) -> float:
        return self.cpu_seconds(self._pids_before)

    def watch(self, *edges_ns: int) -> None:
        """Read the program's CPU time at these moments, in a thread. Its processes are looked for before the first.

        From then on the kernel counts their peak of memory, where it allows that.
        """
        self._edges, self._pids_before = [], []

        def run() -> None:
            self._pids_before = self.pids()
            for pid in self._pids_before:
                # One start may serve several windows, and a low load must not have the peak of a high one.
                with contextlib.suppress(OSError):
                    (PROC / str(pid) / "clear_refs").write_text(RESET_PEAK)
            for edge_ns in edges_ns:
                time.sleep(max(0, edge_ns - time.monotonic_ns()) / 1e9)
                self._edges.append(self.read_at_edge())

        self._thread = threading.Thread(target=run, name="edges", daemon=True)
        self._thread.start()

    def complete_report(self, report: contract.TenantReport) -> contract.TenantReport:
        """Add the program's resources in the watched window, its processes and its view to its client's report."""
        report["measured_by"] = "client"
        report["cpu"] = report["memory_bytes"] = report["work"] = report["outside"] = None
        if self.pid() is not None:
            self._thread.join()
            first, last = self._edges
            started_since = set(self.pids()).difference(self._pids_before)
            report["cpu"] = self.cpu_use(last - first + self.cpu_seconds(started_since))
            report["memory_bytes"] = self.peak_resident_bytes()
            report["outside"], report["view"] = self.process_view(), self.view
        return report

    def cpu_use(self, cpu_seconds: float) -> contract.CpuUse:
        affinity = None
        with contextlib.suppress(OSError):
            affinity = sorted(os.sched_getaffinity(self.pid() or 0))
        return {"cpu_seconds": cpu_seconds, "run_queue_seconds": None, "affinity": affinity}


def _is_runtime(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().startswith(RUNTIMES)
    return True


def _device_of_files(files: Sequence[str]) -> str | None:
    """Digest of the GPU with these device files, from the kernel module's list; None for a MIG instance."""
    for path in (PROC / "driver" / "nvidia" / "gpus").glob("*/information"):
        pairs = [line.partition(":") for line in path.read_text().splitlines()]
        information = {name.strip(): value.strip() for name, _, value in pairs}
        if list(files) == [f"nvidia{information.get('Device Minor')}"]:
            return contract.device_digest(information["GPU UUID"])
    return None


class ExitingProgram(UserProgram):
    """A program that starts with the window and runs until all its processes have ended.

    On a host it waits, stopped. In a pod the kubelet starts it when this container's startup probe (`GET /begun`)
    succeeds, and ends its container with its first process.
    """

    def __init__(self, pid: int | None = None) -> None:
        super().__init__(pid)
        self._window: tuple[int, int] | None = None
        self._has_ended = threading.Event()
        self._left: list[int] = []
        self._known: set[int] = set()
        self._report: contract.ExitReport = {
            "started_ns": None,
            "ended_ns": None,
            "left_running": 0,
            "cpu": None,
            "memory_bytes": None,
            "outside": None,
            "view": None,
            "environment": contract.environment({}),
        }

    def wait_until_stopped(self) -> None:
        """Wait until a program on this host has stopped itself, or is gone: its launcher's signal comes first."""
        while self._pid is not None and _stat(self._pid)[:1] not in ([], ["T"]):
            time.sleep(FIND_PERIOD_SECONDS)

    def readiness(self, since_ns: int | None) -> contract.Steadiness:
        """Always steady: there is no warm-up, because the start is part of the work."""
        return {"is_steady": True, "batches": 0, "change_percent": None}

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> None:
        """Set the window whose start starts the program. Raises RefusedError if there was one before."""
        if self._window is not None:
            raise RefusedError("the program has begun in another window")
        if start_ns < time.monotonic_ns():
            raise RefusedError("the window starts in the past")
        self._window = (start_ns, end_ns)
        threading.Thread(target=self._wait, args=self._window, daemon=True).start()

    def _wait(self, start_ns: int, end_ns: int) -> None:
        if self._is_in_pod:
            while self.pid() is None and time.monotonic_ns() < end_ns:
                time.sleep(FIND_PERIOD_SECONDS)
        if (pid := self.pid()) is not None:
            with contextlib.suppress(ProcessLookupError):
                # Opened before the program can end.
                process = os.pidfd_open(pid)
                if not self._is_in_pod:
                    time.sleep(max(0, start_ns - time.monotonic_ns()) / 1e9)
                    os.kill(pid, signal.SIGCONT)
                self._report["started_ns"] = time.monotonic_ns()
                self._report["view"] = self.view
                self._follow(process, end_ns)
        self._has_ended.set()

    def _follow(self, process: int, end_ns: int) -> None:
        """Wait for the program, and then for what it has left running, until the deadline."""
        is_over = self._await_end(process, end_ns)
        while is_over and not self._is_in_pod and (left := self._find_left()):
            self._left = left
            with contextlib.suppress(ProcessLookupError):
                is_over = self._await_end(os.pidfd_open(left[0]), end_ns)
        if not is_over:
            self._report["ended_ns"], self._report["left_running"] = None, len(self._left)

    def _await_end(self, process: int, end_ns: int) -> bool:
        """Whether a process ends before the deadline."""
        period_seconds = FIND_PERIOD_SECONDS
        while (left_seconds := (end_ns - time.monotonic_ns()) / 1e9) > 0:
            self._update_report()
            if select.select([process], [], [], min(left_seconds, period_seconds))[0]:
                self._report["ended_ns"] = time.monotonic_ns()
                if self._is_in_pod:
                    # Its container ends now, and they with it.
                    self._report["left_running"] = len(self._find_left())
                # The process's statistics remain until its exit code is read.
                self._update_report()
                return True
            # What a short program uses is seen, too.
            period_seconds = min(2 * period_seconds, POLL_PERIOD_SECONDS)
        return False

    def _find_left(self) -> list[int]:
        """The living processes that a program has left behind; on this host none if it failed.

        They are known from before its end, by its session, or on this host by the temporary folder of the tenant, which
        this process has too.
        """
        if not self._is_in_pod:
            own = _stat(self._pid) if self._pid is not None else []
            if not own or own[EXIT_CODE_FIELD:] not in ([], ["0"]):
                return []
        known = self._known - {self._pid}
        others = (int(path.name) for path in PROC.iterdir() if path.name.isdecimal())
        alive = {pid: fields for pid in others if (fields := _stat(pid)) and fields[0] not in "ZX"}
        alive.pop(os.getpid(), None)
        known |= {pid for pid, fields in alive.items() if fields[3] == str(self._pid)}
        return [pid for pid in alive if pid in known or (not self._is_in_pod and _is_ours(pid))]

    def pids(self) -> list[int]:
        return [*super().pids(), *self._left]

    def _update_report(self) -> None:
        cpu_seconds, outside = self.cpu_seconds(self.pids()), self.process_view()
        if own := _stat(self.pid() or 0):
            # The children of a program that is ending have another parent already.
            self._known = {*outside["pids"], *(self._known if own[0] in "ZX" else ())}
            self._report["cpu"] = self.cpu_use(cpu_seconds)
            self._report["memory_bytes"] = self.peak_resident_bytes() or self._report["memory_bytes"]
            self._report["outside"] = outside

    def wait_record(self, deadline_seconds: float) -> contract.ExitReport:
        if self._window is None:
            raise RefusedError("no window was set")
        self._has_ended.wait()
        return self._report


def _is_ours(pid: int) -> bool:
    """Whether a process has this one's temporary folder, which is the tenant's own."""
    folder = os.environ.get("TMPDIR")
    return folder is not None and (_environment(pid) or {}).get("TMPDIR") == folder


class SelfMeasuringProgram(UserProgram):
    """A program that counts its own latencies; the driver reads its pages. `path` is that of its metrics."""

    def __init__(self, pid: int | None, port: int, path: str) -> None:
        super().__init__(pid)
        self._port = port
        self._path = path
        self._pages: list[Page] | None = None

    def page(self, path: str) -> Page:
        return fetch_page(self._port, path)

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> None:
        """Set the window whose edges are scraped. Raises RefusedError if it has begun."""
        if start_ns < time.monotonic_ns():
            raise RefusedError("the window starts in the past")
        self._pages = []

    def read_at_edge(self) -> float:
        if self._pages is not None:
            self._pages.append(fetch_page(self._port, self._path, EDGE_TIMEOUT_SECONDS))
        return super().read_at_edge()

    def wait_record(self, deadline_seconds: float) -> ScrapeReport:
        """The pages at the window's edges. Raises RefusedError before a window is set."""
        if self._pages is None:
            raise RefusedError("no window was set")
        self._thread.join()
        return {"pages": self._pages, "environment": contract.environment({})}
