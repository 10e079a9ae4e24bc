"""GPU usage of the programs on this host, from NVML: a time series for each program on each GPU."""

import socket
import threading
import time
from collections.abc import Set
from pathlib import Path

import pandas as pd
import pynvml

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.host.nvml import Gpu, Occupant
from sharebench.model.records.usage import DRAM, MEMORY, POWER, QUANTITIES, SM, UTIL, GpuPlace, ObservedUsage, Usage
from tenant.contract.gpu import GpuSample
from tenant.gpu.nvml import ActivityCounters, gpu_sample

PERIOD_SECONDS = 1.0
HOURS = 1.0
PROGRAM_WORDS = 3
# Two consecutive programs may both be on the GPU when processes are listed.
SHARED_RATIO = 0.1
Row = dict[str, float]


def program_name(pid: int, proc: Path = Path("/proc")) -> str:
    """The name of a process: its program and, for an interpreter, its script or module.

    Further arguments are not read, since they may hold secrets.
    """
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return f"process {pid}"
    name = Path(words[0]).name or f"process {pid}"
    match words[1:PROGRAM_WORDS]:
        case ["-m", module, *_] if name.startswith("python"):
            return f"{name} {module}"
        case [script, *_] if name.startswith("python") and script and not script.startswith("-"):
            return f"{name} {Path(script).name}"
    return name


class GpuWatch:
    def __init__(self, index: int) -> None:
        self.gpu = Gpu(str(index))
        self.index = index
        self.activity = ActivityCounters(self.gpu.handle)
        self.names: dict[int, str] = {}
        self.rows: dict[str | None, dict[float, Row]] = {}
        """By program, then by epoch seconds; None is the GPU while it has no process."""
        self.crowded: set[float] = set()
        self._last: GpuSample | None = None

    def take_sample(self, at: float) -> None:
        """Add a row for each program on the GPU, at this time (epoch seconds)."""
        now, last = gpu_sample(self.gpu.handle, self.activity), self._last
        self._last = now
        device = _device(now, last)
        programs: dict[str, list[Occupant]] = {}
        for occupant in self.gpu.occupants():
            name = self.names.setdefault(occupant.pid, program_name(occupant.pid))
            programs.setdefault(name, []).append(occupant)
        if len(programs) > 1:
            self.crowded.add(at)
        if not programs:
            self.rows.setdefault(None, {})[at] = device
        for name, occupants in programs.items():
            row = dict(device)
            known_bytes = [each.memory_bytes for each in occupants if each.memory_bytes is not None]
            if known_bytes:
                row[MEMORY] = sum(known_bytes) / MEBIBYTE
            self.rows.setdefault(name, {})[at] = row

    def usages(self, node: str, elsewhere: Set[int]) -> list[Usage]:
        """The usage of each program; `elsewhere` are the pids seen on other GPUs."""
        spread = {name for pid, name in self.names.items() if pid in elsewhere}
        total = self.gpu.memory_bytes and self.gpu.memory_bytes / MEBIBYTE
        place = GpuPlace(node, str(self.index), self.gpu.product, total)
        return [
            Usage(
                place,
                name,
                pd.DataFrame.from_dict(rows, orient="index").reindex(columns=list(QUANTITIES)).astype(float),
                name is not None and len(self.crowded & rows.keys()) > SHARED_RATIO * len(rows),
                name in spread,
            )
            for name, rows in self.rows.items()
        ]


def _device(now: GpuSample, last: GpuSample | None) -> Row:
    nothing = float("nan")

    def share(field: str) -> float:
        before, after = getattr(last, field, None), getattr(now, field)
        if last is None or before is None or after is None:
            return nothing
        return 100 * float(after - before) / (now.t_seconds - last.t_seconds)

    return {
        SM: share("sm_active_seconds"),
        DRAM: share("dram_active_seconds"),
        UTIL: nothing if now.gpu_util_percent is None else now.gpu_util_percent,
        MEMORY: nothing if now.memory_used_bytes is None else now.memory_used_bytes / MEBIBYTE,
        POWER: nothing if now.power_watts is None else now.power_watts,
    }


def watch_gpus(hours: float, is_over: threading.Event) -> ObservedUsage:
    """Watch all GPUs of this host for that time, or until the event. Raises NodeError."""
    Gpu("0")
    watched = [GpuWatch(index) for index in range(pynvml.nvmlDeviceGetCount())]
    begin = time.monotonic()
    epoch, end, steps = round(time.time()), begin + 3600 * hours, 0
    while True:
        for each in watched:
            each.take_sample(epoch + steps * PERIOD_SECONDS)
        steps += 1
        due = begin + steps * PERIOD_SECONDS
        if due >= end or is_over.wait(max(0.0, due - time.monotonic())):
            break
    watched_hours = steps * PERIOD_SECONDS / 3600
    usages = [
        usage
        for each in watched
        for usage in each.usages(
            socket.gethostname(), {pid for other in watched if other is not each for pid in other.names}
        )
    ]
    return ObservedUsage("NVML", round(watched_hours, 3), PERIOD_SECONDS, usages)
