"""Samples of a GPU from within a pod: what ctypes reads is what NVML's own package reads, and how it gets out."""

from __future__ import annotations

import time
from pathlib import Path

import pynvml
import pytest

from sharebench.nodes.contract import TenantUnreachable
from sharebench.nodes.host.nvml import Gpu as GpuByPackage
from sharebench.nodes.host.nvml_sampler import sample as sample_by_package
from sharebench.nodes.kubernetes.pods.endpoint import PodEndpoint
from sharebench.nodes.kubernetes.pods.telemetry import PodSampler
from sharebench.records.telemetry import NOTHING_KNOWN
from tenant.contract import GpuSample
from tenant.gpu import nvml
from tenant.gpu.telemetry import sample
from tenant.server import Server
from tenant.state import State

UUID_VARIABLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.mark.parametrize("is_told", [True, False])
def test_every_reading_is_that_of_nvmls_package(
    mock_nvml: Path, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_told:
        monkeypatch.setenv("MOCK_READINGS", "1")
    own = sample(nvml.Gpu({}))._asdict()
    theirs = sample_by_package(GpuByPackage("0"))._asdict()
    moving = ("t_seconds", "cpu_seconds")
    assert {name: own[name] for name in GpuSample._fields if name not in moving} == {
        name: theirs[name] for name in GpuSample._fields if name not in moving
    }
    silent = [name for name, value in own.items() if value is None]
    assert bool(silent) is not is_told
    assert own["memory_used_bytes"] == 0


def test_the_gpu_is_the_one_that_the_pod_was_given(mock_nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_GPUS", "2")
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
    second = pynvml.nvmlDeviceGetUUID(handles[1])
    assert nvml.Gpu({UUID_VARIABLE: f"{second},{second}"})._handle.value == _address(handles[1])
    for name in ("", "all", "void", "1"):
        with pytest.raises(nvml.NvmlError, match="2 GPUs, and nothing says which one is ours"):
            nvml.Gpu({UUID_VARIABLE: name})
    monkeypatch.setenv("MOCK_GPUS", "1")
    assert nvml.Gpu({UUID_VARIABLE: "void"})._handle.value == _address(handles[0])


def _address(handle: object) -> int:
    import ctypes

    found = ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert found is not None
    return found


def test_of_a_mig_instance_it_is_the_gpu_that_it_is_of(mock_nvml: Path) -> None:
    mock_nvml.write_text("gpu 0: 1g.18gb\n")
    pynvml.nvmlInit()
    whole = pynvml.nvmlDeviceGetHandleByIndex(0)
    instance = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, 0))
    assert instance.startswith("MIG-")
    assert nvml.Gpu({UUID_VARIABLE: instance})._handle.value == _address(whole)


class Endpoint(PodEndpoint):
    """A tenant's server in this process."""

    def __init__(self) -> None:
        self.state = State()
        server = Server("127.0.0.1", 0, "token", self.state)
        server.start()
        super().__init__("127.0.0.1", "token", None)
        self.port = server.port


def test_samples_of_the_window_reach_the_driver(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
    monkeypatch.setenv("MOCK_READINGS", "1")
    sampler = PodSampler(Endpoint()).begun()
    sampler.start()
    # Whatever the machine does meanwhile, the window is as long as some samples.
    begin = time.monotonic()
    time.sleep(1.0)
    rows, summary = sampler.stop(begin, time.monotonic())
    assert (summary["source"], summary["reason"]) == ("nvml-in-tenant-0", None)
    assert summary["samples"] == len(rows) > 0
    assert set(summary) == set(NOTHING_KNOWN)
    assert summary["power_mean_watts"] == pytest.approx(62.25)
    assert (rows[0]["sm_clock_mhz"], rows[0]["throttle_reasons"]) == (1410, "sw_power_cap")
    assert summary["tenant_memory_mib"] is None and summary["foreign_processes"] is None


def test_without_the_library_all_is_blank_with_the_reason() -> None:
    endpoint = Endpoint()
    sampler = PodSampler(endpoint)
    rows, summary = sampler.stop(0.0, 1.0)
    reason = "libnvidia-ml.so.1 is not in the tenant's container"
    assert rows == [] and summary == {**NOTHING_KNOWN, "reason": reason}
    with pytest.raises(TenantUnreachable, match="409 the GPU is not being sampled"):
        endpoint.end_telemetry()


def test_a_tenant_that_falls_silent_costs_only_its_telemetry(
    nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
    endpoint = Endpoint()
    sampler = PodSampler(endpoint).begun()
    with pytest.raises(TenantUnreachable, match="409 the GPU is being sampled already"):
        endpoint.begin_telemetry()
    assert endpoint.state.sampling is not None
    endpoint.state.sampling._process.kill()
    rows, summary = sampler.stop(0.0, 1.0)
    assert rows == [] and "did not deliver its samples" in summary["reason"]
