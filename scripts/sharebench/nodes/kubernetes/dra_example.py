"""The example driver (kubernetes-sigs/dra-example-driver): whole GPUs that do not exist, given as variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharebench.nodes.kubernetes.dra_api import Device
from sharebench.nodes.kubernetes.dra_driver import Build, Driver, Json
from sharebench.strategies import Strategy

PROGRAM = "dra-example-kubeletplugin"


class Example(Driver):
    """`gpu.example.com`."""

    name = "gpu.example.com"
    whole_class = "gpu.example.com"
    part_class = None
    product = "model"
    parent_attribute = "gpu.example.com/uuid"

    def is_plugin(self, container: Mapping[str, Any]) -> bool:
        """By its program."""
        return PROGRAM in [*(container.get("command") or ()), *(container.get("args") or ())]

    def is_whole(self, device: Device) -> bool:
        """Its partitions have a number."""
        return "partition" not in device.attributes

    def by_id(self, device: Device) -> list[str]:
        """By UUID."""
        return [f"device.attributes['{self.name}'].uuid == '{device.attributes['uuid']}'"]

    def by_profile(self, device: Device) -> list[str]:
        """It has no profiles."""
        raise NotImplementedError

    def lacks(self, strategy: Strategy, build: Build | None) -> str | None:
        """All but time-slicing."""
        if strategy.mechanisms[-1] in ("exclusive", "time-slicing"):
            return None
        return f"the DRA driver {self.name} has no {strategy.mechanisms[-1]}"

    def parameters(self, strategy: Strategy, device: Device) -> Json | None:
        """GpuConfig with the interval."""
        if strategy.interval is None:
            return None
        interval = {"interval": strategy.interval.capitalize()}
        sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": interval}
        return {"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig", "sharing": sharing}

    def identity(self, device: Device) -> str | None:
        """Its UUID, which no CUDA knows."""
        return str(device.attributes["uuid"])

    def shows(self, device: Device, strategy: Strategy) -> Json:
        """The driver's variables, which say what it was asked."""
        mark = f"GPU_DEVICE_{device.name.removeprefix('gpu-').upper().replace('-', '_')}"
        interval = (strategy.interval or "default").capitalize()
        variables = {mark: device.name, f"{mark}_SHARING_STRATEGY": "TimeSlicing"}
        return {"nodes": [], "variables": variables | {f"{mark}_TIMESLICE_INTERVAL": interval}, "mps": False}

    def daemons(self, deployments: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """It makes none."""
        return []
