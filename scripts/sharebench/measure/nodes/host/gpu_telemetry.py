"""Telemetry of an NVIDIA GPU's window: the sampling process, rows of telemetry.csv, and the record's summary."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from sharebench.core.files import SCRIPTS
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.gpu_summary import mean, sees_all_processes, summarise
from sharebench.measure.nodes.host import nvml_sampler
from sharebench.measure.nodes.host.host_cpu import HostCounters
from sharebench.measure.nodes.host.nvml import Gpu
from sharebench.model.records.telemetry import Row, Telemetry
from tenant.contract.gpu import GpuProcess, GpuSample, GpuSamples
from tenant.gpu.nvml import SAMPLE_PERIOD_SECONDS, power_watts

# Starting Python and NVML takes a quarter of a second; on a busy host it may take seconds.
READY_SECONDS = 30.0
# NVML answers within milliseconds, also on a busy GPU.
STOP_SECONDS = 15.0
# Idle power is settled when two means differ by less than this ratio, and used unsettled after this time.
SETTLED_RATIO = 0.03
SETTLE_SECONDS = 60.0
PEAKS_SECONDS = 180.0


class NvmlSampler:
    """Samples a GPU ten times a second from a separate process, which starts with this object.

    `families` has the processes of each tenant, in order; streams repeat theirs. `server_pids` are our MPS servers,
    `host` counts other activity on the host's cores.
    """

    def __init__(
        self, uuid: str, families: Sequence[Sequence[int]], server_pids: Sequence[int], host: HostCounters
    ) -> None:
        """Raises NodeError when the sampling process does not start."""
        self.families = [tuple(family) for family in families]
        self.server_pids = list(server_pids)
        self.host = host
        self.processes: Mapping[int, GpuProcess] = {}
        """Every process that was seen on the GPU, by pid; filled by `stop`."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", nvml_sampler.__name__, uuid],
            env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        is_there = select.select([self._process.stdout], [], [], READY_SECONDS)[0]
        if not is_there or self._process.stdout.readline() != "ready\n":
            self._process.kill()
            self._process.wait()
            raise NodeError("the sampler of the GPU did not start; see the log of the cell")

    def start(self) -> None:
        """Note the host's counters; the GPU is being sampled already."""
        self.host.start()

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        """Stop; returns the window's rows, by seconds since its start, and the record's summary. Raises NodeError."""
        host = self.host.stop()
        try:
            text, _ = self._process.communicate("\n", timeout=STOP_SECONDS)
            sampled: GpuSamples = json.loads(text)
        except (subprocess.TimeoutExpired, ValueError):
            self._process.kill()
            self._process.wait()
            raise NodeError("the sampler of the GPU did not answer; see the log of the cell") from None
        self.processes = {int(pid): process for pid, process in sampled["processes"].items()}
        rows, summary = summarise(
            [GpuSample(*values) for values in sampled["samples"]],
            self.processes,
            self.families,
            self.server_pids,
            window_start_seconds,
            window_end_seconds,
            sampled["activity_reason"],
        )
        return rows, {**summary, **host}


def idle_power_watts(uuid: str, seconds: float = 2.0) -> float | None:
    """Power of the GPU with no process on it, once two means over `seconds` agree.

    None if there is a process, if processes of other namespaces are hidden, or where NVML has no power. Raises
    NodeError when there is no such GPU.
    """
    gpu = Gpu(uuid)
    if not sees_all_processes():
        return None
    before, mean = None, _idle_mean(gpu, seconds)
    deadline = time.monotonic() + SETTLE_SECONDS
    # Clocks and temperature take some time to go down after earlier work.
    while mean is not None and (before is None or abs(mean / before - 1) > SETTLED_RATIO):
        if time.monotonic() > deadline:
            break
        before, mean = mean, _idle_mean(gpu, seconds)
    return mean


def _idle_mean(gpu: Gpu, seconds: float) -> float | None:
    readings: list[float | None] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if gpu.occupants():
            return None
        readings.append(power_watts(gpu.handle))
        time.sleep(SAMPLE_PERIOD_SECONDS)
    return mean(readings)


def peaks(python: str, environment: Mapping[str, str]) -> dict[str, float]:
    """Peak rates of the GPU in FLOP/s and bytes/s, measured by a process alone on it. Raises NodeError."""
    command = [python, "-m", "tenant.gpu.peaks"]
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PEAKS_SECONDS)
    except subprocess.TimeoutExpired:
        raise NodeError(f"the GPU's peak rates were not measured within {PEAKS_SECONDS:g} s") from None
    if run.returncode != 0:
        last = (run.stderr.strip() or "no message").splitlines()[-1]
        raise NodeError(f"the GPU's peak rates could not be measured: {last}")
    measured: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return measured
