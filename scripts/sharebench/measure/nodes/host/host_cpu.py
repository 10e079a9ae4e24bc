"""The host's CPU: facts, counters around a window, and the telemetry of the stand-in.

`facts` neither name the machine nor change over time, so that two studies of one host agree.
"""

import contextlib
import platform
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import psutil

from sharebench.core.console import format_count
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, Row, Telemetry
from sharebench.model.records.types import Host
from tenant.contract import device_digest

ROOT = Path("/")


def model() -> str:
    match = re.search(r"^model name\s*:(.*)$", _read_text(ROOT / "proc/cpuinfo") or "", re.MULTILINE)
    return re.sub(r"\s+", " ", match[1]).strip() if match else platform.processor() or platform.machine()


def facts() -> dict[str, str | int | None]:
    """Facts about the CPUs; None where not known."""
    cpus = ROOT / "sys/devices/system/cpu"
    governors = map(_read_text, cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    # The hardware's limit: psutil reports the limit that is set, and fails where there is none.
    largest_khz = map(_read_text, cpus.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq"))
    return {
        "cpu": model(),
        "cpu_cores": psutil.cpu_count(logical=False),
        "cpu_threads": psutil.cpu_count(),
        "cpu_governor": " and ".join(sorted({each for each in governors if each})) or None,
        "cpu_mhz_max": round(max((int(khz) for khz in largest_khz if khz), default=0) / 1000) or None,
    }


def host_facts(gpu_uuids: Collection[str] = ()) -> Host:
    """The record's `host`: a host with GPUs is identified by them, another by its machine id."""
    cpus, cpu, gpus = ROOT / "sys/devices/system/cpu", model(), sorted(gpu_uuids)
    sockets = {_read_text(each) for each in cpus.glob("cpu[0-9]*/topology/physical_package_id")} - {None}
    counts = {
        "socket": len(sockets),
        "core": psutil.cpu_count(logical=False),
        "thread": psutil.cpu_count(),
        "NUMA node": len(list((ROOT / "sys/devices/system/node").glob("node[0-9]*"))),
        "GPU": len(gpus),
    }
    boot = _read_text(ROOT / "proc/sys/kernel/random/boot_id")
    return {
        "machine": device_digest("/".join([cpu, *(gpus or [_read_text(ROOT / "etc/machine-id") or ""])])),
        "boot": boot and device_digest(boot),
        "cpu": cpu,
        "topology": ", ".join(format_count(count, what, f"{what}s") for what, count in counts.items() if count) or None,
    }


def split_cores(cores: Sequence[int], near: Sequence[Collection[int] | None]) -> list[list[int]]:
    """Disjoint parts of these cores, one for each device: from the cores `near` it, or from all (None).

    Threads of one physical core stay together. A part is empty where there are more devices than cores.
    """
    threads: dict[tuple[int, ...], list[int]] = {}
    for core in cores:
        topology = ROOT / f"sys/devices/system/cpu/cpu{core}/topology"
        package, place = (_read_text(topology / name) for name in ("physical_package_id", "core_id"))
        threads.setdefault((int(package), int(place)) if package and place else (0, 0, core), []).append(core)
    all_cores = frozenset(cores)
    pools = [all_cores.intersection(all_cores if each is None else each) or all_cores for each in near]
    if any(one != other and one & other for one in pools for other in pools):
        pools = [all_cores] * len(near)
    parts = []
    for number, pool in enumerate(pools):
        groups = [group for _, group in sorted(threads.items()) if pool.issuperset(group)]
        first, end = (len(groups) * pools[:last].count(pool) // pools.count(pool) for last in (number, number + 1))
        parts.append(sorted(core for group in groups[first:end] for core in group))
    return parts


def _read_text(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text().strip() or None
    return None


def _throttled_usec() -> int | None:
    """Time for which a CPU quota of this process's cgroup (version 2) has throttled it so far."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        own = Path("/proc/self/cgroup").read_text().strip().rsplit("::", 1)[-1]
        lines = (Path("/sys/fs/cgroup") / own.lstrip("/") / "cpu.stat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("throttled_usec")))
    return None


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """CPU time so far of the living processes, and of their children that have ended."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            spent = process.cpu_times()
            total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


class HostUse(TypedDict):
    """The host's part of the record's summary: what else took time from the tenants' cores."""

    host_steal_percent: float | None
    host_throttled_percent: float | None
    foreign_cpu_percent: float | None


class HostCounters:
    """Other activity on these cores between `start` and `stop`: a hypervisor, a quota, processes not in `pids`.

    Children of `pids` belong to them. `ended_seconds` returns the CPU seconds of those that have ended.
    """

    def __init__(self, cores: Sequence[int], pids: Iterable[int], ended_seconds: Callable[[], float] = float) -> None:
        self.cores = cores
        self.processes: list[psutil.Process] = []
        for pid in sorted(set(pids)):
            # A server's processes may end at any time.
            with contextlib.suppress(psutil.NoSuchProcess):
                self.processes.append(psutil.Process(pid))
        self._ended_seconds = ended_seconds
        # In the order in which psutil lists the CPUs. CPUs that are offline, or not the container's, are missing.
        stat = (Path(psutil.PROCFS_PATH) / "stat").read_text()
        self._numbers = [int(number) for number in re.findall(r"^cpu(\d+)", stat, re.MULTILINE)]

    def busy(self) -> tuple[float, float]:
        """Busy and total CPU seconds of the cores since boot."""
        busy = total = 0.0
        by_number = dict(zip(self._numbers, psutil.cpu_times(percpu=True), strict=False))
        # An offline CPU is not listed, and did nothing.
        for spent in (by_number[core] for core in self.cores if core in by_number):
            # User and nice include a guest's time.
            total += sum(spent) - spent.guest - spent.guest_nice
            busy += spent.user + spent.nice + spent.system
        return busy, total

    def start(self) -> None:
        """Read the counters at the start."""
        self._first = self._now()

    def _now(self) -> tuple[Any, tuple[float, float], float, int | None, float]:
        ours = cpu_seconds(self.processes) + self._ended_seconds()
        return psutil.cpu_times(), self.busy(), ours, _throttled_usec(), time.monotonic()

    def stop(self) -> HostUse:
        host, busy, ours, throttled, began = self._first
        for process in self.processes.copy():
            with contextlib.suppress(psutil.Error):
                self.processes += (each for each in process.children(recursive=True) if each not in self.processes)
        host_now, busy_now, ours_now, throttled_now, ended = self._now()
        total = sum(host_now[:8]) - sum(host[:8])
        foreign = (busy_now[0] - busy[0]) - (ours_now - ours)
        return {
            "host_steal_percent": 100.0 * (host_now.steal - host.steal) / total if total > 0 else None,
            "host_throttled_percent": None
            if throttled is None or throttled_now is None
            else min(100.0, (throttled_now - throttled) / 1e4 / (ended - began)),
            "foreign_cpu_percent": min(100.0, max(0.0, 100.0 * foreign / (busy_now[1] - busy[1])))
            if busy_now[1] > busy[1]
            else None,
        }


class HostSampler:
    """Telemetry of the stand-in: no samples, only the other activity on its cores."""

    def __init__(self, counters: HostCounters) -> None:
        self.counters = counters

    def start(self) -> None:
        self.counters.start()

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        return [], {**UNKNOWN_TELEMETRY, "source": "host", **self.counters.stop()}
