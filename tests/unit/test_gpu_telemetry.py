"""Telemetry of a GPU: the summary of samples that are set, and the sampling process over a made-up NVML."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from sharebench.nodes.contract import NodeError
from sharebench.nodes.gpu_summary import summarise
from sharebench.nodes.host import gpu_telemetry
from sharebench.nodes.host.gpu_telemetry import NvmlSampler, idle_power_watts
from sharebench.nodes.host.host_cpu import HostCounters
from sharebench.nodes.host.nvml import Occupant
from sharebench.nodes.host.nvml_sampler import ancestors
from sharebench.records.telemetry import NOTHING_KNOWN, Telemetry, to_csv
from tenant.contract.gpu import GpuSample

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MIB = 1 << 20
GPU = "GPU-00000000-1111-2222-3333-444444444444"


def samples(changes: dict[str, Any] | None = None, period: float = 0.1) -> list[GpuSample]:
    """Samples from 99.55 s to beyond 102.4 s of a GPU at 300 W; `changes` are a field's values, or made of the time."""
    found = []
    for number in range(30):
        at = 99.55 + number * period
        values: dict[str, Any] = {
            "t_seconds": at,
            "cpu_seconds": 0.03 * at,
            "energy_joules": 5000 + 300.0 * at,
            "power_watts": 300.0,
            "sm_clock_mhz": 1980,
            "memory_clock_mhz": 3201,
            "temperature_celsius": 50,
            "gpu_util_percent": 90,
            "memory_used_bytes": 2000 * MIB,
            "reasons": 0,
            "sm_active_seconds": 0.5 * at,
            "sm_occupancy_seconds": 0.25 * at,
            "dram_active_seconds": 0.125 * at,
        }
        for field, change in (changes or {}).items():
            values[field] = change(at) if callable(change) else change
        found.append(GpuSample(**values))
    return found


def process(kind: str = "compute", mib: float | None = 700, parents: tuple[int, ...] = (1,)) -> dict[str, Any]:
    """One entry of what was seen on the GPU."""
    readings = [] if mib is None else [[99.6, int(mib * MIB / 2)], [100.5, int(mib * MIB)], [101.5, int(mib * MIB)]]
    return {"kind": kind, "memory": readings, "ancestors": list(parents)}


def summary_of(
    changes: dict[str, Any] | None = None,
    processes: dict[str, Any] | None = None,
    tenants: tuple[int | tuple[int, ...], ...] = (10, 11),
    servers: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The summary of the window from 100 s to 102 s."""
    seen = {int(pid): entry for pid, entry in (processes or {}).items()}
    families = [tenant if isinstance(tenant, tuple) else (tenant,) for tenant in tenants]
    return summarise(samples(changes), seen, families, servers, 100.0, 102.0)[1]


def test_rows_are_those_of_the_window_and_fit_the_csv() -> None:
    changes = {"reasons": lambda at: 0x44 if at > 101 else 0, "power_watts": lambda at: 200 + at, "sm_clock_mhz": None}
    rows, summary = summarise(samples(changes), {}, [(10,)], (), 100.0, 102.0)
    assert summary["samples"] == len(rows) == 20
    assert (rows[0]["t_seconds"], rows[-1]["t_seconds"]) == (0.05, 1.95)
    lines = to_csv(rows).splitlines()
    assert lines[1] == "0.05,90,2000.0,300.05,,50,,,,"
    assert lines[20] == "1.95,90,2000.0,301.95,,50,sw_power_cap;hw_thermal_slowdown,,,"


def test_means_and_extremes_are_of_the_window_alone() -> None:
    inside = lambda at, within, beyond: within if 100 <= at <= 102 else beyond  # noqa: E731
    summary = summary_of(
        {
            "power_watts": lambda at: inside(at, 300.0, 9000.0),
            "sm_clock_mhz": lambda at: inside(at, 1900 if at < 101 else 2100, 100),
            "temperature_celsius": lambda at: inside(at, 60 if 101 < at < 101.1 else int(at - 60), 99),
            "memory_used_bytes": lambda at: inside(at, 1000 * MIB, 9000 * MIB),
            "gpu_util_percent": lambda at: inside(at, 80, 0),
            "reasons": lambda at: inside(at, 0x4 if at < 100.2 else 0x1, 0x8),
        }
    )
    assert set(summary) == set(NOTHING_KNOWN)
    assert summary["power_mean_watts"] == 300
    assert (summary["sm_clock_mean_mhz"], summary["sm_clock_cv"]) == (2000, pytest.approx(0.05))
    assert summary["memory_clock_mean_mhz"] == 3201
    temperatures = [summary[f"temperature_{what}_celsius"] for what in ("start", "end", "max")]
    assert temperatures == [40, 41, 60]
    assert (summary["memory_used_max_mib"], summary["utilisation_mean_percent"]) == (1000, 80)
    assert summary["throttle_reasons"] == {"sw_power_cap": 10, "gpu_idle": 90}


def test_the_energy_is_that_between_the_exact_ends_of_the_window() -> None:
    # The power changes beyond the window, so only interpolated ends give what was used in it.
    summary = summary_of({"energy_joules": lambda at: 300 * min(max(at, 100.05), 101.95), "power_watts": 300.0})
    assert summary["energy_joules"] == pytest.approx(300 * 1.9)
    assert summary_of()["energy_joules"] == pytest.approx(600)
    assert summary_of()["sampler_cpu_percent"] == pytest.approx(3)


def test_activity_is_the_mean_between_the_exact_ends_of_the_window() -> None:
    busy_within = lambda at: min(max(at, 100.0), 102.0) if round((at - 99.55) * 10) % 2 else None  # noqa: E731
    summary = summary_of({"sm_active_seconds": busy_within})
    # It was read every 0.2 s, and in the two such times that an end of the window cuts it is taken as steady.
    assert summary["sm_active_mean_percent"] == pytest.approx(96.25)
    active = [summary[f"{what}_mean_percent"] for what in ("sm_occupancy", "dram_active")]
    assert active == pytest.approx([25, 12.5])


@pytest.mark.parametrize("renewal_seconds", [0.02, 0.1, 0.25])
def test_a_counter_that_is_renewed_in_steps_is_off_by_no_more_than_it_says(renewal_seconds: float) -> None:
    stale = lambda at: 300 * (at // renewal_seconds) * renewal_seconds  # noqa: E731
    summary = summary_of({"energy_joules": stale})
    assert abs(summary["energy_joules"] - 600) <= summary["energy_error_joules"] + 1e-6
    assert summary["energy_error_joules"] == pytest.approx(300 * max(0.1, renewal_seconds), abs=300 * 0.11)


def test_without_a_counter_the_energy_is_that_of_the_power_samples() -> None:
    summary = summary_of({"energy_joules": None, "power_watts": lambda at: 200 if at < 101 else 400})
    assert (summary["energy_joules"], summary["energy_error_joules"]) == (pytest.approx(600), None)


def test_what_the_gpu_cannot_tell_is_null_and_the_rest_is_there() -> None:
    unknown = dict.fromkeys(GpuSample._fields[2:])
    summary = summary_of(unknown)
    told = {key for key, value in summary.items() if value is not None}
    assert (
        summary_of(unknown | {"dram_active_seconds": lambda at: at if at < 101.9 else None})["dram_active_mean_percent"]
        is None
    )
    assert told == {"source", "samples", "sampler_cpu_percent"}
    assert summary_of({"temperature_celsius": None})["power_mean_watts"] == 300


def test_memory_is_by_tenant_and_the_servers_apart() -> None:
    seen = {"5": process("compute", 66), "11": process("mps", 700), "10": process("mps", 800)}
    summary = summary_of(processes=seen, servers=(5,))
    assert summary["tenant_memory_mib"] == [800, 700]
    assert summary["server_memory_mib"] == 66
    assert summary["foreign_processes"] == {"compute": 0, "graphics": 0, "mps": 0}


def test_streams_share_the_memory_of_their_process() -> None:
    summary = summary_of(processes={"10": process(mib=900)}, tenants=(10, 10, 10))
    assert summary["tenant_memory_mib"] == [300, 300, 300]
    assert summary["server_memory_mib"] is None


def test_memory_that_nvml_hides_is_null_for_that_tenant() -> None:
    seen = {"10": process(mib=None), "11": process(mib=700)}
    assert summary_of(processes=seen)["tenant_memory_mib"] == [None, 700]


def test_processes_of_others_are_counted_by_kind() -> None:
    seen = {
        "10": process(),
        "11": process(),
        "20": process("compute"),
        "21": process("compute", parents=(20, 1)),
        "22": process("mps"),
        "23": process("graphics"),
        "30": process("compute", parents=(11, 1)),
        "31": process("compute", parents=(30, 11, 1)),
    }
    assert summary_of(processes=seen)["foreign_processes"] == {"compute": 2, "graphics": 1, "mps": 1}


def test_the_workers_of_a_tenant_are_not_foreign_and_their_memory_is_the_tenants() -> None:
    # A server that does not use the GPU itself, with a worker that it had when the window began and a later one.
    seen = {
        "12": process("compute", 300, parents=(10, 1)),
        "13": process("compute", 500, parents=(10, 1)),
        "11": process("compute", 700),
        "20": process("compute", 900),
    }
    summary = summary_of(processes=seen, tenants=((10, 12), 11))
    assert summary["foreign_processes"] == {"compute": 1, "graphics": 0, "mps": 0}
    assert summary["tenant_memory_mib"] == [800, 700]


def test_pids_of_another_namespace_say_nothing() -> None:
    summary = summary_of(processes={"4711": process()})
    assert summary["foreign_processes"] is summary["tenant_memory_mib"] is None


def test_ancestors_are_read_from_the_kernel() -> None:
    parents = [each.pid for each in psutil.Process().parents()]
    assert parents and ancestors(os.getpid())[: len(parents)] == parents
    assert ancestors(2**22 + 1) == []


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
def nvmlDeviceGetIndex(handle):
    if handle[-1] == "9": raise NVMLError("GPU is lost")
    return int(handle[-1])
def nvmlDeviceGetName(handle): return "NVIDIA Made-up"
def nvmlDeviceGetMigMode(handle): raise NVMLError("Not Supported")
def nvmlDeviceGetCurrentClocksThrottleReasons(handle): raise NVMLError("Not Supported")
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
def nvmlDeviceGetComputeRunningProcesses(handle): return [Bag(pid=int(os.environ["tenant"]), usedGpuMemory=700 << 20)]
def nvmlDeviceGetGraphicsRunningProcesses(handle): return answered([])
def nvmlGpmQueryDeviceSupport(handle): return Bag(isSupportedDevice=answered(not os.environ.get("old")))
def nvmlGpmSampleAlloc(): return []
def nvmlGpmSampleGet(handle, sample): sample[:] = [time.monotonic()]
def c_nvmlGpmMetricsGet_t(**entries): return Bag(metrics=[Bag(nvmlReturn=0) for _ in range(3)], **entries)
def nvmlGpmMetricsGet(asked):
    assert asked.sample2[0] - asked.sample1[0] > 0.1
    for metric in asked.metrics: metric.value = 10.0 * metric.metricId
"""


def test_memory_that_a_tenant_takes_after_the_window_is_not_its_works() -> None:
    tenant = process(mib=2338)
    tenant["memory"].append([102.1, 6434 * MIB])
    assert summary_of(processes={"10": tenant}, tenants=(10,))["tenant_memory_mib"] == [2338]
    too_late = {"kind": "compute", "memory": [[102.1, MIB]], "ancestors": [1]}
    assert summary_of(processes={"10": too_late}, tenants=(10,))["tenant_memory_mib"] == [None]


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sampling process finds the made-up NVML, on whose GPU is this very process."""
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.setattr(gpu_telemetry, "SCRIPTS", f"{tmp_path}{os.pathsep}{SCRIPTS}")
    monkeypatch.setenv("tenant", str(os.getpid()))
    return tmp_path


def sampler() -> NvmlSampler:
    return NvmlSampler(GPU, [[os.getpid()]], [], HostCounters([0], [os.getpid()]))


def sampled(seconds: float) -> Telemetry:
    """The summary of a window that begins now."""
    running = sampler()
    running.start()
    began = time.monotonic()
    time.sleep(seconds)
    return running.stop(began, began + seconds)[1]


def test_the_sampling_process_sees_the_whole_window(made_up: Path) -> None:
    running = sampler()
    began = time.monotonic() + 0.15
    running.start()
    time.sleep(1.15)
    rows, summary = running.stop(began, began + 1.0)
    assert running._process.returncode == 0
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


def test_what_the_other_gpus_do_is_recorded(made_up: Path) -> None:
    others = [f"{GPU[:-1]}{last}" for last in "529"]
    running = NvmlSampler(GPU, [[os.getpid()]], [], HostCounters([0], [os.getpid()]), others)
    began = time.monotonic()
    running.start()
    time.sleep(1.2)
    _, summary = running.stop(began, began + 1.2)
    found = {"power_mean_watts": 251, "utilisation_mean_percent": 77}
    # The last one has fallen off the bus.
    assert summary["neighbours"] == [{"index": 2, **found}, {"index": 5, **found}]
    assert "neighbours" not in sampled(0.3)


def test_a_gpu_that_tells_nothing_is_sampled_all_the_same(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("broken", "gpu")
    monkeypatch.setenv("old", "yes")
    summary = sampled(0.3)
    assert summary["samples"] > 0
    assert summary["power_mean_watts"] is summary["energy_joules"] is summary["throttle_reasons"] is None
    assert (summary["sm_active_mean_percent"], summary["activity_reason"]) == (
        None,
        "the driver has no GPM counters: Not Supported",
    )
    assert summary["tenant_memory_mib"] == [700]


def test_power_is_nvmls_mean_where_there_is_no_momentary_one(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("old", "yes")
    summary = sampled(0.25)
    assert summary["power_mean_watts"] == 249
    assert (summary["dram_active_mean_percent"], summary["activity_reason"]) == (
        None,
        "the GPU has no GPM counters, which came with Hopper",
    )


def test_a_driver_that_is_not_there_is_a_node_error(
    made_up: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("broken", "library")
    with pytest.raises(NodeError, match="did not start"):
        sampler()
    assert capfd.readouterr().err.splitlines() == [
        "NVML cannot be used (Driver Not Loaded); is the NVIDIA driver loaded? See `nvidia-smi`"
    ]


def test_a_sampling_process_that_died_is_a_node_error(made_up: Path) -> None:
    running = sampler()
    running.start()
    running._process.kill()
    with pytest.raises(NodeError, match="gave no answer"):
        running.stop(0.0, 1.0)


def test_the_sampling_process_ends_with_its_parent_and_not_by_ctrl_c(made_up: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time\n"
            "from sharebench.nodes.host import gpu_telemetry as g\n"
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
    """Its occupants by call, and a power that rises."""

    visits: list[list[Occupant]]
    handle = None

    def __init__(self, uuid: str) -> None:
        assert uuid == GPU

    def occupants(self) -> list[Occupant]:
        return self.visits.pop(0) if self.visits else []


@pytest.mark.parametrize(("occupied", "expected"), [(False, 120.0), (True, None)])
def test_idle_power_is_that_of_an_empty_gpu(
    monkeypatch: pytest.MonkeyPatch, occupied: bool, expected: float | None
) -> None:
    IdleGpu.visits = [[], [Occupant(1, "compute", None)] if occupied else []]
    powers = iter([110.0, None, 130.0] + [120.0] * 99)
    monkeypatch.setattr(gpu_telemetry, "Gpu", IdleGpu)
    monkeypatch.setattr(gpu_telemetry, "power_watts", lambda gpu: next(powers))
    assert idle_power_watts(GPU, seconds=0.45) == expected
