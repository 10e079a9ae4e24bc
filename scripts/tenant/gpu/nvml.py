"""NVML: the GPU that was granted to this pod, and samples of any GPU."""

import contextlib
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pynvml

from tenant.contract import NO_DEVICE, VISIBLE_DEVICES_VARIABLE, DeviceView, device_digest
from tenant.contract.gpu import GpuSample
from tenant.gpu.cuda import MIG_PREFIX

T = TypeVar("T")
SAMPLE_PERIOD_SECONDS = 0.1
# NVML updates GPM counters every 100 ms (nvml.h, nvmlGpmSampleGet) and computes nothing from closer samples.
ACTIVITY_PERIOD_SECONDS = 0.2
# GPM metrics by the field of GpuSample that they fill.
ACTIVITY_METRICS = {
    "sm_active_seconds": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy_seconds": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "dram_active_seconds": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


class NvmlError(Exception):
    """NVML is missing, does not work, or does not show exactly one GPU; the message is one line."""


def try_read(read: Callable[..., T], *arguments: object) -> T | None:
    """Call a function of NVML; None if this GPU, driver or virtual machine does not support it."""
    with contextlib.suppress(pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        return read(*arguments)
    return None


def granted_gpu(environment: Mapping[str, str] = os.environ) -> Any:
    """NVML handle of the pod's whole GPU, found by its UUID if the environment names one. Raises NvmlError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NvmlError("libnvidia-ml.so.1 is not in the tenant's container") from None
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML does not start in the tenant's container: {error}") from None
    name = environment.get(VISIBLE_DEVICES_VARIABLE, "").split(",")[0]
    handle = None if name in NO_DEVICE else try_read(pynvml.nvmlDeviceGetHandleByUUID, name)
    if handle is None:
        count = try_read(pynvml.nvmlDeviceGetCount) or 0
        if count != 1:
            raise NvmlError(f"NVML in the tenant's container shows {count} GPUs, and nothing names the one of this pod")
        handle = try_read(pynvml.nvmlDeviceGetHandleByIndex, 0)
        if handle is None:
            raise NvmlError("NVML in the tenant's container does not open the GPU")
    # The GPU of a MIG instance; NVML refuses this for a handle that is a GPU already.
    return try_read(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle


def _uuid(gpu: Any) -> str | None:
    """UUID of the one visible MIG instance, or of the whole GPU; None if several instances are visible."""
    mode = try_read(pynvml.nvmlDeviceGetMigMode, gpu)
    if mode is not None and mode[0]:
        count = try_read(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
        handles = (try_read(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index) for index in range(count))
        instances = [handle for handle in handles if handle is not None]
        if len(instances) != 1:
            return None
        (gpu,) = instances
    return try_read(pynvml.nvmlDeviceGetUUID, gpu)


def complete_view(view: DeviceView) -> DeviceView:
    """Fill in `device` and `is_mig` of a pod's view; unchanged if NVML does not show the device."""
    uuid = None
    with contextlib.suppress(NvmlError):
        uuid = _uuid(granted_gpu({}))
    if uuid is None:
        return view
    return {**view, "device": device_digest(uuid), "is_mig": uuid.startswith(MIG_PREFIX)}


def power_watts(gpu: Any) -> float | None:
    """Present power, or if NVML has no such reading, its own mean (since Ampere that of the last second)."""
    readings = try_read(pynvml.nvmlDeviceGetFieldValues, gpu, [pynvml.NVML_FI_DEV_POWER_INSTANT])
    # On a GPU without this field the call succeeds, and the field holds the error.
    if readings is not None and readings[0].nvmlReturn == pynvml.NVML_SUCCESS:
        return int(readings[0].value.uiVal) / 1e3
    mean_mw = try_read(pynvml.nvmlDeviceGetPowerUsage, gpu)
    return None if mean_mw is None else mean_mw / 1e3


class ActivityCounters:
    """Total times that a GPU's SMs and memory were active, from GPM, the hardware counters of Hopper and later."""

    def __init__(self, gpu: Any) -> None:
        self.reason: str | None = None
        """Why the counters cannot be read; None if they can."""
        self._gpu = gpu
        self._at_seconds = -math.inf
        self._totals: tuple[float, ...] = ()
        version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request = pynvml.c_nvmlGpmMetricsGet_t(version=version, numMetrics=len(ACTIVITY_METRICS))
        for index, metric in enumerate(ACTIVITY_METRICS.values()):
            self._request.metrics[index].metricId = metric
        try:
            if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
                self.reason = "the GPU has no GPM counters, which came with Hopper"
            elif (mode := try_read(pynvml.nvmlDeviceGetMigMode, gpu)) is not None and mode[0]:
                # Whether the instances' counters add up to the GPU's has not been tried on a GPU.
                self.reason = "MIG mode is on: GPM counts by instance, and is not read"
            self._last, self._next = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        except pynvml.NVMLError as error:
            self.reason = f"the driver has no GPM counters: {error}"

    def read(self, at_seconds: float) -> dict[str, float]:
        """Totals since the first reading, by field of GpuSample; empty within ACTIVITY_PERIOD_SECONDS of the last."""
        if self.reason is not None or at_seconds < self._at_seconds + ACTIVITY_PERIOD_SECONDS:
            return {}
        try:
            pynvml.nvmlGpmSampleGet(self._gpu, self._next)
            self._totals = self._new_totals(at_seconds - self._at_seconds)
        except pynvml.NVMLError as error:
            self.reason = f"NVML did not read the GPM counters: {error}"
            return {}
        self._at_seconds = at_seconds
        self._last, self._next = self._next, self._last
        return dict(zip(ACTIVITY_METRICS, self._totals, strict=True))

    def _new_totals(self, elapsed_seconds: float) -> tuple[float, ...]:
        """Add the activity since the last reading to the totals. Raises NVMLError."""
        if not self._totals:
            return (0.0,) * len(ACTIVITY_METRICS)
        self._request.sample1, self._request.sample2 = self._last, self._next
        pynvml.nvmlGpmMetricsGet(self._request)
        for metric in (metrics := self._request.metrics[: self._request.numMetrics]):
            if metric.nvmlReturn != pynvml.NVML_SUCCESS or not math.isfinite(metric.value):
                raise pynvml.NVMLError(metric.nvmlReturn or pynvml.NVML_ERROR_NO_DATA)
        shares = (metric.value / 100 for metric in metrics)
        return tuple(total + share * elapsed_seconds for total, share in zip(self._totals, shares, strict=True))

    def wait_for_next(self) -> None:
        if self.reason is None:
            time.sleep(max(0.0, self._at_seconds + ACTIVITY_PERIOD_SECONDS - time.monotonic()))


def gpu_sample(gpu: Any, activity: ActivityCounters) -> GpuSample:
    """Take one sample. Time, activity and energy are read first, close to each other."""
    t_seconds = time.monotonic()
    active = {**dict.fromkeys(ACTIVITY_METRICS), **activity.read(t_seconds)}
    energy_mj = try_read(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu)
    utilisation = try_read(pynvml.nvmlDeviceGetUtilizationRates, gpu)
    memory = try_read(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    return GpuSample(
        t_seconds=t_seconds,
        cpu_seconds=time.process_time(),
        energy_joules=None if energy_mj is None else energy_mj / 1e3,
        power_watts=power_watts(gpu),
        sm_clock_mhz=try_read(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=try_read(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_MEM),
        temperature_celsius=try_read(pynvml.nvmlDeviceGetTemperature, gpu, pynvml.NVML_TEMPERATURE_GPU),
        gpu_util_percent=None if utilisation is None else int(utilisation.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        reasons=try_read(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu),
        **active,
    )


def gpu_samples(gpu: Any, activity: ActivityCounters) -> Iterator[GpuSample]:
    """Yield a sample every SAMPLE_PERIOD_SECONDS until standard input closes, and one more."""
    due = time.monotonic()
    is_over = False
    while not is_over:
        yield gpu_sample(gpu, activity)
        due = max(due + SAMPLE_PERIOD_SECONDS, time.monotonic())
        is_over = bool(select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0])
    # The window's end must lie between two readings of energy and activity.
    activity.wait_for_next()
    yield gpu_sample(gpu, activity)
