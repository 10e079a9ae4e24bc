"""NVIDIA's DRA driver for GPUs (kubernetes-sigs/dra-driver-nvidia-gpu): classes, attributes, gates, configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.access.dra.driver import Build, Driver
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.claims_api import Device
from sharebench.nodes.kubernetes.cluster.versions import version_of

API_VERSION = "resource.nvidia.com/v1beta1"
PROGRAM = "gpu-kubelet-plugin"
DAEMON_PREFIX = "mps-control-daemon-"
# The first version with each gate, in the two ways of counting that the driver has had (its featuregates.go).
GATE_SINCE = {
    "TimeSlicingSettings": ((0, 2), (25, 8)),
    "MPSSupport": ((0, 2), (25, 8)),
    "DynamicMIG": ((0, 3), (25, 12)),
}
CALENDAR_MAJOR = 24
# Before it, what MPS does to the GPU's compute mode was undone only as a by-product of time-slicing settings.
COMPUTE_MODE_RESET_SINCE = (0, 5)


def _gate(name: str, build: Build) -> str | None:
    """Why the driver does not have the gate on."""
    if build.gates.get(name):
        return None
    version = version_of(build.version)
    first = GATE_SINCE[name][1 if version and version[0] >= CALENDAR_MAJOR else 0]
    if version and version < first:
        newer = ".".join(map(str, first))
        return f"it needs the DRA driver's gate {name}, which {build.version} has not; use {newer} or newer"
    return f"the DRA driver's gate {name} is off; set featureGates.{name}=true in its Helm values"


class Nvidia(Driver):
    """`gpu.nvidia.com`."""

    name = "gpu.nvidia.com"
    whole_class = "gpu.nvidia.com"
    part_class = "mig.nvidia.com"
    product = "productName"
    retriable_errors = (
        "not yet ready",
        "already allocated to different claim",
        "context deadline exceeded",
        # While it starts an MPS daemon for one claim, it holds a lock that others wait for.
        "timeout acquiring lock",
    )
    fatal_errors = (
        "feature gate is not enabled",
        "unknown GPU sharing strategy",
        "strict decoding error",
        "not yet supported",
    )
    parent_attribute = "gpu.nvidia.com/parentUUID"

    def is_plugin(self, container: Json) -> bool:
        """By the program that it starts: container names differ."""
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        return any(PROGRAM in word for word in words)

    def is_whole(self, device: Device) -> bool:
        """By its type."""
        return bool(device.attributes.get("type") == "gpu")

    def profile(self, device: Device) -> str | None:
        """Such as `1g.18gb`."""
        found: str | None = device.attributes.get("profile")
        return found

    def parent(self, device: Device) -> str | None:
        """UUID of the instance's GPU."""
        found: str | None = device.attributes.get("parentUUID")
        return found

    def by_id(self, device: Device) -> list[str]:
        """By UUID."""
        return [self._equal("uuid", device)]

    def by_profile(self, device: Device) -> list[str]:
        """By the profile's whole name, and the GPU's UUID."""
        return [self._equal("profile", device), self._equal("parentUUID", device)]

    def _equal(self, attribute: str, device: Device) -> str:
        return f"device.attributes['{self.name}'].{attribute} == '{device.attributes[attribute]}'"

    def lacks(self, strategy: Strategy, build: Build | None) -> str | None:
        """Gates that are off or exclude each other."""
        if build is None:
            return None
        if strategy.interval is not None:
            return _gate("TimeSlicingSettings", build)
        if strategy.mechanisms[-1] != "mps":
            return None
        if build.gates.get("DynamicMIG"):
            return "the DRA driver has no MPS beside its gate DynamicMIG; set featureGates.DynamicMIG=false"
        version = version_of(build.version)
        if (why := _gate("MPSSupport", build)) is not None:
            return why
        if version and version < COMPUTE_MODE_RESET_SINCE and not build.gates.get("TimeSlicingSettings"):
            return (
                f"the DRA driver {build.version} leaves the GPU in EXCLUSIVE_PROCESS after MPS; "
                "set featureGates.TimeSlicingSettings=true too, or use 0.5 or newer"
            )
        return None

    def parameters(self, strategy: Strategy, device: Device) -> Json | None:
        """GpuConfig or MigDeviceConfig; memory limits of a whole GPU are by its UUID."""
        inner = strategy.mechanisms[-1]
        if strategy.interval is not None:
            sharing: Json = {
                "strategy": "TimeSlicing",
                "timeSlicingConfig": {"interval": strategy.interval.capitalize()},
            }
        elif inner == "mps":
            sharing = {"strategy": "MPS", "mpsConfig": self._mps(strategy, device)}
        else:
            return None
        kind = "GpuConfig" if self.is_whole(device) else "MigDeviceConfig"
        return {"apiVersion": API_VERSION, "kind": kind, "sharing": sharing}

    def _mps(self, strategy: Strategy, device: Device) -> Json:
        limits = strategy.limits(1)
        config: Json = {}
        if limits["thread_percent"] is not None:
            config["defaultActiveThreadPercentage"] = int(limits["thread_percent"])
        if limits["memory_percent"] is not None:
            quantity = f"{int(device.capacity_bytes['memory'] * limits['memory_percent'] / 100) >> 20}Mi"
            if self.is_whole(device):
                config["defaultPerDevicePinnedMemoryLimit"] = {device.attributes["uuid"]: quantity}
            else:
                config["defaultPinnedDeviceMemoryLimit"] = quantity
        return config

    def identity(self, device: Device) -> str | None:
        """Its UUID; an instance that is yet to be made has none."""
        found: str | None = device.attributes.get("uuid")
        return found

    def shows(self, device: Device, strategy: Strategy) -> Json:
        """The GPU's device file, and the variable that keeps NVIDIA's runtime from adding others."""
        minor = re.match(r"gpu-(\d+)", device.name)
        return {
            "nodes": [f"nvidia{minor[1]}"] if minor else [],
            "variables": {"NVIDIA_VISIBLE_DEVICES": "void"},
            "mps": strategy.mechanisms[-1] == "mps",
        }

    def daemons(self, deployments: Sequence[Json]) -> list[Json]:
        """MPS control daemons: one for each configured group of a claim."""
        return [each for each in deployments if each["metadata"]["name"].startswith(DAEMON_PREFIX)]
