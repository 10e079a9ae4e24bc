"""The GPU of a pod, by the variables and device files that a device plugin or a DRA driver puts into it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tenant.contract import GRANTED_VARIABLE, PIPE_VARIABLE, SHOWN_VARIABLE, View, device_digest

DEVICES_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
# How the variable says that devices come by another way.
NO_DEVICE = ("", "all", "none", "void")
DEVICE_FOLDER = Path("/dev")


def _nodes() -> list[str]:
    """NVIDIA's device files, those of MIG instances (`nvidia-caps/…`) too, sorted."""
    found = [*DEVICE_FOLDER.glob("nvidia[0-9]*"), *DEVICE_FOLDER.glob("nvidia-caps/nvidia-cap[0-9]*")]
    return sorted(str(path.relative_to(DEVICE_FOLDER)) for path in found)


def view(environment: Mapping[str, str] = os.environ) -> View | None:
    """The record's `view` of a tenant in a pod of ours as its environment has it; None elsewhere.

    A device is known by the digest of its id, as in `tenant.gpu.cuda`; None where the variable names no single one.
    Where devices come by CDI it names none: CUDA (`tenant.gpu.cuda`) or NVML (`tenant.gpu.nvml`) know better.
    """
    if GRANTED_VARIABLE not in environment:
        return None
    device = environment.get(DEVICES_VARIABLE, "")
    is_named = device not in NO_DEVICE and "," not in device
    found: View = {
        "pid": os.getpid(),
        "device": device_digest(device) if is_named else None,
        "sm_count": None,
        "memory_free_bytes": None,
        "memory_total_bytes": None,
        "over_limit_refused": None,
        "mps_pipe": environment.get(PIPE_VARIABLE),
        "is_mig": None if device in NO_DEVICE else device.startswith("MIG-"),
        "nodes": _nodes(),
    }
    if shown := [name for name in environment.get(SHOWN_VARIABLE, "").split(",") if name]:
        found["variables"] = {name: environment.get(name) for name in shown}
    return found
