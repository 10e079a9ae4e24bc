"""What is installed, over DaemonSets of the chart and of the operator."""

from __future__ import annotations

from typing import Any

from unit.kubernetes.objects import daemon_pod, daemon_set, owner

from sharebench.nodes.kubernetes.cluster.nvidia_stack import Configs, lacks_config_map, look


def manager(folder: str = "/available-configs", default: str = "exclusive") -> dict[str, Any]:
    variables = {
        "NODE_LABEL": "nvidia.com/device-plugin.config",
        "CONFIG_FILE_SRCDIR": folder,
        "DEFAULT_CONFIG": default,
    }
    return {
        "name": "nvidia-device-plugin-sidecar",
        "image": "x/plugin:v0.19.3",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [
            {"name": "available-configs", "mountPath": folder},
            {"name": "config", "mountPath": "/config"},
        ],
    }


def plugin(name: str = "plugin") -> dict[str, Any]:
    volumes = [{"name": "config", "emptyDir": {}}, {"name": "available-configs", "configMap": {"name": "sharing"}}]
    made = daemon_set(name, "nvidia-device-plugin-ctr", volumes=volumes)
    made["spec"]["template"]["spec"]["containers"].append(manager())
    return made


def test_the_config_map_is_the_one_that_the_manager_reads() -> None:
    found = look([plugin()], [])
    assert found.configs == Configs("nvidia", "sharing", "exclusive")


def test_a_plugin_without_a_manager_has_none() -> None:
    found = look([daemon_set("plugin", "nvidia-device-plugin")], [])
    assert found.plugin is not None
    assert found.configs is None


def test_of_several_the_one_on_this_node_counts() -> None:
    here = daemon_pod("second", "nvidia-device-plugin-ctr")
    found = look([plugin("first"), plugin("second")], [here])
    assert found.plugin is not None
    assert found.plugin.name == "second"


def test_parts_are_known_by_their_containers() -> None:
    parts = [
        daemon_set("a", "gpu-feature-discovery-ctr"),
        daemon_set("b", "mps-control-daemon-ctr"),
        daemon_set("c", "nvidia-mig-manager"),
    ]
    found = look(parts, [])
    names = [part.name for part in (found.discovery, found.mps, found.mig_manager) if part]
    assert names == ["a", "b", "c"]
    assert found.plugin is None


def test_versions_and_owners() -> None:
    labelled = plugin()
    labelled["metadata"]["labels"] = {"app.kubernetes.io/version": "0.20.0"}
    owned = plugin()
    owned["metadata"]["ownerReferences"] = [owner("x") | {"kind": "ClusterPolicy"}]
    parts = [look([made], []).plugin for made in (plugin(), labelled, owned)]
    found = [(part.version, part.policy) for part in parts if part is not None]
    assert found == [("v0.19.3", None), ("0.20.0", None), ("v0.19.3", "x")]


def test_a_plugin_of_the_operator_without_a_config_map_is_refused_with_what_to_type() -> None:
    made = daemon_set("plugin", "nvidia-device-plugin")
    made["metadata"]["ownerReferences"] = [owner("cluster-policy") | {"kind": "ClusterPolicy"}]
    part = look([made], []).plugin
    assert part is not None
    line = lacks_config_map(part)
    # A ClusterPolicy that names a ConfigMap which is not there keeps the plugin from starting, on all nodes.
    made_first, _, patched = line.partition(" && ")
    assert "kubectl create configmap sharebench-configs --namespace nvidia --from-literal=default=" in made_first
    assert patched.startswith("kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge")
    assert "\n" not in line


def test_while_a_pod_is_replaced_the_new_one_counts() -> None:
    part = look([plugin()], []).plugin
    assert part is not None
    old = daemon_pod("plugin", deletionTimestamp="2026-11-20T16:00:00Z")
    new = daemon_pod("plugin")
    assert part.pod_of([old, new]) is new
    assert part.pod_of([]) is None
