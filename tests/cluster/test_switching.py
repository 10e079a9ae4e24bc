"""The driver's way into each state and back, with NVIDIA's own device plugin."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import grants, node_of, normalised, state, study_of, tenants_of
from cluster.harness import LABEL, PLUGIN_NAMESPACE, Cluster, eventually
from cluster.testbed import lifecycle

from sharebench.matrix import Study
from sharebench.nodes.base import NodeError
from sharebench.nodes.kubernetes import original
from sharebench.nodes.kubernetes.cluster_node import ClusterNode
from sharebench.window import measure

RUN = "20261120-000000-aaaa"


@pytest.fixture
def study(namespace: str) -> Study:
    return normalised(study_of(namespace, replicas=[1, 3, 7]))


@pytest.fixture
def node(plugin: Cluster, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterNode]:
    monkeypatch.setenv("KUBECONFIG", str(plugin.kubeconfig))
    monkeypatch.setenv("SHAREBENCH_RUN_ID", RUN)
    made = node_of(study, tmp_path / "node", RUN)
    yield made
    made.restore()
    made.release()


def shown(cluster: Cluster) -> dict[str, Any]:
    """Everything of the cluster that a run may change."""
    node = cluster.node()
    configs = cluster.core.read_namespaced_config_map("nvidia-device-plugin-configs", PLUGIN_NAMESPACE)
    kept = ("device-plugin.config", "gpu.replicas", "gpu.sharing-strategy", "mps.capable")
    return {
        "labels": {key: value for key, value in cluster.labels().items() if key in kept},
        "taints": [taint.key for taint in node.spec.taints or []],
        "notes": [key for key in node.metadata.annotations if key.startswith("sharebench")],
        "allocatable": {name: count for name, (_, count) in cluster.resources().items() if count},
        "configs": sorted(configs.data),
        "mps": len(cluster.plugin_pods("mps-control-daemon")),
        "plugin notes": [
            key
            for pod in cluster.plugin_pods()
            for key in pod.metadata.annotations or {}
            if key.startswith("sharebench")
        ],
    }


@pytest.mark.parametrize("label", ["exclusive", None])
def test_through_all_states_and_back(node: ClusterNode, study: Study, plugin: Cluster, label: str | None) -> None:
    plugin.set_label(label)
    before = eventually("the label", lambda: shown(plugin))
    node.ensure(state(study, "time-slicing"))
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 7}
    assert shown(plugin)["taints"] == [original.TAINT]
    node.ensure(state(study, "mps", 3))
    assert plugin.labels()["gpu.sharing-strategy"] == "mps"
    (first,) = plugin.plugin_pods("mps-control-daemon")
    node.ensure(state(study, "mps", 7))
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 7}
    (second,) = plugin.plugin_pods("mps-control-daemon")
    assert first.metadata.uid != second.metadata.uid
    node.ensure(state(study, "exclusive"))
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 1}
    assert node.restore()
    assert shown(plugin) == before
    assert plugin.labels().get("device-plugin.config") == label
    # no sidecar ended because it did not see a key yet
    assert all(status.restart_count <= 1 for status in plugin.containers().values())


def test_a_plugin_pod_that_is_deleted_during_a_switch(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    failures: list[BaseException] = []

    def switching() -> None:
        try:
            node.ensure(state(study, "time-slicing"))
        except NodeError as failure:
            failures.append(failure)

    thread = threading.Thread(target=switching)
    thread.start()
    eventually("the switch", lambda: str(plugin.labels().get("device-plugin.config")).startswith("sharebench"))
    (pod,) = plugin.plugin_pods()
    plugin.core.delete_namespaced_pod(pod.metadata.name, PLUGIN_NAMESPACE)
    thread.join(150)
    assert failures == []
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 7}


def test_a_label_that_somebody_changes_meanwhile(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    node.ensure(state(study, "time-slicing"))
    plugin.set_label("ts3")
    with pytest.raises(NodeError, match=r"somebody set the node's label .* to ts3"):
        node.ensure(state(study, "time-slicing"))
    node.restore()
    after = shown(plugin)
    assert (after["taints"], after["notes"]) == ([], [])
    assert plugin.labels()["device-plugin.config"] == "ts3"


def test_pods_of_others(node: ClusterNode, study: Study, plugin: Cluster, namespace: str) -> None:
    plugin.start(namespace, "training", resources={"limits": {"nvidia.com/gpu": "1"}})
    plugin.wait_for_phase(namespace, "training")
    with pytest.raises(NodeError, match=f"GPU pods of others run on the node: {namespace}/training"):
        node.ensure(state(study, "time-slicing"))
    assert plugin.labels()["device-plugin.config"] == "exclusive"
    node.options = {**node.options, "drain": True}
    node.ensure(state(study, "time-slicing"))
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 7}


def test_another_driver_on_the_node(node: ClusterNode, study: Study, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=f"the node is in use by run {RUN}"):
        node_of(study, tmp_path / "other", "20261120-000000-bbbb")


@pytest.mark.testbed
def test_an_api_server_that_is_away_while_the_window_runs(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    assert plugin.instance is not None
    node.ensure(state(study, "time-slicing"))
    tenants = tenants_of(node, study, 2)
    window_seconds = 20.0
    try:
        tenants.start(grants(2))
        tenants.wait_ready()

        def away() -> None:
            time.sleep(2)
            lifecycle.hold(plugin.instance, "kube-apiserver")
            time.sleep(window_seconds)
            lifecycle.release(plugin.instance, "kube-apiserver")

        thread = threading.Thread(target=away)
        thread.start()
        window, records, _, telemetry = measure(tenants, node.sampler(tenants), window_seconds, 60.0)
        thread.join()
        assert window["end_monotonic_seconds"] - window["start_monotonic_seconds"] == pytest.approx(window_seconds)
        assert all(record["coverage_ratio"] > 0.5 for record in records)
        assert "libnvidia-ml.so.1" in telemetry["reason"]
        devices = {json.dumps(record["view"]["device"]) for record in records}
        assert len(devices) == 1
        assert {outcome["status"] for outcome in tenants.outcomes()} == {"ok"}
    finally:
        tenants.stop()
        # NFD's master has been seen not to notice that the server is back, and labels then stay as they are.
        plugin.core.delete_collection_namespaced_pod(PLUGIN_NAMESPACE, label_selector="app=nfd-master")


@pytest.mark.testbed
def test_a_kubelet_that_is_restarted_while_tenants_run(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    assert plugin.instance is not None
    node.ensure(state(study, "time-slicing"))
    tenants = tenants_of(node, study, 1)
    try:
        tenants.start(grants(1))
        tenants.wait_ready()
        lifecycle.hold(plugin.instance, "kubelet")
        time.sleep(2)
        lifecycle.release(plugin.instance, "kubelet")
        tenants.sleep_until(tenants.now_ns() + 10 * 10**9)
        assert {outcome["status"] for outcome in tenants.outcomes()} == {"ok"}
    finally:
        tenants.stop()
    # the plugin registers anew: the state is waited for, or set up anew
    node.ensure(state(study, "time-slicing"))
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 7}
    assert plugin.labels()[LABEL.removeprefix("nvidia.com/")] == "sharebench-ts-7"
