"""NVIDIA's stack in a cluster: the DaemonSets of the device plugin and its companions, and labels of a node's GPUs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sharebench.core.strategies import MPS_CLIENTS
from sharebench.nodes.kubernetes.cluster.api import Json

CONFIG_LABEL = "nvidia.com/device-plugin.config"
COUNT_LABEL = "nvidia.com/gpu.count"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
MPS_LABEL = "nvidia.com/mps.capable"
COMPUTE_LABELS = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
# Before this compute capability the plugin lets 16 clients share an MPS server (its cmd/mps-control-daemon/mps).
MANY_CLIENTS_SINCE = [7, 5]
GPU_RESOURCES = re.compile(r"nvidia\.com/(gpu|mig-).*")
# Container names by which a part is known, of the Helm chart and of the GPU operator.
PLUGIN = ("nvidia-device-plugin-ctr", "nvidia-device-plugin")
DISCOVERY = ("gpu-feature-discovery-ctr", "gpu-feature-discovery")
MPS = ("mps-control-daemon-ctr",)
MIG_MANAGER = ("nvidia-mig-manager", "mig-manager")
CONFIG_FOLDER_VARIABLE = "CONFIG_FILE_SRCDIR"
DEFAULT_VARIABLE = "DEFAULT_CONFIG"
OPERATOR_OWNER = "ClusterPolicy"


def labels_of(node: Json) -> Mapping[str, str]:
    return dict(node["metadata"].get("labels") or {})


def allocatable(node: Json) -> dict[str, int]:
    """GPU resources of the node that pods can ask for, by name; those that are 0 left out."""
    values = node.get("status", {}).get("allocatable", {})
    return {name: int(value) for name, value in values.items() if GPU_RESOURCES.fullmatch(name) and int(value)}


def most_mps_clients(labels: Mapping[str, str]) -> int:
    """How many tenants the plugin lets onto the GPU under MPS; as many as may be where no label has what it is."""
    found = [int(labels[name]) for name in COMPUTE_LABELS if name in labels]
    return 16 if found and found < MANY_CLIENTS_SINCE else MPS_CLIENTS


def variables_of(container: Json) -> dict[str, str]:
    """The values of a container's environment; "" for those from elsewhere."""
    return {each["name"]: each.get("value") or "" for each in container.get("env") or []}


@dataclass(frozen=True)
class Part:
    """A DaemonSet and the name of the container by which it was known."""

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
        return dict(next(each for each in self.pod_spec["containers"] if each["name"] == self.container))

    @property
    def version(self) -> str:
        """Version by its label, else by the tag of its image."""
        labels = self.daemon_set["metadata"].get("labels") or {}
        tag = self.own_container["image"].split("@")[0].rpartition("/")[2].partition(":")[2]
        return str(labels.get("app.kubernetes.io/version") or tag or "unknown")

    @property
    def policy(self) -> str | None:
        """Name of the ClusterPolicy for which the GPU operator made it, and would undo changes; None without it."""
        owners = self.daemon_set["metadata"].get("ownerReferences") or []
        return next((str(owner["name"]) for owner in owners if owner["kind"] == OPERATOR_OWNER), None)

    def pod_of(self, pods: Iterable[Json]) -> Json | None:
        """Its pod among these, by owner: the chart gives all its DaemonSets the same labels."""
        uid = self.daemon_set["metadata"]["uid"]
        mine = [pod for pod in pods if uid in [owner["uid"] for owner in pod["metadata"].get("ownerReferences") or []]]
        # While one is replaced there are two.
        return min(mine, key=lambda pod: bool(pod["metadata"].get("deletionTimestamp")), default=None)

    def unready(self, pods: Iterable[Json], own_container_only: bool = False) -> str | None:
        """Why it is not up to date and ready on the node whose pods these are; None if it is."""
        status, wanted = self.daemon_set.get("status", {}), self.daemon_set["metadata"].get("generation", 0)
        if status.get("observedGeneration", 0) < wanted:
            return f"{self.name}: its last change is not rolled out yet"
        pod = self.pod_of(pods)
        if pod is None:
            return f"{self.name} has no pod on the node"
        if pod["metadata"].get("deletionTimestamp"):
            return f"the pod of {self.name} is ending"
        for container in pod.get("status", {}).get("containerStatuses") or [{"name": self.container, "ready": False}]:
            if not container["ready"] and (container["name"] == self.container or not own_container_only):
                return f"{self.name}: {container['name']} is not ready{_why(container)}"
        return None


def _why(container: Json) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    reasons = ", ".join(filter(None, [waiting.get("reason"), ended.get("reason")]))
    return f" ({reasons})" if reasons else ""


def lacks_config_map(plugin: Part) -> str:
    """The line for a device plugin that has no ConfigMap to switch by, with what brings one."""
    if plugin.policy is None:
        return (
            "the device plugin has no ConfigMap to switch by (its chart: config.map or config.name); reinstall it "
            "with config/cluster/plugin-values.yaml (docs/cluster/install.md, The device plugin)"
        )
    return (
        "the operator's device plugin has no ConfigMap to switch by; have the ClusterPolicy "
        f"{plugin.policy} name one (docs/cluster/install.md, ClusterPolicy)"
    )


@dataclass(frozen=True)
class Configs:
    """The ConfigMap that a config-manager serves from, and the key it takes without a label ("" where none is set)."""

    namespace: str
    name: str
    default: str


@dataclass(frozen=True)
class Installed:
    """The parts that the cluster has; None for each that it lacks."""

    plugin: Part | None
    discovery: Part | None
    mps: Part | None
    mig_manager: Part | None
    configs: Configs | None


def _find(daemon_sets: Sequence[Json], names: tuple[str, ...], pods: Sequence[Json]) -> Part | None:
    found = [
        Part(daemon_set, container["name"])
        for daemon_set in daemon_sets
        for container in daemon_set["spec"]["template"]["spec"]["containers"]
        if container["name"] in names
    ]
    # Of several (one per kind of node, say) the one that runs on this node.
    return min(found, key=lambda part: part.pod_of(pods) is None, default=None)


def _configs(plugin: Part) -> Configs | None:
    """Where the plugin's config-manager finds its keys: the ConfigMap mounted at the folder that its variable names."""
    for container in (*plugin.pod_spec["containers"], *(plugin.pod_spec.get("initContainers") or [])):
        variables = variables_of(container)
        if CONFIG_FOLDER_VARIABLE not in variables:
            continue
        folder = variables[CONFIG_FOLDER_VARIABLE]
        mounted = [mount["name"] for mount in container.get("volumeMounts") or [] if mount["mountPath"] == folder]
        for volume in plugin.pod_spec.get("volumes") or []:
            if volume["name"] in mounted and volume.get("configMap"):
                name = volume["configMap"]["name"]
                return Configs(plugin.namespace, name, variables.get(DEFAULT_VARIABLE, ""))
    return None


def look(daemon_sets: Sequence[Json], pods: Sequence[Json]) -> Installed:
    """What is installed, from all DaemonSets of the cluster and the node's pods."""
    plugin = _find(daemon_sets, PLUGIN, pods)
    return Installed(
        plugin=plugin,
        discovery=_find(daemon_sets, DISCOVERY, pods),
        mps=_find(daemon_sets, MPS, pods),
        mig_manager=_find(daemon_sets, MIG_MANAGER, pods),
        configs=_configs(plugin) if plugin else None,
    )
