"""Start-up of a tenant, from the command line to loaded workloads; each part is timed."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tenant import FIRST_LINE_NS, contract, workloads
from tenant.parameters import ParameterError
from tenant.workload import Workload

if TYPE_CHECKING:
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


def load(arguments: Namespace) -> list[tuple[Workload, Identity]]:
    """Import the workload, open the device, and create one workload per tenant, one after another.

    Raises ParameterError, and whatever the framework raises.
    """
    begun = time.monotonic()
    module = workloads.load_module(arguments.workload, arguments.device)
    import_seconds = time.monotonic() - begun
    from tenant.record import Identity

    begun = time.monotonic()
    view = _open_device(arguments.device)
    context_seconds = 0.0 if view is None else time.monotonic() - begun
    tenants = []
    for number in range(arguments.streams or 1):
        begun = time.monotonic()
        workload = workloads.create(module, arguments.params, arguments.device)
        load_seconds = time.monotonic() - begun
        if arguments.streams and not workload.is_captured:
            raise ParameterError(
                f"{arguments.workload}: only a captured CUDA graph can run in streams of one process; set graph: true"
            )
        identity = Identity(
            index=arguments.index + number,
            name=arguments.name or arguments.workload,
            process_seconds=(FIRST_LINE_NS - arguments.spawned_ns) / 1e9,
            import_seconds=import_seconds,
            context_seconds=context_seconds,
            load_seconds=load_seconds,
            view=view,
            process_tenants=arguments.streams or 1,
        )
        tenants.append((workload, identity))
    return tenants
