"""Finding NVIDIA's stack by the DaemonSets of the chart and the operator, foreign GPU pods, and the node."""

from typing import Any

import pytest
from unit.kubernetes.fake_cluster import manager
from unit.kubernetes.objects import daemon_pod, daemon_set, owner

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import foreign_pods, saved_state
from sharebench.measure.nodes.kubernetes.cluster.cluster import select_node
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import (
    PluginConfigMap,
    allocatable,
    find_stack,
    labeled_memory_mib,
    no_config_map_message,
)


def plugin(name: str = "plugin") -> dict[str, Any]:
    return manager("nvidia-device-plugin-ctr", name)


def test_the_config_map_is_the_one_the_config_manager_reads() -> None:
    found = find_stack([plugin()], [])
    assert found.config_map == PluginConfigMap("nvidia", "sharing", "default", ("named", "single"))


def test_of_several_plugins_the_one_on_this_node_counts() -> None:
    here = daemon_pod("second", "nvidia-device-plugin-ctr")
    found = find_stack([plugin("first"), plugin("second")], [here])
    assert found.plugin is not None
    assert found.plugin.name == "second"


def test_components_are_found_by_their_containers() -> None:
    parts = [
        daemon_set("a", "gpu-feature-discovery-ctr"),
        daemon_set("b", "mps-control-daemon-ctr"),
        daemon_set("c", "nvidia-mig-manager"),
    ]
    found = find_stack(parts, [])
    names = [part.name for part in (found.discovery, found.mps, found.mig_manager) if part]
    assert names == ["a", "b", "c"]
    assert found.plugin is None


def test_a_components_version_and_cluster_policy() -> None:
    labelled = plugin()
    labelled["metadata"]["labels"] = {"app.kubernetes.io/version": "0.20.0"}
    owned = plugin()
    owned["metadata"]["ownerReferences"] = [owner("x") | {"kind": "ClusterPolicy"}]
    parts = [find_stack([made], []).plugin for made in (plugin(), labelled, owned)]
    found = [(part.version, part.owner("ClusterPolicy")) for part in parts if part is not None]
    assert found == [("v0.19.3", None), ("0.20.0", None), ("v0.19.3", "x")]


def test_a_plugin_of_the_operator_without_a_config_map_is_refused() -> None:
    made = daemon_set("plugin", "nvidia-device-plugin")
    made["metadata"]["ownerReferences"] = [owner("cluster-policy") | {"kind": "ClusterPolicy"}]
    part = find_stack([made], []).plugin
    assert part is not None
    assert "have the ClusterPolicy cluster-policy name one" in no_config_map_message(part)


def test_the_new_pod_counts_while_a_pod_is_replaced() -> None:
    part = find_stack([plugin()], []).plugin
    assert part is not None
    old = daemon_pod("plugin", deletionTimestamp="2026-11-20T16:00:00Z")
    new = daemon_pod("plugin")
    assert part.pod_of([old, new]) is new
    assert part.pod_of([]) is None


def pod(
    name: str, asks: str | None = "nvidia.com/gpu", phase: str = "Running", namespace: str = "team", **more: Any
) -> dict[str, Any]:
    resources = {"limits": {asks: "1"}} if asks else {}
    spec = {"containers": [{"name": "c", "resources": resources}]} | more
    return {"metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": spec, "status": {"phase": phase}}


def test_foreign_pods_that_hold_a_gpu_are_found() -> None:
    ours, elsewhere = pod("ours"), pod("elsewhere")
    for each in (ours, elsewhere):
        each["metadata"]["labels"] = {"sharebench/node": "0123"}
    ours["metadata"]["namespace"] = "sharebench"
    early = pod("init", asks=None, initContainers=[{"name": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}])
    claims = pod("claim", asks=None, resourceClaims=[{"name": "gpu"}])
    pods = [pod("a"), pod("mig", "nvidia.com/mig-1g.5gb"), pod("cpu", asks=None), pod("done", phase="Succeeded")]
    found = foreign_pods.gpu_pods([*pods, ours, early, claims, elsewhere], "sharebench")
    assert [each["metadata"]["name"] for each in found] == ["a", "mig", "init", "claim", "elsewhere"]


def test_the_refusal_lists_foreign_pods() -> None:
    line = foreign_pods.refusal_message([pod(f"p{number}") for number in range(7)])
    assert "team/p0, team/p1" in line
    assert "and 2 more" in line
    assert line.endswith("or have their owners end them"), "without a command that would end them"


@pytest.mark.parametrize(("value", "count"), [("1k", 1000), ("8", 8), ("0", None), ("2500m", 2), ("1e3", 1000)])
def test_allocatable_gpus_are_quantities(value: str, count: int | None) -> None:
    found = allocatable({"status": {"allocatable": {"nvidia.com/gpu": value, "memory": "1Ti"}}})
    assert found == ({} if count is None else {"nvidia.com/gpu": count})


@pytest.mark.parametrize(("value", "mib"), [("40960", 40960), ("42505273344", 40536), ("", None), ("[N/A]", None)])
def test_the_memory_label_is_in_mib_or_in_bytes(value: str, mib: int | None) -> None:
    assert labeled_memory_mib({"nvidia.com/gpu.memory": value}) == mib


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {}}}


def test_the_only_node_with_a_gpu_is_taken() -> None:
    gpu = {"nvidia.com/gpu.present": "true"}
    assert select_node([node("a"), node("b", **gpu)], "auto")["metadata"]["name"] == "b"
    assert select_node([node("a"), node("b", **gpu)], "a")["metadata"]["name"] == "a"
    with pytest.raises(NodeError, match=r"2 nodes have GPUs \(b, c\); name the one"):
        select_node([node("b", **gpu), node("c", **gpu)], "auto")
    left = node("c", **gpu)
    left["metadata"]["annotations"] = {saved_state.ANNOTATION: "{}"}
    with pytest.raises(NodeError, match=r"GPUs \(b, c\), and a run has left c changed; .*node: c\}"):
        select_node([node("b", **gpu), left], "auto")
    with pytest.raises(NodeError, match="no node has a GPU"):
        select_node([node("a")], "auto")
    with pytest.raises(NodeError, match="no node 'x'"):
        select_node([node("a")], "x")
