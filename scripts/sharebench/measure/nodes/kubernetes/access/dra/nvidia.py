"""NVIDIA's DRA driver for GPUs (kubernetes-sigs/dra-driver-nvidia-gpu): classes, attributes, feature gates, configs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.claims_api import DraDevice
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import GPU_CLUSTER_KIND, StackComponent, variables_of
from sharebench.model.strategy import Strategy

DRIVER = "gpu.nvidia.com"
"""The driver in ResourceSlices, the domain of its attributes, and the DeviceClass of whole GPUs."""
MIG_CLASS = "mig.nvidia.com"
PARENT_ATTRIBUTE = f"{DRIVER}/parentUUID"
API_VERSION = "resource.nvidia.com/v1beta1"
DRIVER_PROGRAM = "gpu-kubelet-plugin"
DAEMON_PREFIX = "mps-control-daemon-"
GATES_VARIABLE = "FEATURE_GATES"
# The driver sets this in a container to keep NVIDIA's runtime from adding other GPUs.
CDI_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "void"}
# Before 0.5, the compute mode that MPS sets was only reset as a side effect of time-slicing settings.
KEEPS_COMPUTE_MODE_VERSIONS = re.compile(r"v?0\.[0-4]\b")
# Parts of messages about a device that is not ready yet, after which the kubelet tries again.
RETRIABLE_ERRORS = (
    "not yet ready",
    "already allocated to different claim",
    "context deadline exceeded",
    # While the driver starts an MPS daemon for one claim, it holds a lock that other claims wait for.
    "timeout acquiring lock",
)


@dataclass(frozen=True)
class InstalledDriver:
    """The DRA driver that runs: its version (`v0.4.1`), feature gates and namespace."""

    version: str
    gates: Mapping[str, bool]
    namespace: str
    gpu_cluster: str | None = None
    """Name of the GPUCluster by which the GPU operator manages it; None if its own chart installed it."""

    @property
    def manager(self) -> str:
        return f"GPUCluster {self.gpu_cluster}" if self.gpu_cluster else "standalone"

    def set_gate(self, name: str, value: bool) -> str:
        """What to do for a gate to have this value."""
        word = str(value).lower()
        if self.gpu_cluster is None:
            return f"set featureGates.{name}={word} in its Helm values"
        return f"set spec.draDriver.featureGates.{name}: {word} in GPUCluster {self.gpu_cluster}"


def feature_gates(container: Json) -> dict[str, bool]:
    """The feature gates in the environment of the driver's container, such as `A=true,B=false`."""
    pairs = (pair.partition("=") for pair in variables_of(container).get(GATES_VARIABLE, "").split(",") if "=" in pair)
    return {name.strip(): value.strip().lower() == "true" for name, _, value in pairs}


def find_driver(daemon_sets: Iterable[Json]) -> InstalledDriver | None:
    """Find the driver by the program that a container starts, since container names differ; None without one."""
    for daemon_set in daemon_sets:
        for container in daemon_set["spec"]["template"]["spec"]["containers"]:
            words = [*(container.get("command") or ()), *(container.get("args") or ())]
            if any(DRIVER_PROGRAM in word for word in words):
                component = StackComponent(daemon_set, container["name"])
                owner = component.owner(GPU_CLUSTER_KIND)
                return InstalledDriver(component.version, feature_gates(container), component.namespace, owner)
    return None


def driver_version(device: DraDevice) -> str | None:
    """The GPU driver's version as NVIDIA writes it, `580.159.04`. In slices it is semver, without leading zeros."""
    if (version := device.attributes.get("driverVersion")) is None:
        return None
    major, *rest = version.split(".")
    return ".".join([major, *(part.zfill(2) for part in rest)])


def is_whole_gpu(device: DraDevice) -> bool:
    return device.attributes.get("type") == "gpu"


def mig_profile(device: DraDevice) -> str | None:
    """The profile of a MIG instance, such as `1g.18gb`; None for other devices."""
    return device.attributes.get("profile")


def parent_uuid(device: DraDevice) -> str | None:
    """UUID of the GPU of a MIG instance; None for other devices."""
    return device.attributes.get("parentUUID")


def device_uuid(device: DraDevice) -> str | None:
    """The device's UUID in CUDA; None for a MIG instance that is not created yet."""
    return device.attributes.get("uuid")


def device_files(device: DraDevice) -> list[str]:
    """Names of the device files of a whole GPU; empty for other devices."""
    minor = re.match(r"gpu-(\d+)", device.name)
    return [f"nvidia{minor[1]}"] if minor else []


def selectors(group: Sequence[DraDevice]) -> list[str]:
    """CEL expressions that select exactly these GPUs, or all instances of a profile on the same GPU."""
    device, *others = group
    if others:
        return [f"device.attributes['{DRIVER}'].uuid in {[each.attributes['uuid'] for each in group]}"]
    names = ("uuid",) if is_whole_gpu(device) else ("profile", "parentUUID")
    return [f"device.attributes['{DRIVER}'].{name} == '{device.attributes[name]}'" for name in names]


def _gate_problem(name: str, driver: InstalledDriver) -> str | None:
    if driver.gates.get(name):
        return None
    return f"the DRA driver's gate {name} is off; {driver.set_gate(name, True)} (0.2 or newer)"


def unsupported(strategy: Strategy, driver: InstalledDriver | None) -> str | None:
    """Why the driver with its present settings does not support the strategy; None if it does or is unknown."""
    if driver is None:
        return None
    if strategy.interval is not None:
        return _gate_problem("TimeSlicingSettings", driver)
    if strategy.mechanism[-1] != "mps":
        return None
    if driver.gates.get("DynamicMIG"):
        return f"the DRA driver has no MPS with its gate DynamicMIG; {driver.set_gate('DynamicMIG', False)}"
    if (problem := _gate_problem("MPSSupport", driver)) is not None:
        return problem
    if KEEPS_COMPUTE_MODE_VERSIONS.match(driver.version) and not driver.gates.get("TimeSlicingSettings"):
        return (
            f"the DRA driver {driver.version} leaves the GPU in EXCLUSIVE_PROCESS after MPS; "
            f"{driver.set_gate('TimeSlicingSettings', True)}, or use 0.5 or newer"
        )
    return None


def is_shared_by_claims(strategy: Strategy) -> bool:
    """Whether each tenant has a claim of its own for the one GPU that all share."""
    return strategy.claim_per == "tenant" and strategy.mechanism == ("time-slicing",)


def refused_shares(strategy: Strategy, devices: Sequence[DraDevice], replicas: int) -> str | None:
    """Why the devices, which take one claim each or from driver 0.5 on several, do not serve the strategy, or None."""
    if is_shared_by_claims(strategy):
        gpu = next(filter(is_whole_gpu, devices), None)
        if gpu is None:
            return None
        if not gpu.takes_several_claims:
            return (
                "the GPU takes one claim at a time; have the DRA driver (0.5 or newer) offer consumable shares: "
                "gate ConsumableShares, and CONSUMABLE_SHARES of its gpus container unlimited, memory or a number "
                "(before Kubernetes 1.36 also the cluster's gate DRAConsumableCapacity)"
            )
        if (shares := gpu.capacity_bytes.get("shares", replicas)) < replicas:
            return (
                f"the DRA driver gives the GPU to {shares} claims, and {replicas} tenants have one each; take fewer "
                f"replicas, or set CONSUMABLE_SHARES of its gpus container to {replicas} or unlimited"
            )
        return None
    if not any(device.takes_several_claims for device in devices):
        return None
    remedy = "set CONSUMABLE_SHARES of its gpus container to disabled"
    if strategy.mechanism[-1] == "mps":
        return f"the DRA driver has no MPS while it offers consumable shares; {remedy}"
    if strategy.claim_per == "tenant":
        return f"the DRA driver offers consumable shares, so two claims may get the same GPU; {remedy}"
    return None


def memory_part(group: Sequence[DraDevice], parts: int) -> str:
    """An even part of the memory of the smallest of these GPUs, in whole MiB, which is the driver's step.

    Without a request, a claim would take all of it where the driver counts memory.
    """
    return f"{min(device.capacity_bytes['memory'] for device in group) // parts >> 20}Mi"


def sharing_config(strategy: Strategy, group: Sequence[DraDevice]) -> Json | None:
    """GpuConfig or MigDeviceConfig of a request for devices like these; None for the driver's default.

    The limits of `strategy` are those of one tenant. Limits that differ between tenants are in their environment.
    """
    if strategy.interval is not None:
        sharing: Json = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": strategy.interval.capitalize()}}
    elif strategy.mechanism[-1] == "mps":
        sharing = {"strategy": "MPS", "mpsConfig": _mps_config(strategy, group)}
    else:
        return None
    kind = "GpuConfig" if is_whole_gpu(group[0]) else "MigDeviceConfig"
    return {"apiVersion": API_VERSION, "kind": kind, "sharing": sharing}


def _mps_config(strategy: Strategy, group: Sequence[DraDevice]) -> Json:
    limits, device = strategy.shared_limits(1), group[0]
    config: Json = {}
    if limits.thread_percent is not None:
        config["defaultActiveThreadPercentage"] = int(limits.thread_percent)
    if (limit_bytes := limits.memory_bytes(device.capacity_bytes["memory"])) is not None:
        quantity = f"{limit_bytes >> 20}Mi"
        if is_whole_gpu(device):
            config["defaultPerDevicePinnedMemoryLimit"] = {each.attributes["uuid"]: quantity for each in group}
        else:
            config["defaultPinnedDeviceMemoryLimit"] = quantity
    return config
