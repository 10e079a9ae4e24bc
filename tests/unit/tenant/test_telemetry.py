"""Samples of a GPU from within a pod: finding the GPU, reading it, and delivering the samples."""

import time
from pathlib import Path

import pynvml
import pytest

from sharebench.measure.nodes.contract import TenantUnreachable
from sharebench.measure.nodes.kubernetes.pods.sampler import PodSampler
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY
from tenant.contract.gpu import GpuSample
from tenant.gpu import nvml
from tenant.server import Server, State

UUID_VARIABLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.mark.parametrize("has_readings", [True, False])
def test_a_sample_is_blank_where_nvml_has_no_reading(
    mock_nvml: Path, has_readings: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_readings:
        monkeypatch.setenv("MOCK_READINGS", "1")
    gpu = nvml.granted_gpu({})
    sample = nvml.gpu_sample(gpu, nvml.ActivityCounters(gpu))
    filled = {name for name, value in sample._asdict().items() if value is not None}
    assert filled == (set(GpuSample._fields) if has_readings else {"t_seconds", "cpu_seconds", "memory_used_bytes"})


def test_activity_grows_by_its_share_of_the_elapsed_time(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_READINGS", "1")
    activity = nvml.ActivityCounters(nvml.granted_gpu({}))
    read = [tuple(activity.read(at_seconds).values()) for at_seconds in (100.0, 100.1, 100.3, 108.3)]
    # Samples that are close together are not compared.
    assert read[:2] == [(0.0, 0.0, 0.0), ()]
    assert read[2:] == [pytest.approx(seconds) for seconds in ((0.1875, 0.09375, 0.0375), (5.1875, 2.59375, 1.0375))]
    assert activity.reason is None


def test_activity_that_cannot_be_read_has_a_reason(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_READINGS", "1")
    activity = nvml.ActivityCounters(nvml.granted_gpu({}))
    assert activity.read(time.monotonic())
    monkeypatch.delenv("MOCK_READINGS")
    activity.wait_for_next()
    assert activity.read(time.monotonic()) == {}
    assert activity.reason == "NVML did not read the GPM counters: Not Supported"
    assert nvml.ActivityCounters(nvml.granted_gpu({})).reason == "the GPU has no GPM counters, which came with Hopper"
    monkeypatch.setenv("MOCK_READINGS", "1")
    mock_nvml.write_text("gpu 0: 1g.18gb\n")
    activity = nvml.ActivityCounters(nvml.granted_gpu({}))
    assert activity.reason == "MIG mode is on: GPM counts by instance, and is not read"
    assert activity.read(time.monotonic()) == {}


def test_the_granted_gpu_is_found_by_its_uuid(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_GPUS", "2")
    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in (0, 1))
    assert granted_uuid(f"{second},{second}") == second
    for name in ("", "all", "void", "1"):
        with pytest.raises(nvml.NvmlError, match="2 GPUs, and nothing names the one of this pod"):
            granted_uuid(name)
    monkeypatch.setenv("MOCK_GPUS", "1")
    assert granted_uuid("void") == first


def granted_uuid(name: str) -> str:
    uuid: str = pynvml.nvmlDeviceGetUUID(nvml.granted_gpu({UUID_VARIABLE: name}))
    return uuid


def test_the_granted_gpu_of_a_mig_instance_is_the_whole_gpu(mock_nvml: Path) -> None:
    mock_nvml.write_text("gpu 0: 1g.18gb\n")
    pynvml.nvmlInit()
    whole = pynvml.nvmlDeviceGetHandleByIndex(0)
    instance = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, 0))
    assert instance.startswith("MIG-")
    assert granted_uuid(instance) == pynvml.nvmlDeviceGetUUID(whole)


class Endpoint(HttpEndpoint):
    """A tenant's server in this process."""

    def __init__(self) -> None:
        self.state = State()
        server = Server("127.0.0.1", 0, "token", self.state)
        server.start()
        super().__init__(server.port, "token")


def test_the_driver_receives_the_samples_of_the_window(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
    monkeypatch.setenv("MOCK_READINGS", "1")
    # A busy machine may be late with the samples of one window.
    for _ in range(5):
        sampler = PodSampler(Endpoint()).wait_until_begun()
        sampler.start()
        begin = time.monotonic()
        time.sleep(1.0)
        rows, summary = sampler.stop(begin, time.monotonic())
        if len(rows) > 2:
            break
    assert (summary["source"], summary["reason"]) == ("nvml-in-tenant-0", None)
    assert summary["samples"] == len(rows) > 0
    assert set(summary) == set(UNKNOWN_TELEMETRY)
    assert summary["power_mean_watts"] == pytest.approx(62.25)
    active = [summary[f"{what}_mean_percent"] for what in ("sm_active", "sm_occupancy", "dram_active")]
    assert (active, summary["activity_reason"]) == ([pytest.approx(each) for each in (62.5, 31.25, 12.5)], None)
    assert (rows[0]["sm_clock_mhz"], rows[0]["throttle_reasons"]) == (1410, "sw_power_cap")
    assert summary["tenant_memory_mib"] is None and summary["foreign_processes"] is None


def test_telemetry_without_nvml_is_blank_with_the_reason() -> None:
    endpoint = Endpoint()
    sampler = PodSampler(endpoint)
    rows, summary = sampler.stop(0.0, 1.0)
    reason = "libnvidia-ml.so.1 is not in the tenant's container"
    assert rows == [] and summary == {**UNKNOWN_TELEMETRY, "reason": reason}
    with pytest.raises(TenantUnreachable, match="409 the GPU is not being sampled"):
        endpoint.end_telemetry()


def test_a_dead_sampler_costs_only_the_telemetry(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
    endpoint = Endpoint()
    sampler = PodSampler(endpoint).wait_until_begun()
    with pytest.raises(TenantUnreachable, match="409 the GPU is being sampled already"):
        endpoint.begin_telemetry()
    assert endpoint.state.sampler is not None
    endpoint.state.sampler._process.kill()
    rows, summary = sampler.stop(0.0, 1.0)
    assert rows == [] and "did not deliver its samples" in summary["reason"]
