"""A cluster in memory whose GPU can do MIG, with a mig-manager that succeeds, and a plugin restarted after it."""

from __future__ import annotations

from typing import Any

import yaml
from unit.kubernetes.fake_cluster import CONFIGS, DELAY_SECONDS, NODE, FakeCluster
from unit.kubernetes.objects import CONFIG, Json, daemon_pod, daemon_set

from sharebench.nodes.kubernetes.access.device_plugin import mig_layouts
from sharebench.nodes.kubernetes.access.device_plugin.mig_layouts import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from sharebench.nodes.kubernetes.access.device_plugin.mig_manager import DEPLOY_LABELS

MAP = "/api/v1/namespaces/nvidia/configmaps/layouts"
LAYOUTS = """\
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  all-2g.10gb: [{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 3}}]
  all-3g.20gb: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}]
"""
PRODUCT = "NVIDIA-Mock-A100-SXM4-40GB"


def manager_set(**more: Any) -> Json:
    """The manager's DaemonSet with its map mounted from a ConfigMap."""
    made = daemon_set(
        "manager", "nvidia-mig-manager", volumes=[{"name": "map", "configMap": {"name": "layouts", **more}}]
    )
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "CONFIG_FILE", "value": "/layouts/config.yaml"}]
    container["volumeMounts"] = [{"name": "other", "mountPath": "/host"}, {"name": "map", "mountPath": "/layouts"}]
    return made


class MigCluster(FakeCluster):
    """Everything that a change of the layout brings about happens a little later, and at once."""

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
        (layout,) = mig_layouts.parse(self.store[MAP]["data"]["config.yaml"])[labels[MIG_CONFIG_LABEL]]
        self.layout = dict(layout or {})
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
            # The plugin offers the GPU as if it were whole, and its labels say that it is not.
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
