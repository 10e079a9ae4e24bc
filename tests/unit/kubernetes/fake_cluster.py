"""Fake clusters in memory, which follow the node's labels a little later; time passes when someone sleeps."""

import marshal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from unit.kubernetes.objects import CONFIG, daemon_pod, daemon_set, node

from sharebench.measure.nodes.kubernetes.access.device_plugin import keys, mig_layouts
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_layouts import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_manager import DEPLOY_LABELS
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import PluginConfigMap, find_stack
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.model.config_nodes import NodeOptions

NODE = "/api/v1/nodes/gpu-node"
CONFIGS = "/api/v1/namespaces/nvidia/configmaps/sharing"
PODS = "/api/v1/namespaces/nvidia/pods/"
DELAY_SECONDS = 3.0
T = TypeVar("T")


def copied(body: T) -> T:
    """A copy of JSON, several times as fast as `copy.deepcopy`."""
    plain: Any = body
    copy: T = marshal.loads(marshal.dumps(plain))
    return copy


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def manager(container: str, name: str = "plugin", default: str = "default", fallbacks: str = "named,single") -> Json:
    """The plugin's DaemonSet with a config-manager."""
    volumes = [{"name": "config", "emptyDir": {}}, {"name": "available-configs", "configMap": {"name": "sharing"}}]
    made = daemon_set(name, container, volumes=volumes)
    given = {"CONFIG_FILE_SRCDIR": "/configs", "DEFAULT_CONFIG": default, "FALLBACK_STRATEGIES": fallbacks}
    variables = [{"name": name, "value": value} for name, value in given.items()]
    made["spec"]["template"]["spec"]["containers"].append(
        {
            "name": "nvidia-device-plugin-sidecar",
            "image": "testbed.local/nvidia:v0.19.3",
            "env": variables,
            "volumeMounts": [
                {"name": "available-configs", "mountPath": "/configs"},
                {"name": "config", "mountPath": "/config"},
            ],
        }
    )
    return made


class FakeCluster:
    """A fake of `Api`; `log` has every requested change."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.log: list[tuple[str, str, Any]] = []
        # Pods are deleted at the same time, by threads.
        self.lock = threading.Lock()
        self.store: dict[str, Json] = {
            NODE: node(),
            CONFIGS: {
                "metadata": {"resourceVersion": "1", "annotations": {}},
                "data": {"default": "version: v1\nflags: {migStrategy: none}\n"},
            },
        }
        self.daemon_sets = [
            manager("nvidia-device-plugin-ctr"),
            daemon_set("discovery", "gpu-feature-discovery-ctr"),
            daemon_set("mps", "mps-control-daemon-ctr"),
        ]
        self.daemons = {
            "plugin": daemon_pod("plugin", "nvidia-device-plugin-ctr"),
            "discovery": daemon_pod("discovery", "gpu-feature-discovery-ctr"),
        }
        self.foreign: list[Json] = []
        self.tenants: list[Json] = []
        self.others: list[Json] = []
        """Nodes other than the measured one."""
        self.pods_of_others: list[Json] = []
        """Pods of the plugin on these nodes."""
        self.is_stuck = False
        """Whether the plugin ignores its label."""
        self.idle_daemons = 0
        """Number of pods of the MPS daemon that will start with another config, and be idle although they are ready."""
        self.started_daemons = 0
        """Number of started pods of the MPS daemon."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called whenever someone sleeps, for changes by others."""
        self._had_daemon = False
        """Whether an MPS daemon ran when the label was set, so that the plugin finds it at once."""
        self._unseen: str | None = None
        """The value that the plugin offers once it restarts, as it looked for the MPS daemon too early."""
        self._due: tuple[float, Callable[[], None]] | None = None

    # Time.

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    # The plugin.

    def _source(self) -> PluginConfigMap:
        found = find_stack(self.daemon_sets, []).config_map
        assert found is not None
        return found

    def _react(self) -> None:
        if self._due is not None and self.now >= self._due[0]:
            act, self._due = self._due[1], None
            act()

    def _switch(self) -> None:
        here = self.store[NODE]
        configs = self.store[CONFIGS]["data"]
        key = here["metadata"]["labels"].get(CONFIG) or keys.key_without_label(configs, self._source())
        if key is None:
            # Plugin and discovery crash again and again.
            for name in ("plugin", "discovery"):
                self.daemons[name]["status"]["containerStatuses"][0]["ready"] = False
            return
        config = yaml.safe_load(configs[key])
        sharing = config.get("sharing", {})
        kind = "mps" if "mps" in sharing else "time-slicing" if sharing else "none"
        (section,) = sharing.values() or [{"resources": [{"replicas": 1}]}]
        count = section["resources"][0]["replicas"]
        shown = node(here["metadata"]["labels"].get(CONFIG), kind, count)
        here["metadata"]["labels"] |= shown["metadata"]["labels"]
        here["status"] = shown["status"]
        had_daemon, self._had_daemon = self._had_daemon, False
        self.daemons.pop("mps", None)
        self._unseen = None
        if kind == "mps":
            self.started_daemons += 1
            self.daemons["mps"] = daemon_pod("mps", "mps-control-daemon-ctr", uid=f"uid-{self.started_daemons}")
            is_idle, self.idle_daemons = self.idle_daemons > 0, max(0, self.idle_daemons - 1)
            if is_idle or not had_daemon:
                self._unseen = None if is_idle else str(count)
                here["status"]["allocatable"]["nvidia.com/gpu"] = "0"

    # The API.

    def get(self, path: str, **query: Any) -> Json:
        self._react()
        found = self.find(path)
        if found is None:
            raise ApiRefused(404, f"{path} not found")
        return found

    def find(self, path: str) -> Json | None:
        self._react()
        lists = {
            "/api/v1/nodes": [self.store[NODE], *self.others],
            "/apis/apps/v1/daemonsets": self.daemon_sets,
            "/api/v1/pods": [*self.daemons.values(), *self.foreign],
            "/api/v1/namespaces/nvidia/pods": [*self.daemons.values(), *self.pods_of_others],
            "/api/v1/namespaces/sharebench/pods": self.tenants,
            "/api/v1/namespaces/sharebench/configmaps": [],
        }
        if path in lists:
            return copied({"items": lists[path], "metadata": {"resourceVersion": "1"}})
        return copied(self.store.get(path))

    def create(self, path: str, body: Json) -> Json:
        self.log.append(("create", path, body))
        self.store[f"{path}/{body['metadata']['name']}"] = body | {
            "metadata": {"resourceVersion": "1"} | body["metadata"]
        }
        return body

    def replace(self, path: str, body: Json) -> Json:
        self.log.append(("replace", path, body))
        self.store[path] = body
        return body

    def patch(self, path: str, body: Json) -> Json:
        self.log.append(("patch", path, body))
        if path.startswith(PODS):
            return {}
        self.store[path] = merged(self.store[path], body)
        if path == NODE and CONFIG in body.get("metadata", {}).get("labels", {}) and not self.is_stuck:
            self._due = (self.now + DELAY_SECONDS, self._switch)
            self._had_daemon = "mps" in self.daemons
        return self.store[path]

    def delete(self, path: str, grace_seconds: int | None = None, **query: Any) -> None:
        self.log.append(("delete", path, None))
        self.store.pop(path, None)
        with self.lock:
            self.foreign = [each for each in self.foreign if not path.endswith(each["metadata"]["name"])]
            self.tenants = [each for each in self.tenants if not path.endswith(each["metadata"]["name"])]
        if path == f"{PODS}plugin-x" and self._unseen is not None:
            # A new pod looks again for the daemon.
            self.store[NODE]["status"]["allocatable"]["nvidia.com/gpu"] = self._unseen
        if path in (f"{PODS}plugin-x", f"{PODS}discovery-x") and CONFIG not in self.store[NODE]["metadata"]["labels"]:
            # It looks again for its key.
            name = path.removeprefix(PODS).removesuffix("-x")
            self.daemons[name]["status"]["containerStatuses"][0]["ready"] = True
            self._due = (self.now + DELAY_SECONDS, self._switch)
        if path == f"{PODS}mps-x":
            self.daemons.pop("mps", None)
            if self._due is None:
                # Its DaemonSet creates another one.
                self._due = (self.now + DELAY_SECONDS, self._switch)


def node_of(cluster: FakeCluster, options: NodeOptions, folder: Path) -> ClusterNode:
    """The driver's node on this fake cluster."""
    made = ClusterNode(options, folder)
    made.cluster.__dict__["api"] = cluster
    return made


def leased(cluster: FakeCluster, options: NodeOptions, folder: Path) -> ClusterNode:
    """The driver's node with its Lease, as in a job of the run."""
    made = node_of(cluster, options, folder)
    made._lease.acquire("a-run")
    return made


MAP = "/api/v1/namespaces/nvidia/configmaps/layouts"
LAYOUTS = """\
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  all-2g.10gb: [{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 3}}]
  all-3g.20gb: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}]
  all-balanced: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}]
"""
PRODUCT = "NVIDIA-Mock-A100-SXM4-40GB"


def manager_set() -> Json:
    """The manager's DaemonSet with its map mounted from a ConfigMap."""
    made = daemon_set("manager", "nvidia-mig-manager", volumes=[{"name": "map", "configMap": {"name": "layouts"}}])
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "CONFIG_FILE", "value": "/layouts/config.yaml"}]
    container["volumeMounts"] = [{"name": "other", "mountPath": "/host"}, {"name": "map", "mountPath": "/layouts"}]
    return made


class MigCluster(FakeCluster):
    """A cluster with MIG: all effects of a change of the layout happen at once, a little later."""

    def __init__(self) -> None:
        super().__init__()
        self.layout: dict[str, int] = {}
        self.store[MAP] = {"metadata": {"resourceVersion": "1"}, "data": {"config.yaml": LAYOUTS}}
        self.daemon_sets.append(manager_set())
        self.daemons["manager"] = daemon_pod("manager", "nvidia-mig-manager")
        self.store[NODE]["metadata"]["labels"]["nvidia.com/mig.capable"] = "true"

    def patch(self, path: str, body: Json) -> Json:
        before = self.store[NODE]["metadata"]["labels"].get(MIG_CONFIG_LABEL)
        result = super().patch(path, body)
        after = self.store[NODE]["metadata"]["labels"].get(MIG_CONFIG_LABEL)
        if path == NODE and after not in (None, before):
            self._due = (self.now + DELAY_SECONDS, self._cut)
        return result

    def _cut(self) -> None:
        labels = self.store[NODE]["metadata"]["labels"]
        (part,) = mig_layouts.parse_entries(self.store[MAP]["data"]["config.yaml"], "the map")[labels[MIG_CONFIG_LABEL]]
        self.layout = dict(part.layout)
        self.daemons["plugin"] = daemon_pod("plugin", "nvidia-device-plugin-ctr", uid=f"plugin-{self.now}")
        self._switch()
        labels = self.store[NODE]["metadata"]["labels"]
        labels |= {MIG_STATE_LABEL: "success", **dict.fromkeys(DEPLOY_LABELS, "true")}

    def _switch(self) -> None:
        super()._switch()
        here = self.store[NODE]
        labels = here["metadata"]["labels"]
        for name in [each for each in labels if each.startswith(("nvidia.com/mig-", "nvidia.com/mig.strategy"))]:
            del labels[name]
        config = yaml.safe_load(self.store[CONFIGS]["data"][labels.get(CONFIG, "default")])
        if not self.layout:
            return
        if config["flags"]["migStrategy"] != "mixed":
            # The plugin offers the GPU as if it were whole, but its labels show that it is not.
            labels["nvidia.com/gpu.replicas"] = "0"
            return
        slicing = config.get("sharing", {}).get("timeSlicing", {}).get("resources", [])
        shared = {each["name"]: each["replicas"] for each in slicing}
        labels |= {
            "nvidia.com/mig.strategy": "mixed",
            "nvidia.com/gpu.replicas": "0",
            "nvidia.com/gpu.sharing-strategy": "none",
            "nvidia.com/gpu.product": PRODUCT,
        }
        values = {"nvidia.com/gpu": "0"}
        for profile, count in self.layout.items():
            name = f"nvidia.com/mig-{profile.replace('+', '.')}"
            labels |= {
                f"{name}.count": str(count),
                f"{name}.replicas": str(shared.get(name, 1)),
                f"{name}.sharing-strategy": "time-slicing" if name in shared else "none",
            }
            values[name] = str(count * shared.get(name, 1))
        here["status"]["allocatable"] = {"cpu": "2"} | values
