"""NVIDIA's stack in a cluster: the DaemonSets of the device plugin and its companions, and a node's GPU labels."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sharebench.measure.nodes.kubernetes.cluster.api import Json, config_map_path
from sharebench.model.strategy import MPS_CLIENTS

CONFIG_LABEL = "nvidia.com/device-plugin.config"
COUNT_LABEL = "nvidia.com/gpu.count"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
MPS_LABEL = "nvidia.com/mps.capable"
COMPUTE_LABELS = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
# Below this compute capability the plugin allows 16 clients of an MPS server (its cmd/mps-control-daemon/mps).
MANY_CLIENTS_COMPUTE_CAPABILITY = [7, 5]
GPU_RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-).*")
# Container names in the Helm chart and in the GPU operator, by which a component is found.
CONTAINERS = {
    "plugin": ("nvidia-device-plugin-ctr", "nvidia-device-plugin"),
    "discovery": ("gpu-feature-discovery-ctr", "gpu-feature-discovery"),
    "mps": ("mps-control-daemon-ctr",),
    "mig_manager": ("nvidia-mig-manager", "mig-manager"),
}
CONFIG_FOLDER_VARIABLE = "CONFIG_FILE_SRCDIR"
DEFAULT_VARIABLE = "DEFAULT_CONFIG"
FALLBACK_VARIABLE = "FALLBACK_STRATEGIES"
# Kinds of the GPU operator's objects, one of which owns what it installs.
POLICY_KIND, GPU_CLUSTER_KIND = "ClusterPolicy", "GPUCluster"


# GPU Feature Discovery before 0.7 wrote bytes; no GPU has 16 TiB.
MAX_MEMORY_MIB = 1 << 24


def labels_of(node: Json) -> Mapping[str, str]:
    return dict(node["metadata"].get("labels") or {})


def labeled_memory_mib(labels: Mapping[str, str]) -> int | None:
    """The memory that GPU Feature Discovery found, of the GPU or of an instance; None without the label."""
    value = labels.get(MEMORY_LABEL, "")
    if not value.isdecimal():
        return None
    return int(value) if int(value) <= MAX_MEMORY_MIB else int(value) >> 20


def parse_quantity(quantity: str) -> int:
    """A quantity of Kubernetes, such as 8, 1k or 40Gi, rounded down."""
    return int(quantity) if quantity.isdecimal() else int(exact_quantity(quantity))


def exact_quantity(quantity: str | float) -> Decimal:
    """A quantity of Kubernetes, such as 500m, or a number of YAML."""
    from kubernetes.utils import quantity as quantities  # the import takes half a second

    parse: Any = quantities.parse_quantity
    return Decimal(parse(quantity))


def allocatable(node: Json) -> dict[str, int]:
    """The node's allocatable GPU resources above 0, by name."""
    values = node.get("status", {}).get("allocatable", {})
    counts = {name: parse_quantity(value) for name, value in values.items() if GPU_RESOURCES.fullmatch(name)}
    return {name: count for name, count in counts.items() if count}


def max_mps_clients(labels: Mapping[str, str]) -> int:
    """How many MPS clients the plugin allows on the GPU; MPS_CLIENTS if its compute capability is unknown."""
    capability = [int(labels[name]) for name in COMPUTE_LABELS if name in labels]
    return 16 if capability and capability < MANY_CLIENTS_COMPUTE_CAPABILITY else MPS_CLIENTS


def variables_of(container: Json) -> dict[str, str]:
    """The values of a container's environment variables; "" for one with `valueFrom`."""
    return {variable["name"]: variable.get("value") or "" for variable in container.get("env") or []}


def is_tolerated(taint: Json, tolerations: Sequence[Json]) -> bool:
    """Whether pods with these tolerations may be scheduled to a node with the taint."""
    return taint["effect"] == "PreferNoSchedule" or any(
        each.get("key") in (None, taint["key"])
        and each.get("effect") in (None, taint["effect"])
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in tolerations
    )


@dataclass(frozen=True)
class StackComponent:
    """A DaemonSet of NVIDIA's stack, and the name of the container by which it was found."""

    daemon_set: Json
    container: str

    @property
    def name(self) -> str:
        return str(self.daemon_set["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.daemon_set["metadata"]["namespace"])

    @property
    def pod_spec(self) -> Json:
        return dict(self.daemon_set["spec"]["template"]["spec"])

    @property
    def own_container(self) -> Json:
        return dict(next(entry for entry in self.pod_spec["containers"] if entry["name"] == self.container))

    @property
    def version(self) -> str:
        """The version label, else the tag of the image."""
        labels = self.daemon_set["metadata"].get("labels") or {}
        tag = self.own_container["image"].split("@")[0].rpartition("/")[2].partition(":")[2]
        return str(labels.get("app.kubernetes.io/version") or tag or "unknown")

    def owner(self, kind: str) -> str | None:
        """Name of the operator's object by which it manages the component and undoes changes; None without one."""
        owners = self.daemon_set["metadata"].get("ownerReferences") or []
        return next((str(owner["name"]) for owner in owners if owner["kind"] == kind), None)

    def pod_of(self, pods: Iterable[Json]) -> Json | None:
        """The component's pod among these, by its owner, since the chart gives all its DaemonSets the same labels."""
        uid = self.daemon_set["metadata"]["uid"]
        owned = [pod for pod in pods if uid in [owner["uid"] for owner in pod["metadata"].get("ownerReferences") or []]]
        # There are two while a pod is being replaced.
        return min(owned, key=lambda pod: bool(pod["metadata"].get("deletionTimestamp")), default=None)

    def unready_reason(self, pods: Iterable[Json], own_container_only: bool = False) -> str | None:
        """Why the component is not up to date and ready among the node's pods; None if it is."""
        status, generation = self.daemon_set.get("status", {}), self.daemon_set["metadata"].get("generation", 0)
        if status.get("observedGeneration", 0) < generation:
            return f"{self.name}: its last change is not rolled out yet"
        pod = self.pod_of(pods)
        if pod is None:
            return f"{self.name} has no pod on the node"
        if pod["metadata"].get("deletionTimestamp"):
            return f"the pod of {self.name} is ending"
        for container in pod.get("status", {}).get("containerStatuses") or [{"name": self.container, "ready": False}]:
            if not container["ready"] and (container["name"] == self.container or not own_container_only):
                return f"{self.name}: {container['name']} is not ready{_reasons(container)}"
        return None


def _reasons(container: Json) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    reasons = ", ".join(filter(None, [waiting.get("reason"), ended.get("reason")]))
    return f" ({reasons})" if reasons else ""


def no_config_map_message(plugin: StackComponent) -> str:
    """The message for a device plugin without a ConfigMap to switch by, with the remedy."""
    if (policy := plugin.owner(POLICY_KIND)) is None:
        return (
            "the device plugin has no ConfigMap to switch by (its chart: config.map or config.name); reinstall it "
            "with config/cluster/plugin-values.yaml (docs/cluster/install.md, The device plugin)"
        )
    return (
        "the operator's device plugin has no ConfigMap to switch by; have the ClusterPolicy "
        f"{policy} name one (docs/cluster/install.md, ClusterPolicy)"
    )


@dataclass(frozen=True)
class PluginConfigMap:
    """The ConfigMap of the plugin's config-manager, and the key for nodes without a label ("" if none is set)."""

    namespace: str
    name: str
    default: str
    fallbacks: tuple[str, ...] = ()
    """How the config-manager finds a key for nodes without a label if no default is set: named, single, empty."""

    @property
    def path(self) -> str:
        return config_map_path(self.namespace, self.name)


@dataclass(frozen=True)
class InstalledStack:
    """The components of NVIDIA's stack in the cluster; None for each that is not installed."""

    plugin: StackComponent | None
    discovery: StackComponent | None
    mps: StackComponent | None
    mig_manager: StackComponent | None
    config_map: PluginConfigMap | None

    def intolerant(self, taint: Json) -> list[str]:
        """Names of the components whose new pods the taint keeps away."""
        parts = filter(None, (self.plugin, self.discovery, self.mps, self.mig_manager))
        return [each.name for each in parts if not is_tolerated(taint, each.pod_spec.get("tolerations") or [])]


def _find_component(daemon_sets: Sequence[Json], names: tuple[str, ...], pods: Sequence[Json]) -> StackComponent | None:
    components = [
        StackComponent(daemon_set, container["name"])
        for daemon_set in daemon_sets
        for container in daemon_set["spec"]["template"]["spec"]["containers"]
        if container["name"] in names
    ]
    # Of several, for example one per kind of node, take the one that runs on this node.
    return min(components, key=lambda component: component.pod_of(pods) is None, default=None)


def _find_config_map(plugin: StackComponent) -> PluginConfigMap | None:
    """The ConfigMap that is mounted at the folder which the config-manager's variable names."""
    for container in (*plugin.pod_spec["containers"], *(plugin.pod_spec.get("initContainers") or [])):
        variables = variables_of(container)
        if CONFIG_FOLDER_VARIABLE not in variables:
            continue
        folder = variables[CONFIG_FOLDER_VARIABLE]
        mounted = [mount["name"] for mount in container.get("volumeMounts") or [] if mount["mountPath"] == folder]
        for volume in plugin.pod_spec.get("volumes") or []:
            if volume["name"] in mounted and volume.get("configMap"):
                name = volume["configMap"]["name"]
                fallbacks = tuple(filter(None, variables.get(FALLBACK_VARIABLE, "").split(",")))
                return PluginConfigMap(plugin.namespace, name, variables.get(DEFAULT_VARIABLE, ""), fallbacks)
    return None


def find_stack(daemon_sets: Sequence[Json], pods: Sequence[Json]) -> InstalledStack:
    """Find the components among all DaemonSets of the cluster; `pods` are the node's."""
    found = {part: _find_component(daemon_sets, names, pods) for part, names in CONTAINERS.items()}
    return InstalledStack(**found, config_map=_find_config_map(plugin) if (plugin := found["plugin"]) else None)
