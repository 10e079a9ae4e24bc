"""Start-up of a tenant, from the command line to loaded workloads; each part is timed."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tenant
from tenant import contract, workloads
from tenant.parameters import ParameterError
from tenant.workload import Workload

if TYPE_CHECKING:
    from tenant.gpu import green_contexts

    # It imports numpy, which must be imported by the workload, because it counts towards the workload's import time.
    from tenant.record import Identity

DEVICE_FOLDER = Path("/dev")


def granted_view(
    environment: Mapping[str, str] = os.environ, devices: Path = DEVICE_FOLDER
) -> contract.DeviceView | None:
    """A tenant's view of its device in a pod, from environment and device files; None outside of pods.

    `device` is a digest as in `tenant.gpu.cuda`, None if the environment does not name exactly one device. It names
    none if devices come by CDI; CUDA (`tenant.gpu.cuda`) or NVML (`tenant.gpu.nvml`) fill that in.
    """
    if contract.GRANTED_VARIABLE not in environment:
        return None
    device = environment.get(contract.VISIBLE_DEVICES_VARIABLE, "")
    is_named = device not in contract.NO_DEVICE and "," not in device
    # The device files of MIG instances are in `nvidia-caps/`.
    files = [*devices.glob("nvidia[0-9]*"), *devices.glob("nvidia-caps/nvidia-cap[0-9]*")]
    view: contract.DeviceView = {
        "pid": os.getpid(),
        "device": contract.device_digest(device) if is_named else None,
        "sm_count": None,
        "memory_free_bytes": None,
        "memory_total_bytes": None,
        "over_limit_refused": None,
        "mps_pipe": environment.get(contract.MPS_PIPE_VARIABLE),
        "is_mig": None if device in contract.NO_DEVICE else device.startswith("MIG-"),
        "nodes": sorted(str(path.relative_to(devices)) for path in files),
    }
    if names := [name for name in environment.get(contract.SHOWN_VARIABLE, "").split(",") if name]:
        view["variables"] = {name: environment.get(name) for name in names}
    return view


def _open_device(device: str) -> contract.DeviceView | None:
    """Open the CUDA context, if any, and return the process's view of its device; None on a CPU outside of pods."""
    pod_view = granted_view()
    if device == "cuda":
        from tenant.gpu import cuda

        cuda.open_context()
        cuda_view = cuda.device_view()
        return cuda_view if pod_view is None else {**pod_view, **cuda_view}
    if pod_view is None:
        return None
    from tenant.gpu import nvml

    return nvml.complete_view(pod_view)


class Process:
    """The imports and the device of a process, and its tenants. Raises whatever the framework raises."""

    def __init__(self, each: Sequence[Namespace]) -> None:
        """Import the workloads and open the device; `each` has the arguments of each tenant."""
        self._each = each
        begun = time.monotonic()
        self._modules = [workloads.load_module(own.workload, own.device) for own in each]
        self._import_seconds = each[0].import_seconds + time.monotonic() - begun
        begun = time.monotonic()
        view = _open_device(each[0].device)
        self._context_seconds = 0.0 if view is None else time.monotonic() - begun
        self._parts = _parts(each)
        self._views = [view if part is None or view is None else part.view(view) for part in self._parts]

    def load(self, number: int) -> tuple[Workload, Identity]:
        """Create a tenant's workload, in the thread that runs it. Raises ParameterError, too."""
        from tenant.record import Identity

        own, part = self._each[number], self._parts[number]
        begun = time.monotonic()
        if part is not None:
            part.enter()
        workload = workloads.create(self._modules[number], own.params, own.device)
        load_seconds = time.monotonic() - begun
        if own.streams is not None and not workload.is_captured:
            raise ParameterError(
                f"{own.workload}: only a captured CUDA graph can run in streams of one process; set graph: true"
            )
        identity = Identity(
            index=own.index,
            name=own.name or own.workload,
            process_seconds=(tenant.FIRST_LINE_NS - own.spawned_ns) / 1e9,
            import_seconds=self._import_seconds,
            context_seconds=self._context_seconds,
            load_seconds=load_seconds,
            view=self._views[number],
            process_tenants=len(self._each),
        )
        return workload, identity


def _parts(each: Sequence[Namespace]) -> Sequence[green_contexts.Part | None]:
    """The part of the SMs of each tenant, None for all SMs."""
    if not any(own.sms for own in each):
        return [None] * len(each)
    from tenant.gpu import green_contexts

    return green_contexts.split([own.sms for own in each])
