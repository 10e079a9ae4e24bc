"""Telemetry of a GPU: the sampling process on a fake NVML."""

import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.host import gpu_telemetry
from sharebench.measure.nodes.host.gpu_telemetry import NvmlSampler, idle_power_watts
from sharebench.measure.nodes.host.host_cpu import HostCounters
from sharebench.measure.nodes.host.nvml import Occupant
from sharebench.model.records.telemetry import Telemetry

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
MIB = 1 << 20
GPU = "GPU-00000000-1111-2222-3333-444444444444"


# A GPU at 250 W whose counter is renewed every 50 ms; `broken` in the environment makes it answer as little as it can.
NVML = """
import os, time
class NVMLError(Exception): pass
class NVMLLibraryMismatchError(Exception): pass
class Bag:
    def __init__(self, **entries): self.__dict__.update(entries)
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_SUCCESS, NVML_FI_DEV_POWER_INSTANT = 1, 2, 0, 0, 186
NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY, NVML_GPM_METRIC_DRAM_BW_UTIL = 2, 3, 10
NVML_GPM_METRICS_GET_VERSION = 1
broken = os.environ.get("broken")
def answered(value):
    if broken: raise NVMLError("Not Supported")
    return value
def nvmlInit():
    if broken == "library": raise NVMLError("Driver Not Loaded")
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetUUID(handle): return handle
def nvmlDeviceGetName(handle): return "NVIDIA Made-up"
def nvmlDeviceGetMigMode(handle): raise NVMLError("Not Supported")
def nvmlDeviceGetTotalEnergyConsumption(handle): return answered(int(250_000 * (time.monotonic() // 0.05) * 0.05))
def nvmlDeviceGetUtilizationRates(handle): return answered(Bag(gpu=77, memory=1))
def nvmlDeviceGetMemoryInfo(handle): return answered(Bag(used=3 << 30, total=80 << 30))
def nvmlDeviceGetFieldValues(handle, fields):
    return [Bag(nvmlReturn=3 if os.environ.get("old") else 0, value=Bag(uiVal=251_000))]
def nvmlDeviceGetPowerUsage(handle): return answered(249_000)
def nvmlDeviceGetClockInfo(handle, which): return answered({1: 1980, 2: 3201}[which])
def nvmlDeviceGetTemperature(handle, which): return answered(48)
def nvmlDeviceGetCurrentClocksEventReasons(handle): return answered(4)
def nvmlDeviceGetMPSComputeRunningProcesses(handle): return []
pids = [int(os.environ[name]) for name in ("tenant", "neighbour") if name in os.environ]
def nvmlDeviceGetComputeRunningProcesses(handle): return [Bag(pid=pid, usedGpuMemory=700 << 20) for pid in pids]
def nvmlDeviceGetGraphicsRunningProcesses(handle): return answered([])
# Every 50 ms: the tenant 60 and 20 %, its neighbour half of that.
def nvmlDeviceGetProcessUtilization(handle, seen):
    now = answered(int(time.monotonic() / 0.05) * 50_000)
    if now <= seen: raise NVMLError("Not Found")
    return [Bag(pid=pid, timeStamp=now, smUtil=60 >> k, memUtil=20 >> k) for k, pid in enumerate(pids)]
def nvmlGpmQueryDeviceSupport(handle): return Bag(isSupportedDevice=answered(not os.environ.get("old")))
def nvmlGpmSampleAlloc(): return []
def nvmlGpmSampleGet(handle, sample): sample[:] = [time.monotonic()]
def c_nvmlGpmMetricsGet_t(**entries): return Bag(metrics=[Bag(nvmlReturn=0) for _ in range(3)], **entries)
def nvmlGpmMetricsGet(asked):
    assert asked.sample2[0] - asked.sample1[0] > 0.1
    for metric in asked.metrics: metric.value = 10.0 * metric.metricId
"""


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the sampling process find the fake NVML, on whose GPU this test's process runs."""
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.setattr(gpu_telemetry, "SCRIPTS", f"{tmp_path}{os.pathsep}{SCRIPTS}")
    monkeypatch.setenv("tenant", str(os.getpid()))
    return tmp_path


def sampler() -> NvmlSampler:
    return NvmlSampler(GPU, [[os.getpid()]], [], HostCounters([0], [os.getpid()]))


def sampled(start: Callable[[], NvmlSampler] = sampler) -> Telemetry:
    """The summary of a window of a second; of another one where a busy machine is late with half of its samples."""
    for _ in range(5):
        running = start()
        running.start()
        began = time.monotonic()
        time.sleep(1.0)
        summary = running.stop(began, began + 1.0)[1]
        if summary["samples"] > 5:
            break
    return summary


def test_the_sampling_process_sees_the_whole_window(made_up: Path) -> None:
    # On a busy machine the sampler may be late in one window; one that takes too few samples is in every window.
    for _ in range(3):
        running = sampler()
        # A reading is needed before and after the window.
        began = time.monotonic() + 0.5
        running.start()
        time.sleep(2.0)
        rows, summary = running.stop(began, began + 1.0)
        assert running._process.returncode == 0
        if summary["samples"] >= 4:
            break
    assert 4 <= summary["samples"] == len(rows) <= 11
    assert summary["energy_joules"] == pytest.approx(250, abs=summary["energy_error_joules"] + 10)
    assert summary["power_mean_watts"] == 251
    assert summary["throttle_reasons"] == {"sw_power_cap": 100}
    active = [summary[f"{what}_mean_percent"] for what in ("sm_active", "sm_occupancy", "dram_active")]
    assert (active, summary["activity_reason"]) == ([pytest.approx(each) for each in (20, 30, 100)], None)
    assert summary["tenant_memory_mib"] == [700]
    assert summary["foreign_processes"] == {"compute": 0, "graphics": 0, "mps": 0}
    assert 0 < summary["sampler_cpu_percent"] < 50
    assert 0 <= summary["foreign_cpu_percent"] <= 100


def test_each_tenant_has_its_own_use_of_the_gpu(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as tenant, subprocess.Popen(["sleep", "600"]) as neighbour:
        monkeypatch.setenv("tenant", str(tenant.pid))
        monkeypatch.setenv("neighbour", str(neighbour.pid))
        pids = [[tenant.pid], [neighbour.pid]]
        summary = sampled(lambda: NvmlSampler(GPU, pids, [], HostCounters([0], [tenant.pid])))
        tenant.kill()
        neighbour.kill()
    first, second = summary["tenant_sm_percent"]
    # A sampler that a busy machine delays may miss a part of the window, of both tenants alike.
    assert 20 < first < 61 and second == pytest.approx(first / 2)
    assert summary["tenant_memory_busy_percent"] == [pytest.approx(first / 3), pytest.approx(first / 6)]


def test_a_gpu_that_reports_nothing_is_still_sampled(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("broken", "gpu")
    monkeypatch.setenv("old", "yes")
    summary = sampled()
    assert summary["samples"] > 0
    assert summary["power_mean_watts"] is summary["energy_joules"] is summary["throttle_reasons"] is None
    assert (summary["sm_active_mean_percent"], summary["activity_reason"]) == (
        None,
        "the driver has no GPM counters: Not Supported",
    )
    assert summary["tenant_memory_mib"] == [700]
    assert summary["tenant_sm_percent"] is None


def test_power_is_the_mean_of_nvml_without_an_instant_value(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("old", "yes")
    summary = sampled()
    assert summary["power_mean_watts"] == 249
    assert (summary["dram_active_mean_percent"], summary["activity_reason"]) == (
        None,
        "the GPU has no GPM counters, which came with Hopper",
    )


def test_a_missing_driver_is_a_node_error(
    made_up: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("broken", "library")
    with pytest.raises(NodeError, match="did not start"):
        sampler()
    assert capfd.readouterr().err.splitlines() == [
        "NVML cannot be used (Driver Not Loaded); is the NVIDIA driver loaded? See `nvidia-smi`"
    ]


def test_a_dead_sampling_process_is_a_node_error(made_up: Path) -> None:
    running = sampler()
    running.start()
    running._process.kill()
    with pytest.raises(NodeError, match="did not answer"):
        running.stop(0.0, 1.0)


def test_the_sampling_process_ends_with_its_parent_and_not_by_ctrl_c(made_up: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time\n"
            "from sharebench.measure.nodes.host import gpu_telemetry as g\n"
            f"g.SCRIPTS = {gpu_telemetry.SCRIPTS!r}\n"
            f"s = g.NvmlSampler({GPU!r}, [[1]], [], None)\n"
            "print(s._process.pid, flush=True)\n"
            "time.sleep(60)",
        ],
        env={**os.environ, "PYTHONPATH": str(gpu_telemetry.SCRIPTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    sampling = psutil.Process(int(parent.stdout.readline()))
    sampling.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert sampling.is_running() and sampling.status() != psutil.STATUS_ZOMBIE
    parent.kill()
    parent.wait()
    psutil.wait_procs([sampling], timeout=60)
    assert not sampling.is_running() or sampling.status() == psutil.STATUS_ZOMBIE


class IdleGpu:
    """An idle GPU: its occupants by call, and rising power."""

    visits: list[list[Occupant]]
    handle = None

    def __init__(self, uuid: str) -> None:
        assert uuid == GPU

    def occupants(self) -> list[Occupant]:
        return self.visits.pop(0) if self.visits else []


@pytest.mark.parametrize(("occupied", "expected"), [(False, 120.0), (True, None)])
def test_idle_power_is_measured_on_an_empty_gpu(
    monkeypatch: pytest.MonkeyPatch, occupied: bool, expected: float | None
) -> None:
    IdleGpu.visits = [[], [Occupant(1, "compute", None)] if occupied else []]
    powers = iter([110.0, None, 130.0] + [120.0] * 99)
    monkeypatch.setattr(gpu_telemetry, "Gpu", IdleGpu)
    monkeypatch.setattr(gpu_telemetry, "power_watts", lambda gpu: next(powers))
    clock = types.SimpleNamespace(now=0.0)
    sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)  # noqa: E731
    fake = types.SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(gpu_telemetry, "time", fake)
    assert idle_power_watts(GPU, seconds=0.45) == expected
