"""The process that samples a GPU during a window: `python -m sharebench.measure.nodes.host.nvml_sampler UUID`.

It is a separate process so that neither the driver's threads nor the tenants wait for NVML, a full sample of which
took 3.8 ms on an H200. It prints `ready` after the first sample, continues until its standard input closes, so that it
ends with its parent, and then prints all samples as one JSON object (tenant.contract.GpuSamples).
"""

import contextlib
import json
import signal
import sys
import time

import psutil
import pynvml

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host.nvml import Gpu
from tenant.contract.gpu import GpuProcess, GpuSamples
from tenant.gpu.nvml import ActivityCounters, gpu_samples, try_read

# The process lists take the most time to read, and change least.
ROUNDS_PER_PROCESS_LIST = 5
# NVML averages the use of processes over 1/6 s at least.
ROUNDS_PER_USE = 2


def ancestors(pid: int) -> list[int]:
    with contextlib.suppress(psutil.Error):
        return [parent.pid for parent in psutil.Process(pid).parents()]
    return []


def add_processes(gpu: Gpu, by_pid: dict[str, GpuProcess]) -> None:
    """Add the processes that are on the GPU now; ancestors are read when a process is first seen."""
    occupants, t_seconds = gpu.occupants(), time.monotonic()
    for occupant in occupants:
        pid = str(occupant.pid)
        if pid not in by_pid:
            by_pid[pid] = {"kind": occupant.kind, "memory": [], "ancestors": ancestors(occupant.pid), "use": []}
        if occupant.kind == "mps":
            # The lists are read one after another, so a new client may at first be listed as a compute process only.
            by_pid[pid]["kind"] = "mps"
        if occupant.memory_bytes is not None:
            by_pid[pid]["memory"].append((t_seconds, occupant.memory_bytes))


def add_use(gpu: Gpu, by_pid: dict[str, GpuProcess], seen_us: int) -> int:
    """Add what NVML has on the use by processes since its timestamp `seen_us`; returns the newest timestamp."""
    readings = try_read(pynvml.nvmlDeviceGetProcessUtilization, gpu.handle, seen_us) or []
    t_seconds = time.monotonic()
    newest = {reading.pid: reading for reading in sorted(readings, key=lambda each: each.timeStamp)}
    for pid, reading in newest.items():
        # Processes that the lists have not shown yet are gone or come with the next list.
        if (process := by_pid.get(str(pid))) is not None and reading.timeStamp > seen_us:
            process["use"].append((t_seconds, reading.smUtil, reading.memUtil))
    return max([seen_us, *(int(reading.timeStamp) for reading in newest.values())])


def main(uuid: str) -> str | None:
    """Sample until standard input closes; returns the text of an error, or None."""
    # Ctrl-C reaches all processes of a terminal; this one ends with its parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        gpu = Gpu(uuid)
    except NodeError as error:
        return str(error)
    by_pid: dict[str, GpuProcess] = {}
    activity = ActivityCounters(gpu.handle)
    samples, use_seen_us = [], 0
    for number, reading in enumerate(gpu_samples(gpu.handle, activity)):
        samples.append(reading)
        if number % ROUNDS_PER_PROCESS_LIST == 0:
            add_processes(gpu, by_pid)
        if number % ROUNDS_PER_USE == 0:
            use_seen_us = add_use(gpu, by_pid, use_seen_us)
        if number == 0:
            print("ready", flush=True)
    add_processes(gpu, by_pid)
    with contextlib.suppress(BrokenPipeError):
        result: GpuSamples = {"samples": samples, "activity_reason": activity.reason, "processes": by_pid}
        print(json.dumps(result), flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
