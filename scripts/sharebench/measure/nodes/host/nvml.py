"""A GPU of this host through NVML: facts, processes, MIG instances. Nothing here changes the GPU."""

import contextlib
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pynvml

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.contract import NodeError
from tenant.contract import device_digest
from tenant.gpu.nvml import try_read

COMPUTE_MODES = {0: "DEFAULT", 1: "EXCLUSIVE_THREAD", 2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}
# CUDA cores of one SM by compute capability (CUDA C++ Programming Guide, "Compute Capabilities"), 128 where not listed.
CORES_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
# SMs of the smallest green context, from a major compute capability on (CUDA driver API, "Green Contexts").
SMALLEST_PART_SMS = ((9, 8), (8, 4), (7, 2))
# Bits in a word of NVML's CPU masks.
WORD_BITS = 64


@dataclass(frozen=True)
class Instance:
    """A MIG device: a GPU instance with one compute instance that fills it."""

    uuid: str
    profile: str
    sm_count: int
    memory_bytes: int


@dataclass(frozen=True)
class Occupant:
    """A process on the GPU; `kind` is compute, mps (client of an MPS server) or graphics."""

    pid: int
    kind: str
    memory_bytes: int | None


def _instance(mig: Any) -> Instance:
    attributes = pynvml.nvmlDeviceGetAttributes_v2(mig)
    # The profile, such as 1g.18gb, is the end of the device's name.
    named = re.search(r"\bMIG (\S+)$", try_read(lambda: str(pynvml.nvmlDeviceGetName(mig))) or "")
    by_size = f"{attributes.gpuInstanceSliceCount}g.{round(attributes.memorySizeMB / 1024)}gb"
    return Instance(
        uuid=str(pynvml.nvmlDeviceGetUUID(mig)),
        profile=named[1] if named else by_size,
        sm_count=int(attributes.multiprocessorCount),
        memory_bytes=int(attributes.memorySizeMB) * MEBIBYTE,
    )


def _init_nvml() -> None:
    """Load NVML. Raises NodeError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NodeError(f"NVML cannot be used ({error}); is the NVIDIA driver loaded? See `nvidia-smi`") from None


def list_gpus() -> list["Gpu"]:
    """The GPUs of this host that answer, by index. Raises NodeError for none."""
    _init_nvml()
    gpus = []
    for index in range(try_read(pynvml.nvmlDeviceGetCount) or 0):
        # A GPU that has fallen off the bus keeps its index until the driver is loaded again.
        with contextlib.suppress(NodeError):
            gpus.append(Gpu(str(index)))
    if not gpus:
        raise NodeError("nvidia.gpu: this host has no GPU that answers, see `nvidia-smi -L`")
    return gpus


def time_slice_policy(gpu: str) -> str | None:
    """The time-slice setting as nvidia-smi names it, since NVML does not report it; None where unknown."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "compute-policy", "-l", "-i", gpu], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"Timeslice\s+(\w+)", answer.stdout)
    return match.group(1) if answer.returncode == 0 and match else None


class Gpu:
    """The GPU that `which` names: an index as nvidia-smi counts, or a UUID.

    Raises NodeError when there is none, or no driver.
    """

    def __init__(self, which: str) -> None:
        _init_nvml()
        try:
            if which.isdecimal():
                self.handle = pynvml.nvmlDeviceGetHandleByIndex(int(which))
            else:
                self.handle = pynvml.nvmlDeviceGetHandleByUUID(which)
            self.uuid = str(pynvml.nvmlDeviceGetUUID(self.handle))
            self.product = str(pynvml.nvmlDeviceGetName(self.handle))
        except pynvml.NVMLError:
            count = pynvml.nvmlDeviceGetCount()
            available = f"this host has {count}, counted from 0" if count else "this host has none"
            raise NodeError(f"nvidia.gpu: there is no GPU {which}; {available}, see `nvidia-smi -L`") from None

    @property
    def digest(self) -> str:
        return device_digest(self.uuid)

    @property
    def index(self) -> int:
        """NVML's, from 0."""
        return int(pynvml.nvmlDeviceGetIndex(self.handle))

    def local_cores(self) -> list[int] | None:
        """The host's CPUs on the GPU's side (its NUMA node); None where not known."""
        words = try_read(pynvml.nvmlDeviceGetCpuAffinity, self.handle, -(-(os.cpu_count() or 1) // WORD_BITS))
        if words is None:
            return None
        bits = [word >> bit & 1 for word in words for bit in range(WORD_BITS)]
        return [core for core, is_set in enumerate(bits) if is_set] or None

    @cached_property
    def sm_count(self) -> int | None:
        """Streaming multiprocessors of the whole GPU: its CUDA cores over those of one SM; None where not known."""
        cores = try_read(lambda: int(pynvml.nvmlDeviceGetNumGpuCores(self.handle)))
        capability = try_read(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(self.handle))
        return None if cores is None or capability is None else cores // CORES_PER_SM.get(tuple(capability), 128)

    @property
    def smallest_part_sms(self) -> int:
        """SMs of the smallest green context, of which all are multiples on the newest GPUs."""
        capability = try_read(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(self.handle))
        major = 0 if capability is None else capability[0]
        return next((least for since, least in SMALLEST_PART_SMS if major >= since), 1)

    @cached_property
    def memory_bytes(self) -> int | None:
        """Memory of the whole GPU; None where it is the host's (GB10), or in MIG mode for users other than root."""
        return try_read(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).total))

    def compute_mode(self) -> str:
        """DEFAULT, EXCLUSIVE_PROCESS or PROHIBITED; DEFAULT where NVML reports none."""
        mode = try_read(lambda: int(pynvml.nvmlDeviceGetComputeMode(self.handle)))
        return "DEFAULT" if mode is None else COMPUTE_MODES[mode]

    def mig_is_on(self) -> bool | None:
        """Whether MIG mode is on; None on a GPU that has no MIG."""
        mode = try_read(lambda: pynvml.nvmlDeviceGetMigMode(self.handle))
        return None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE

    def _mig_handles(self) -> list[Any]:
        count = try_read(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(self.handle))) or 0
        handles = [
            try_read(partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self.handle, index)) for index in range(count)
        ]
        return [handle for handle in handles if handle is not None]

    def instances(self) -> list[Instance]:
        """The MIG devices that exist now, in NVML's order."""
        return list(map(_instance, self._mig_handles()))

    def occupants(self) -> list[Occupant]:
        """Every process on the GPU.

        On a host with eight GPUs NVML (580.159) sometimes lists MPS clients of other GPUs. A client on this GPU is
        among its compute processes too.
        """
        # In MIG mode only root may query the whole GPU, but each instance answers for itself.
        handles = [self.handle, *(self._mig_handles() if self.mig_is_on() else [])]

        def answers(ask: Callable[[Any], Any]) -> dict[int, int | None]:
            return {each.pid: each.usedGpuMemory for handle in handles for each in try_read(partial(ask, handle)) or []}

        clients = answers(pynvml.nvmlDeviceGetMPSComputeRunningProcesses)
        computing = answers(pynvml.nvmlDeviceGetComputeRunningProcesses)
        drawing = answers(pynvml.nvmlDeviceGetGraphicsRunningProcesses)
        kinds = {pid: "graphics" for pid in drawing} | {
            pid: "mps" if pid in clients else "compute" for pid in computing
        }
        return [Occupant(pid, kind, (drawing | computing)[pid]) for pid, kind in kinds.items()]

    def utilisation_percent(self, since_seconds: float) -> dict[int, float]:
        """Mean use of the SMs by each process since an epoch time, as NVML samples it; empty where it does not."""
        samples = try_read(pynvml.nvmlDeviceGetProcessUtilization, self.handle, int(since_seconds * 1e6)) or []
        used: dict[int, list[int]] = {}
        for sample in samples:
            used.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        return {pid: sum(values) / len(values) for pid, values in used.items()}

    def facts(self) -> dict[str, Any]:
        """Driver, clocks, limits, modes and time-slice, for the `details` of the node's facts; None where unknown."""
        handle = self.handle
        cuda = try_read(pynvml.nvmlSystemGetCudaDriverVersion)
        capability = try_read(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
        ecc = try_read(lambda: pynvml.nvmlDeviceGetEccMode(handle))
        power_limit_mw = try_read(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        mig = self.mig_is_on()
        return {
            "index": try_read(lambda: self.index),
            "driver": try_read(lambda: str(pynvml.nvmlSystemGetDriverVersion())),
            "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
            "compute_mode": self.compute_mode(),
            "mig_mode": {None: "none", True: "on", False: "off"}[mig],
            "time_slice": time_slice_policy(self.uuid),
            "mig_instances": [instance.profile for instance in self.instances()] if mig else [],
            "sm_clock_max_mhz": try_read(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "memory_clock_max_mhz": try_read(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            "power_limit_watts": None if power_limit_mw is None else power_limit_mw / 1000,
            "ecc": None if ecc is None else bool(ecc[0]),
        }
