"""The user's container next to this one, seen through the process namespace that a pod's containers share."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tenant import contract
from tenant.contract.requests import EDGE_TIMEOUT_SECONDS, Page, ScrapeReport, fetch_page
from tenant.failures import RefusedError
from tenant.startup import granted_view
from tenant.usage import peak_bytes

PROC = Path("/proc")
# Process 1 of such a pod holds its namespaces.
HOLDER = 1
# How often it is looked for, and at, while it runs.
FIND_SECONDS = 0.01
LOOK_SECONDS = 0.5
# What a runtime's own process is called, until it becomes the container's.
RUNTIMES = ("runc", "crun", "exe")


def _stat(pid: int) -> list[str]:
    """The fields of proc_pid_stat(5) from its third on; none of a process that is gone."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return []


def _parents() -> dict[int, int]:
    """The parent of each process, 0 for one that a container began with."""
    pids = [int(each.name) for each in PROC.iterdir() if each.name.isdecimal()]
    return {pid: int(fields[1]) for pid in pids if (fields := _stat(pid))}


def _environment(pid: int) -> dict[str, str] | None:
    """What the process began with; None where another user may not read it."""
    with contextlib.suppress(OSError):
        pairs = (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return None


class Program:
    """The container with the grant. Where the pod's containers do not share their processes, nothing is seen of it.

    A subclass stands in place of the measurement of a tenant that runs our code.
    """

    _pid: int | None = None
    _edges: list[float]
    view: contract.DeviceView | None = None

    def readiness(self, since_ns: int | None) -> contract.Steadiness | None:
        """None: the driver knows."""

    def wait_digest(self, deadline_seconds: float) -> None:
        """None: what a program computes is not known."""

    def metrics(self) -> tuple[bytes, str]:
        return b"", "text/plain"

    def pid(self) -> int | None:
        if self._pid is None:
            roots = [pid for pid, parent in _parents().items() if parent == 0 and pid not in (HOLDER, os.getpid())]
            known = {pid: _environment(pid) for pid in roots}
            granted = [pid for pid, variables in known.items() if variables and contract.GRANTED_VARIABLE in variables]
            # Of another user's, nothing but its being there is seen.
            found = granted or [pid for pid, each in known.items() if each is None and not _is_runtime(pid)]
            if len(found) == 1 and os.getpid() != HOLDER:
                self._pid = found[0]
                self.view = self._view(found[0], known[found[0]])
        return self._pid

    @staticmethod
    def _view(pid: int, variables: dict[str, str] | None) -> contract.DeviceView | None:
        if variables is None:
            return None
        seen = granted_view(variables, PROC / str(pid) / "root" / "dev")
        if seen is None:
            return None
        # Where devices come by CDI, no variable names them.
        files, is_mig = seen.get("nodes", []), seen.get("is_mig")
        if is_mig is None and files:
            is_mig = any("/" in each for each in files)
        return {**seen, "pid": pid, "device": seen["device"] or _device(files), "is_mig": is_mig}

    def pids(self) -> list[int]:
        first = self.pid()
        found, parents = [] if first is None else [first], _parents()
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def cpu_seconds(self) -> float:
        """CPU time of its processes, and of those that they have waited for."""
        ticks = (sum(map(int, fields[11:15])) for pid in self.pids() if (fields := _stat(pid)))
        return sum(ticks) / os.sysconf("SC_CLK_TCK")

    def peak_resident_bytes(self) -> int | None:
        """Sum of the largest resident sets of those that live."""
        found = [peak for pid in self.pids() if (peak := peak_bytes(PROC / str(pid) / "status")) is not None]
        return sum(found) if found else None

    def seen(self) -> contract.ProcessView:
        names = [(PROC / str(pid) / "comm", pid) for pid in self.pids()]
        named = {pid: path.read_text().strip() for path, pid in names if path.exists()}
        return {"pids": list(named), "names": list(named.values()), "visible_devices": None}

    def look(self) -> float:
        return self.cpu_seconds()

    def watch(self, *edges_ns: int) -> None:
        """Look at it at these moments, from a thread."""
        self._edges = []

        def run() -> None:
            for edge_ns in edges_ns:
                time.sleep(max(0, edge_ns - time.monotonic_ns()) / 1e9)
                self._edges.append(self.look())

        self._thread = threading.Thread(target=run, name="edges", daemon=True)
        self._thread.start()

    def completed(self, report: contract.TenantReport) -> contract.TenantReport:
        """The record of a client with what its server used in the window that was watched, and was given."""
        report["measured_by"] = "client"
        report["cpu"] = report["memory_bytes"] = report["work"] = report["outside"] = None
        if self.pid() is not None:
            self._thread.join()
            first, last = self._edges
            report["cpu"] = self.cpu_use(last - first)
            report["memory_bytes"] = self.peak_resident_bytes()
            report["outside"], report["view"] = self.seen(), self.view
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


def _device(files: Sequence[str]) -> str | None:
    """The digest of the id of the GPU that has these device files, by the kernel's list; None for a MIG instance."""
    for path in (PROC / "driver" / "nvidia" / "gpus").glob("*/information"):
        pairs = [line.partition(":") for line in path.read_text().splitlines()]
        known = {name.strip(): value.strip() for name, _, value in pairs}
        if list(files) == [f"nvidia{known.get('Device Minor')}"]:
            return contract.device_digest(known["GPU UUID"])
    return None


class Exiting(Program):
    """One that runs to its end: it begins with the window, and exits.

    The kubelet starts it when this container's startup probe says so (`GET /begun`).
    """

    def __init__(self) -> None:
        self._window: tuple[int, int] | None = None
        self._over = threading.Event()
        self._seen: contract.ExitReport = {
            "started_ns": None,
            "ended_ns": None,
            "cpu": None,
            "memory_bytes": None,
            "outside": None,
            "view": None,
            "environment": contract.environment({}),
        }

    def readiness(self, since_ns: int | None) -> contract.Steadiness:
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

    def wait_record(self, deadline_seconds: float) -> contract.ExitReport:
        if self._window is None:
            raise RefusedError("no window was set")
        self._over.wait()
        return self._seen


class Scraping(Program):
    """One that counts its own latencies, asked for pages that the driver reads; `path` is that of its metrics."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._pages: list[Page] | None = None

    def page(self, path: str) -> Page:
        return fetch_page(self._port, path)

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> None:
        """Raises RefusedError for a window that has begun."""
        if start_ns < time.monotonic_ns():
            raise RefusedError("the window starts in the past")
        self._pages = []

    def look(self) -> float:
        if self._pages is not None:
            self._pages.append(fetch_page(self._port, self._path, EDGE_TIMEOUT_SECONDS))
        return super().look()

    def wait_record(self, deadline_seconds: float) -> ScrapeReport:
        """The pages of the window's ends. Raises RefusedError before there is a window."""
        if self._pages is None:
            raise RefusedError("no window was set")
        self._thread.join()
        return {"pages": self._pages, "environment": contract.environment({})}
