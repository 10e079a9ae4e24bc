"""NVIDIA's DRA driver for GPUs (kubernetes-sigs/dra-driver-nvidia-gpu): classes, attributes, gates, configuration."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.claims_api import DraDevice
from sharebench.nodes.kubernetes.cluster.nvidia_stack import StackComponent, variables_of

DRIVER = "gpu.nvidia.com"
"""The driver in ResourceSlices, the domain of its attributes, and the DeviceClass of whole GPUs."""
MIG_CLASS = "mig.nvidia.com"
PARENT_ATTRIBUTE = f"{DRIVER}/parentUUID"
API_VERSION = "resource.nvidia.com/v1beta1"
DRIVER_PROGRAM = "gpu-kubelet-plugin"
DAEMON_PREFIX = "mps-control-daemon-"
GATES_VARIABLE = "FEATURE_GATES"
# What it sets in a container, which keeps NVIDIA's runtime from adding other GPUs.
CDI_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "void"}
# Before 0.5, what MPS does to the GPU's compute mode was undone only as a by-product of time-slicing settings.
KEEPS_COMPUTE_MODE_VERSIONS = re.compile(r"v?0\.[0-4]\b")
# Parts of messages about a device that is not ready yet: the kubelet tries again.
RETRIABLE_ERRORS = (
    "not yet ready",
    "already allocated to different claim",
    "context deadline exceeded",
    # While it starts an MPS daemon for one claim, it holds a lock that others wait for.
    "timeout acquiring lock",
)


@dataclass(frozen=True)
class InstalledDriver:
    """What is known of the driver that runs: version (`v0.4.1`), feature gates, and its namespace."""

    version: str
    gates: Mapping[str, bool]
    namespace: str


def feature_gates(container: Json) -> dict[str, bool]:
    """The feature gates that the driver's container is given, such as `A=true,B=false`."""
    pairs = (pair.partition("=") for pair in variables_of(container).get(GATES_VARIABLE, "").split(",") if "=" in pair)
    return {name.strip(): value.strip().lower() == "true" for name, _, value in pairs}


def find_driver(daemon_sets: Iterable[Json]) -> InstalledDriver | None:
    """By the program that a container starts, as container names differ; None where none is seen."""
    for daemon_set in daemon_sets:
        for container in daemon_set["spec"]["template"]["spec"]["containers"]:
            words = [*(container.get("command") or ()), *(container.get("args") or ())]
            if any(DRIVER_PROGRAM in word for word in words):
                part = StackComponent(daemon_set, container["name"])
                return InstalledDriver(part.version, feature_gates(container), part.namespace)
    return None


def driver_version(device: DraDevice) -> str | None:
    """The GPU driver's version as NVIDIA writes it, `580.159.04`: a slice has it as semver, without leading zeros."""
    if (found := device.attributes.get("driverVersion")) is None:
        return None
    major, *rest = found.split(".")
    return ".".join([major, *(part.zfill(2) for part in rest)])


def is_whole_gpu(device: DraDevice) -> bool:
    return device.attributes.get("type") == "gpu"


def mig_profile(device: DraDevice) -> str | None:
    """Such as `1g.18gb`; None for anything but a MIG instance."""
    return device.attributes.get("profile")


def parent_uuid(device: DraDevice) -> str | None:
    """UUID of an instance's GPU; None for anything else."""
    return device.attributes.get("parentUUID")


def device_uuid(device: DraDevice) -> str | None:
    """The id by which CUDA knows the device; None for an instance that is yet to be made."""
    return device.attributes.get("uuid")


def device_files(device: DraDevice) -> list[str]:
    """Names of the files of a whole GPU; empty where the slice does not list them."""
    minor = re.match(r"gpu-(\d+)", device.name)
    return [f"nvidia{minor[1]}"] if minor else []


def selectors(part: Sequence[DraDevice]) -> list[str]:
    """CEL expressions, all true for these very GPUs alone, or for the instances of one's profile on its GPU."""
    device, *others = part
    if others:
        return [f"device.attributes['{DRIVER}'].uuid in {[each.attributes['uuid'] for each in part]}"]
    names = ("uuid",) if is_whole_gpu(device) else ("profile", "parentUUID")
    return [f"device.attributes['{DRIVER}'].{name} == '{device.attributes[name]}'" for name in names]


def _gate_problem(name: str, build: InstalledDriver) -> str | None:
    if build.gates.get(name):
        return None
    return f"the DRA driver's gate {name} is off; set featureGates.{name}=true in its Helm values (0.2 or newer)"


def unsupported(strategy: Strategy, build: InstalledDriver | None) -> str | None:
    """Why the driver, as it is set up, cannot do the strategy; None if it can, or where the set-up is unknown."""
    if build is None:
        return None
    if strategy.interval is not None:
        return _gate_problem("TimeSlicingSettings", build)
    if strategy.mechanisms[-1] != "mps":
        return None
    if build.gates.get("DynamicMIG"):
        return "the DRA driver has no MPS with its gate DynamicMIG; set featureGates.DynamicMIG=false"
    if (why := _gate_problem("MPSSupport", build)) is not None:
        return why
    if KEEPS_COMPUTE_MODE_VERSIONS.match(build.version) and not build.gates.get("TimeSlicingSettings"):
        return (
            f"the DRA driver {build.version} leaves the GPU in EXCLUSIVE_PROCESS after MPS; "
            "set featureGates.TimeSlicingSettings=true too, or use 0.5 or newer"
        )
    return None


def sharing_config(strategy: Strategy, part: Sequence[DraDevice]) -> Json | None:
    """GpuConfig or MigDeviceConfig of a request for these devices, or some like them; None to leave it to the driver.

    The limits of `strategy` are those of one tenant. Those that tenants do not have alike are in their environment.
    """
    if strategy.interval is not None:
        sharing: Json = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": strategy.interval.capitalize()}}
    elif strategy.mechanisms[-1] == "mps":
        sharing = {"strategy": "MPS", "mpsConfig": _mps_config(strategy, part)}
    else:
        return None
    kind = "GpuConfig" if is_whole_gpu(part[0]) else "MigDeviceConfig"
    return {"apiVersion": API_VERSION, "kind": kind, "sharing": sharing}


def _mps_config(strategy: Strategy, part: Sequence[DraDevice]) -> Json:
    limits, device = strategy.shared_limits(1), part[0]
    config: Json = {}
    if limits.thread_percent is not None:
        config["defaultActiveThreadPercentage"] = int(limits.thread_percent)
    if (limit_bytes := limits.memory_bytes(device.capacity_bytes["memory"])) is not None:
        quantity = f"{limit_bytes >> 20}Mi"
        if is_whole_gpu(device):
            config["defaultPerDevicePinnedMemoryLimit"] = {each.attributes["uuid"]: quantity for each in part}
        else:
            config["defaultPinnedDeviceMemoryLimit"] = quantity
    return config
