"""What the driver's library tells of the GPU that this pod was given, asked without a package: `libnvidia-ml.so.1`.

Only what a sample needs. Structures and numbers are those of nvml.h.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import Structure, Union, byref, c_char_p, c_double, c_int, c_longlong, c_uint, c_ulonglong, c_void_p
from typing import Any

from tenant.contract import View, device_digest
from tenant.gpu.cuda import MIG_PREFIX
from tenant.granted_device import DEVICES_VARIABLE, NO_DEVICE

LIBRARY = "libnvidia-ml.so.1"
CLOCK_SM, CLOCK_MEMORY = 1, 2
TEMPERATURE_GPU = 0
FIELD_POWER_INSTANT = 186
UUID_LENGTH = 96


class NvmlError(Exception):
    """The library is not there, does not work, or knows no GPU of ours; one line."""


class _Utilisation(Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Value(Union):
    _fields_ = (("as_double", c_double), ("as_uint", c_uint), ("as_ulonglong", c_ulonglong))


class _FieldValue(Structure):
    _fields_ = (
        ("field", c_uint),
        ("scope", c_uint),
        ("timestamp", c_longlong),
        ("latency_usec", c_longlong),
        ("value_type", c_uint),
        ("status", c_int),
        ("value", _Value),
    )


class Gpu:
    """The one GPU of this process, by its UUID where the environment has it; for a MIG instance the GPU that it is of.

    Raises NvmlError.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise NvmlError(f"{LIBRARY} is not in the tenant's container") from None
        status = self._library.nvmlInit_v2()
        if status:
            raise NvmlError(f"NVML does not start in the tenant's container: {self._words(status)}")
        self._handle = self._whole(self._named(environment) or self._only_one())

    def _words(self, status: int) -> str:
        self._library.nvmlErrorString.restype = c_char_p
        said: bytes = self._library.nvmlErrorString(status)
        return said.decode()

    def _named(self, environment: Mapping[str, str]) -> c_void_p | None:
        name = environment.get(DEVICES_VARIABLE, "").split(",")[0]
        handle = c_void_p()
        if name in NO_DEVICE or self._library.nvmlDeviceGetHandleByUUID(name.encode(), byref(handle)):
            return None
        return handle

    def _only_one(self) -> c_void_p:
        count, handle = c_uint(), c_void_p()
        status = self._library.nvmlDeviceGetCount_v2(byref(count))
        if status or count.value != 1:
            seen = self._words(status) if status else f"{count.value} GPUs, and nothing says which one is ours"
            raise NvmlError(f"NVML in the tenant's container shows {seen}")
        status = self._library.nvmlDeviceGetHandleByIndex_v2(0, byref(handle))
        if status:
            raise NvmlError(f"NVML in the tenant's container does not open the GPU: {self._words(status)}")
        return handle

    def _whole(self, handle: c_void_p) -> c_void_p:
        whole = c_void_p()
        # Refused for what is no MIG instance.
        return handle if self._call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle, byref(whole)) else whole

    def _call(self, name: str, *arguments: Any) -> int:
        """The library's status, 0 for success; older libraries lack newer functions."""
        try:
            return int(getattr(self._library, name)(*arguments))
        except AttributeError:
            return -1

    def _ask(self, answer: Any, name: str, *arguments: Any) -> Any:
        """The answer, filled in, or None where this GPU or driver does not tell."""
        return None if self._call(name, self._handle, *arguments, byref(answer)) else answer

    def _number(self, kind: type[Any], name: str, *arguments: Any) -> int | None:
        answer = self._ask(kind(), name, *arguments)
        return None if answer is None else int(answer.value)

    def uuid(self) -> str | None:
        """Of what this process has of the GPU: of its MIG instance, or of the GPU itself; None of several instances."""
        handle, mode, pending = self._handle, c_uint(), c_uint()
        if not self._call("nvmlDeviceGetMigMode", handle, byref(mode), byref(pending)) and mode.value:
            instances = self._instances()
            if len(instances) != 1:
                return None
            (handle,) = instances
        text = ctypes.create_string_buffer(UUID_LENGTH)
        status = self._call("nvmlDeviceGetUUID", handle, text, UUID_LENGTH)
        return None if status else text.value.decode()

    def _instances(self) -> list[c_void_p]:
        """The MIG instances that the process may see: in a container, those that it was given."""
        count, found = c_uint(), []
        self._call("nvmlDeviceGetMaxMigDeviceCount", self._handle, byref(count))
        for index in range(count.value):
            instance = c_void_p()
            if not self._call("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, index, byref(instance)):
                found.append(instance)
        return found

    def energy_joules(self) -> float | None:
        """What the GPU used since its driver was loaded."""
        energy_mj = self._number(c_ulonglong, "nvmlDeviceGetTotalEnergyConsumption")
        return None if energy_mj is None else energy_mj / 1e3

    def power_watts(self) -> float | None:
        """Power at this moment, or NVML's own mean where there is no such reading."""
        asked = _FieldValue(field=FIELD_POWER_INSTANT)
        if not self._call("nvmlDeviceGetFieldValues", self._handle, 1, byref(asked)) and asked.status == 0:
            return int(asked.value.as_uint) / 1e3
        power_mw = self._number(c_uint, "nvmlDeviceGetPowerUsage")
        return None if power_mw is None else power_mw / 1e3

    def clock_mhz(self, which: int) -> int | None:
        """CLOCK_SM or CLOCK_MEMORY."""
        return self._number(c_uint, "nvmlDeviceGetClockInfo", which)

    def temperature_celsius(self) -> int | None:
        """Of the GPU itself."""
        return self._number(c_uint, "nvmlDeviceGetTemperature", TEMPERATURE_GPU)

    def utilisation_percent(self) -> int | None:
        """Share of time in which any kernel ran."""
        rates = self._ask(_Utilisation(), "nvmlDeviceGetUtilizationRates")
        return None if rates is None else int(rates.gpu)

    def memory_used_bytes(self) -> int | None:
        """With what the driver reserves."""
        memory = self._ask(_Memory(), "nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)

    def reasons(self) -> int | None:
        """Why the clock is held back, as a mask; drivers before 535 know only the older name."""
        mask = self._number(c_ulonglong, "nvmlDeviceGetCurrentClocksEventReasons")
        return self._number(c_ulonglong, "nvmlDeviceGetCurrentClocksThrottleReasons") if mask is None else mask


def completed(given: View) -> View:
    """A pod's view with `device` and `is_mig` as NVML has them; as it is where NVML does not know the device."""
    try:
        uuid = Gpu({}).uuid()
    except NvmlError:
        return given
    if uuid is None:
        return given
    return {**given, "device": device_digest(uuid), "is_mig": uuid.startswith(MIG_PREFIX)}
