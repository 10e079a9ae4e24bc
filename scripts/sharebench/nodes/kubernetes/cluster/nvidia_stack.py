"""What of NVIDIA's stack a cluster has: the DaemonSets of the device plugin and its companions, and their ConfigMap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharebench.nodes.kubernetes.cluster.api import Json

# Container names by which a part is known, of the Helm chart and of the GPU operator.
PLUGIN = ("nvidia-device-plugin-ctr", "nvidia-device-plugin")
DISCOVERY = ("gpu-feature-discovery-ctr", "gpu-feature-discovery")
MPS = ("mps-control-daemon-ctr",)
MIG_MANAGER = ("nvidia-mig-manager", "mig-manager")
CONFIG_FOLDER_VARIABLE = "CONFIG_FILE_SRCDIR"
DEFAULT_VARIABLE = "DEFAULT_CONFIG"
OPERATOR_OWNER = "ClusterPolicy"
CLUSTER_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"


@dataclass(frozen=True)
class Part:
    """A DaemonSet and the container by which it was known."""

    daemon_set: Json
    container: str

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.daemon_set["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.daemon_set["metadata"]["namespace"])

    @property
    def version(self) -> str:
        """Version by its label, else by the tag of its image."""
        labels = self.daemon_set["metadata"].get("labels") or {}
        image = next(each["image"] for each in _containers(self.daemon_set) if each["name"] == self.container)
        tag = image.split("@")[0].rpartition("/")[2].partition(":")[2]
        return str(labels.get("app.kubernetes.io/version") or tag or "unknown")

    @property
    def policy(self) -> str | None:
        """Name of the ClusterPolicy for which the GPU operator made it; None where it is not the operator's."""
        owners = self.daemon_set["metadata"].get("ownerReferences") or []
        return next((str(owner["name"]) for owner in owners if owner["kind"] == OPERATOR_OWNER), None)

    @property
    def is_operators(self) -> bool:
        """Whether the GPU operator made it, which would undo changes of it."""
        return self.policy is not None

    def pod_of(self, pods: Iterable[Json]) -> Json | None:
        """Its pod among these, by owner: the chart gives all its DaemonSets the same labels."""
        mine = [pod for pod in pods if self._owns(pod)]
        # While one is replaced there are two.
        mine.sort(key=lambda pod: bool(pod["metadata"].get("deletionTimestamp")))
        return mine[0] if mine else None

    def _owns(self, pod: Json) -> bool:
        uid = self.daemon_set["metadata"]["uid"]
        return any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or [])

    def daemon(self, pods: Iterable[Json], main: str | None = None) -> Daemon:
        """The part as it runs on the node whose pods these are."""
        return Daemon(self.name, self.daemon_set, self.pod_of(pods), main)


def naming_command(policy: str, namespace: str) -> str:
    """What a person types to have a ClusterPolicy name a ConfigMap in the operator's namespace."""
    return (
        f"kubectl create configmap sharebench-configs --namespace {namespace} --from-literal=default='version: v1' && "
        f"kubectl patch clusterpolicies.nvidia.com/{policy} --type merge "
        '-p \'{"spec":{"devicePlugin":{"config":{"name":"sharebench-configs","default":"default"}}}}\''
    )


def lacks_config_map(plugin: Part) -> str:
    """The line for a device plugin that has no ConfigMap to switch by, with what brings one."""
    if plugin.policy is None:
        return "the device plugin has no ConfigMap to switch by; install it with config.map or config.name"
    return (
        "the operator's device plugin has no ConfigMap to switch by; have the ClusterPolicy name one, which restarts "
        f"the plugin on all nodes: {naming_command(plugin.policy, plugin.namespace)}"
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


def _containers(daemon_set: Json, initial: bool = False) -> list[Json]:
    spec = daemon_set["spec"]["template"]["spec"]
    return [*spec["containers"], *((spec.get("initContainers") or []) if initial else [])]


def _find(daemon_sets: Sequence[Json], names: tuple[str, ...], pods: Sequence[Json]) -> Part | None:
    found = [
        Part(daemon_set, container["name"])
        for daemon_set in daemon_sets
        for container in _containers(daemon_set)
        if container["name"] in names
    ]
    # Of several (one per kind of node, say) the one that runs on this node.
    found.sort(key=lambda part: part.pod_of(pods) is None)
    return found[0] if found else None


def _configs(plugin: Part) -> Configs | None:
    """Where the plugin's config-manager finds its keys: the ConfigMap mounted at the folder that its variable names."""
    volumes = plugin.daemon_set["spec"]["template"]["spec"].get("volumes") or []
    for container in _containers(plugin.daemon_set, initial=True):
        variables = {each["name"]: each.get("value", "") for each in container.get("env") or []}
        if CONFIG_FOLDER_VARIABLE not in variables:
            continue
        folder = variables[CONFIG_FOLDER_VARIABLE]
        mounted = [mount["name"] for mount in container.get("volumeMounts") or [] if mount["mountPath"] == folder]
        for volume in volumes:
            if volume["name"] in mounted and volume.get("configMap"):
                name = volume["configMap"]["name"]
                return Configs(plugin.namespace, name, variables.get(DEFAULT_VARIABLE, ""))
    return None


def look(daemon_sets: Sequence[Json], pods: Sequence[Json]) -> Installed:
    """What is installed, from all DaemonSets of the cluster and the node's pods."""
    plugin = _find(daemon_sets, PLUGIN, pods)
    return Installed(
        plugin,
        _find(daemon_sets, DISCOVERY, pods),
        _find(daemon_sets, MPS, pods),
        _find(daemon_sets, MIG_MANAGER, pods),
        _configs(plugin) if plugin else None,
    )


@dataclass(frozen=True)
class Daemon:
    """A DaemonSet of NVIDIA's and its pod on the node, None where there is none; `main` is the container that counts.

    Without `main` all containers must be ready.
    """

    name: str
    daemon_set: Json
    pod: Json | None
    main: str | None = None

    def unready(self) -> str | None:
        """Why it is not up to date and ready on the node; None if it is."""
        status, wanted = self.daemon_set.get("status", {}), self.daemon_set["metadata"].get("generation", 0)
        if status.get("observedGeneration", 0) < wanted:
            return f"{self.name}: its last change is not rolled out yet"
        if self.pod is None:
            return f"{self.name} has no pod on the node"
        if self.pod["metadata"].get("deletionTimestamp"):
            return f"the pod of {self.name} is ending"
        for container in self.pod.get("status", {}).get("containerStatuses") or [{"name": "it", "ready": False}]:
            if not container["ready"] and self.main in (None, container["name"]):
                return f"{self.name}: {container['name']} is not ready{_why(container)}"
        return None


def _why(container: Json) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    said = ", ".join(filter(None, [waiting.get("reason"), ended.get("reason")]))
    return f" ({said})" if said else ""
