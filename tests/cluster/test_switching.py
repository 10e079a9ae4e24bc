"""The driver sets each state and restores the node, with NVIDIA's real device plugin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import normalised, owned, state, study_of
from cluster.harness import PLUGIN_NAMESPACE, Cluster, eventually

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import reservation
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.study.study import Study


@pytest.fixture
def study(namespace: str) -> Study:
    return normalised(study_of(namespace, replicas=[1, 3, 7]))


@pytest.fixture
def node(plugin: Cluster, study: Study, tmp_path: Path) -> Iterator[ClusterNode]:
    with owned(plugin, study, tmp_path) as made:
        yield made


def shown(cluster: Cluster) -> dict[str, Any]:
    """Everything in the cluster that a run may change."""
    node = cluster.node()
    configs = cluster.core.read_namespaced_config_map("nvidia-device-plugin-configs", PLUGIN_NAMESPACE)
    kept = ("device-plugin.config", "gpu.replicas", "gpu.sharing-strategy", "mps.capable")
    return {
        "labels": {key: value for key, value in cluster.labels().items() if key in kept},
        "taints": [taint.key for taint in node.spec.taints or []],
        "cordoned": bool(node.spec.unschedulable),
        "notes": [key for key in node.metadata.annotations if key.startswith("sharebench")],
        "allocatable": {name: count for name, (_, count) in cluster.resources().items() if count},
        "configs": sorted(configs.data),
        "config notes": [key for key in configs.metadata.annotations or {} if key.startswith("sharebench")],
        "mps": len(cluster.plugin_pods("mps-control-daemon")),
        "plugin notes": [
            key
            for pod in cluster.plugin_pods()
            for key in pod.metadata.annotations or {}
            if key.startswith("sharebench")
        ],
    }


@contextmanager
def watched(cluster: Cluster) -> Iterator[set[tuple[str, bool]]]:
    """The effects of our taint that the node has meanwhile, each with whether it is cordoned."""
    seen, has_ended = set(), threading.Event()

    def watch() -> None:
        while not has_ended.wait(0.2):
            spec = cluster.node().spec
            effects = [taint.effect for taint in spec.taints or [] if taint.key == reservation.TAINT]
            seen.update((effect, bool(spec.unschedulable)) for effect in effects or [""])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        has_ended.set()
        thread.join()


@pytest.mark.parametrize("label", ["exclusive", None])
def test_all_states_are_reached_and_undone(node: ClusterNode, study: Study, plugin: Cluster, label: str | None) -> None:
    plugin.set_label(label)
    before, ended_before = eventually("the label", lambda: shown(plugin)), sidecar_ends(plugin)
    node.ensure(state(study, "time-slicing"))
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 7}
    assert shown(plugin)["taints"] == [reservation.TAINT]
    assert sidecar_ends(plugin) == ended_before, "a sidecar ends when it does not see the key yet"
    looked_in_vain = uids(plugin, "nvidia-device-plugin")
    node.ensure(state(study, "mps", 3))
    assert not uids(plugin, "nvidia-device-plugin") & looked_in_vain, "or it looks again after 30 s"
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


@pytest.fixture
def tolerant(plugin: Cluster) -> Iterator[Cluster]:
    """The cluster with DaemonSets of NVIDIA that tolerate our taint."""

    def set_tolerations(value: list[dict[str, str]] | None) -> None:
        for each in plugin.apps.list_namespaced_daemon_set(PLUGIN_NAMESPACE).items:
            body = {"spec": {"template": {"spec": {"tolerations": value}}}}
            plugin.apps.patch_namespaced_daemon_set(each.metadata.name, PLUGIN_NAMESPACE, body)
        eventually("new pods of all", are_new)

    def are_new() -> bool:
        """Or the next test would begin while its only GPU is gone."""
        return all(
            each.status.observed_generation == each.metadata.generation
            and (each.status.updated_number_scheduled or 0) == each.status.desired_number_scheduled
            and not each.status.number_unavailable
            for each in plugin.apps.list_namespaced_daemon_set(PLUGIN_NAMESPACE).items
        )

    set_tolerations([{"key": reservation.TAINT, "operator": "Exists"}])
    yield plugin
    set_tolerations(None)


@pytest.mark.slow
def test_a_node_whose_daemons_tolerate_our_taint_is_never_cordoned(
    tolerant: Cluster, study: Study, tmp_path: Path
) -> None:
    with owned(tolerant, study, tmp_path) as node, watched(tolerant) as seen:
        node.ensure(state(study, "mps", 3))
        assert shown(tolerant)["allocatable"] == {"nvidia.com/gpu": 3}
        assert node.restore()
    assert seen <= {("", False), ("NoSchedule", False)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "resource"),
    [("ts7", "nvidia.com/gpu"), ("ts7-shared", "nvidia.com/gpu.shared"), ("ts7-strict", "nvidia.com/gpu")],
)
def test_a_plugin_that_shares_by_time_slicing_gets_its_config_back(
    node: ClusterNode, study: Study, plugin: Cluster, label: str, resource: str
) -> None:
    plugin.set_label(label)
    eventually("its resource", lambda: shown(plugin)["allocatable"] == {resource: 7})
    eventually("its label", lambda: plugin.labels()["gpu.sharing-strategy"] == "time-slicing")
    before = shown(plugin)
    node.ensure(state(study, "exclusive"))
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 1}
    node.ensure(state(study, "time-slicing"))
    assert node.restore()
    assert shown(plugin) == before


def uids(cluster: Cluster, name: str) -> set[str]:
    return {pod.metadata.uid for pod in cluster.plugin_pods(name)}


def test_a_suspect_mps_daemon_is_restarted(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    """After tenants ended badly; the stand-in of NVIDIA's control program has no server that they could break."""
    before = shown(plugin)
    node.ensure(state(study, "mps", 3))
    daemons, plugins = uids(plugin, "mps-control-daemon"), uids(plugin, "nvidia-device-plugin")
    node.mark_dirty()
    # Like the next job of the run, which reads the node's folder.
    later = ClusterNode(node.options, node.folder)
    later.ensure(state(study, "mps", 3))
    renewed, (daemon,) = uids(plugin, "nvidia-device-plugin"), plugin.plugin_pods("mps-control-daemon")
    assert daemon.metadata.uid not in daemons
    assert not renewed & plugins
    assert all(status.ready for status in plugin.containers("mps-control-daemon").values())
    assert shown(plugin)["allocatable"] == {"nvidia.com/gpu": 3}
    later.ensure(state(study, "mps", 3))
    assert uids(plugin, "mps-control-daemon") == {daemon.metadata.uid}
    assert node.restore()
    assert shown(plugin) == before


def share(cluster: Cluster) -> float:
    """Percentage of the SMs that the daemon gives each client."""
    (daemon,) = cluster.plugin_pods("mps-control-daemon")
    return cluster.mps_share(daemon)


def test_a_node_found_under_mps_gets_its_daemon_back(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    plugin.switch("mps7", 7)
    before = eventually("the labels", lambda: plugin.labels()["gpu.sharing-strategy"] == "mps" and shown(plugin))
    theirs = uids(plugin, "mps-control-daemon")
    node.ensure(state(study, "mps", 3))
    ours = uids(plugin, "mps-control-daemon")
    assert not ours & theirs
    assert share(plugin) == 33
    assert node.restore()
    assert not uids(plugin, "mps-control-daemon") & (ours | theirs)
    assert share(plugin) == 14
    assert shown(plugin) == before


def sidecar_ends(cluster: Cluster) -> int:
    """How often the plugin's sidecar has ended, also because of labels of earlier tests."""
    return int(cluster.containers()["nvidia-device-plugin-sidecar"].restart_count)


def test_a_switch_survives_the_deletion_of_the_plugins_pod(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    before = shown(plugin)
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
    assert node.restore()
    assert shown(plugin) == before


def test_foreign_gpu_pods_are_refused(node: ClusterNode, study: Study, plugin: Cluster, namespace: str) -> None:
    plugin.start(namespace, "training", resources={"limits": {"nvidia.com/gpu": "1"}})
    plugin.wait_for_phase(namespace, "training")
    with pytest.raises(NodeError, match=f"foreign GPU pods run on the node: {namespace}/training"):
        node.ensure(state(study, "time-slicing"))
    assert plugin.labels()["device-plugin.config"] == "exclusive"
