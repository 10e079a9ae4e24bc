"""The user's container next to this one, seen through the process namespace that a pod's containers share."""

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tenant.contract import GRANTED_VARIABLE, CpuUse, ProcessView, Steadiness, TenantReport, View, device_digest
from tenant.startup import granted_view
from tenant.usage import peak_bytes

PROC = Path("/proc")
# Process 1 of such a pod holds its namespaces.
HOLDER = 1
LISTENING = "0A"
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
    view: View | None = None

    def readiness(self, since_ns: int | None) -> Steadiness | None:
        """None: the driver knows."""

    def wait_digest(self, deadline_seconds: float) -> None:
        """None: what a program computes is not known."""

    def metrics(self) -> tuple[bytes, str]:
        """None."""
        return b"", "text/plain"

    def pid(self) -> int | None:
        """Its first process, once it has been seen."""
        if self._pid is None:
            roots = [pid for pid, parent in _parents().items() if parent == 0 and pid not in (HOLDER, os.getpid())]
            known = {pid: _environment(pid) for pid in roots}
            granted = [pid for pid, variables in known.items() if variables and GRANTED_VARIABLE in variables]
            # Of another user's, nothing but its being there is seen.
            found = granted or [pid for pid, each in known.items() if each is None and not _is_runtime(pid)]
            if len(found) == 1 and os.getpid() != HOLDER:
                self._pid = found[0]
                self.view = self._view(found[0], known[found[0]])
        return self._pid

    @staticmethod
    def _view(pid: int, variables: dict[str, str] | None) -> View | None:
        if variables is None:
            return None
        seen = granted_view(variables, PROC / str(pid) / "root" / "dev")
        if seen is None:
            return None
        files = seen.get("nodes", [])
        # Where devices come by CDI, no variable names them.
        return {**seen, "pid": pid, "device": seen["device"] or _device(files), "is_mig": _is_mig(seen, files)}

    def pids(self) -> list[int]:
        """Its first process, and all that come from it."""
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

    def seen(self) -> ProcessView:
        names = [(PROC / str(pid) / "comm", pid) for pid in self.pids()]
        named = {pid: path.read_text().strip() for path, pid in names if path.exists()}
        return {"pids": list(named), "names": list(named.values()), "visible_devices": None}

    def look(self) -> float:
        """Its CPU time at an end of the window."""
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

    def completed(self, report: TenantReport) -> TenantReport:
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

    def cpu_use(self, cpu_seconds: float) -> CpuUse:
        affinity = None
        with contextlib.suppress(OSError):
            affinity = sorted(os.sched_getaffinity(self.pid() or 0))
        return {"cpu_seconds": cpu_seconds, "run_queue_seconds": None, "affinity": affinity}

    @staticmethod
    def listening() -> list[int]:
        """The TCP ports on which some container of this pod listens, ascending."""
        found: set[int] = set()
        for name in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                rows = [line.split() for line in (PROC / "net" / name).read_text().splitlines()[1:]]
                found |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENING}
        return sorted(found)


def _is_runtime(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().startswith(RUNTIMES)
    return True


def _is_mig(view: View, files: Sequence[str]) -> bool | None:
    known = view.get("is_mig")
    return any("/" in each for each in files) if known is None and files else known


def _device(files: Sequence[str]) -> str | None:
    """The digest of the id of the GPU that has these device files, by the kernel's list; None for a MIG instance."""
    for path in (PROC / "driver" / "nvidia" / "gpus").glob("*/information"):
        pairs = [line.partition(":") for line in path.read_text().splitlines()]
        known = {name.strip(): value.strip() for name, _, value in pairs}
        if list(files) == [f"nvidia{known.get('Device Minor')}"]:
            return device_digest(known["GPU UUID"])
    return None
