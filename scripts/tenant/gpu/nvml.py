"""The GPU that this pod was given, through NVML, and readings of any GPU."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pynvml

from tenant.contract import DEVICES_VARIABLE, NO_DEVICE, GpuSample, View, device_digest
from tenant.gpu.cuda import MIG_PREFIX

T = TypeVar("T")


class NvmlError(Exception):
    """The library is missing, does not work, or does not show exactly one GPU; one line."""


def known(read: Callable[..., T], *arguments: object) -> T | None:
    """What NVML answers; None where this GPU, driver or virtual machine has no answer."""
    with contextlib.suppress(pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        return read(*arguments)
    return None


def granted_gpu(environment: Mapping[str, str] = os.environ) -> Any:
    """Handle of the pod's GPU, by its UUID where the environment has it; for a MIG instance, that of its whole GPU.

    Raises NvmlError.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NvmlError("libnvidia-ml.so.1 is not in the tenant's container") from None
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML does not start in the tenant's container: {error}") from None
    name = environment.get(DEVICES_VARIABLE, "").split(",")[0]
    named = None if name in NO_DEVICE else known(pynvml.nvmlDeviceGetHandleByUUID, name)
    handle = _only_gpu() if named is None else named
    # NVML refuses this for a GPU that is not a MIG instance.
    return known(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle


def _only_gpu() -> Any:
    try:
        count = pynvml.nvmlDeviceGetCount()
        if count != 1:
            raise NvmlError(f"NVML in the tenant's container shows {count} GPUs, and nothing names the one of this pod")
        return pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError as error:
        raise NvmlError(f"NVML in the tenant's container does not open the GPU: {error}") from None


def granted_uuid(gpu: Any) -> str | None:
    """UUID of the one MIG instance that this process sees, or of the whole GPU; None where there are several."""
    mode = known(pynvml.nvmlDeviceGetMigMode, gpu)
    if mode is not None and mode[0]:
        count = known(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
        found = (known(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index) for index in range(count))
        instances = [instance for instance in found if instance is not None]
        if len(instances) != 1:
            return None
        (gpu,) = instances
    return known(pynvml.nvmlDeviceGetUUID, gpu)


def completed(given: View) -> View:
    """A pod's view with `device` and `is_mig` as NVML has them; as it is where NVML does not know the device."""
    try:
        uuid = granted_uuid(granted_gpu({}))
    except NvmlError:
        return given
    if uuid is None:
        return given
    return {**given, "device": device_digest(uuid), "is_mig": uuid.startswith(MIG_PREFIX)}


def power_watts(gpu: Any) -> float | None:
    """Power at this moment, or NVML's own mean (since Ampere of the last second) where there is no such reading."""
    readings = known(pynvml.nvmlDeviceGetFieldValues, gpu, [pynvml.NVML_FI_DEV_POWER_INSTANT])
    # A GPU that has no such field answers the call, and puts the refusal into the field.
    if readings is not None and readings[0].nvmlReturn == pynvml.NVML_SUCCESS:
        return int(readings[0].value.uiVal) / 1e3
    mean_mw = known(pynvml.nvmlDeviceGetPowerUsage, gpu)
    return None if mean_mw is None else mean_mw / 1e3


def sample(gpu: Any) -> GpuSample:
    """One reading; the energy is read next to the time."""
    t_seconds = time.monotonic()
    energy_mj = known(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu)
    utilisation = known(pynvml.nvmlDeviceGetUtilizationRates, gpu)
    memory = known(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    reasons = known(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu)
    if reasons is None:
        # The name before driver 535.
        reasons = known(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu)
    return GpuSample(
        t_seconds=t_seconds,
        cpu_seconds=time.process_time(),
        energy_joules=None if energy_mj is None else energy_mj / 1e3,
        power_watts=power_watts(gpu),
        sm_clock_mhz=known(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=known(pynvml.nvmlDeviceGetClockInfo, gpu, pynvml.NVML_CLOCK_MEM),
        temperature_celsius=known(pynvml.nvmlDeviceGetTemperature, gpu, pynvml.NVML_TEMPERATURE_GPU),
        gpu_util_percent=None if utilisation is None else int(utilisation.gpu),
        memory_used_bytes=None if memory is None else int(memory.used),
        reasons=reasons,
    )
