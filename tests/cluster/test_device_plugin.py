"""How NVIDIA's real device plugin behaves, as far as a tool that switches it must know."""

from __future__ import annotations

import pytest
from cluster.harness import GPU, PLUGIN_NAMESPACE, Cluster, eventually
from cluster.testbed import lifecycle

ONE_GPU = {"resources": {"limits": {GPU: "1"}}}
SHOW_DEVICE = "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES']); time.sleep(3600)"


def start_many(cluster: Cluster, namespace: str, count: int) -> list[str]:
    """This number of pods with a GPU each, once all are running."""
    names = [f"tenant-{index}" for index in range(count)]
    for name in names:
        cluster.start(namespace, name, SHOW_DEVICE, **ONE_GPU)
    for name in names:
        cluster.wait_for_phase(namespace, name)
    return names


def test_seven_pods_share_one_gpu_and_the_eighth_finds_no_place(plugin: Cluster, namespace: str) -> None:
    plugin.switch("ts7", 7)
    names = start_many(plugin, namespace, 7)
    plugin.start(namespace, "one-too-many", SHOW_DEVICE, **ONE_GPU)
    words = eventually("a verdict of the scheduler", lambda: plugin.unschedulable(namespace, "one-too-many"))
    assert "1 Insufficient nvidia.com/gpu" in words
    logs = {
        eventually("a log", lambda name=name: plugin.core.read_namespaced_pod_log(name, namespace)) for name in names
    }
    assert len(logs) == 1
    assert logs.pop().startswith("GPU-")


def test_a_switch_between_counts_keeps_the_resource_name(plugin: Cluster) -> None:
    for label, count in (("ts7", 7), ("ts3", 3), ("exclusive", 1)):
        seen = plugin.switch(label, count)
        assert all(set(state) == set(seen[0]) for state in seen)


def test_labels_say_how_the_gpu_is_shared(plugin: Cluster) -> None:
    plugin.switch("ts7", 7)
    wanted = {"gpu.replicas": "7", "gpu.sharing-strategy": "time-slicing", "gpu.count": "1", "mps.capable": "false"}
    eventually("labels of time-slicing", lambda: wanted.items() <= plugin.labels().items())
    assert plugin.labels()["gpu.product"].endswith("-SHARED")
    plugin.switch("exclusive", 1)
    wanted = {"gpu.replicas": "1", "gpu.sharing-strategy": "none"}
    eventually("labels of no sharing", lambda: wanted.items() <= plugin.labels().items())
    assert not plugin.labels()["gpu.product"].endswith("-SHARED")


def test_resource_names_never_vanish_and_capacity_lies(plugin: Cluster) -> None:
    shared = f"{GPU}.shared"
    plugin.switch("ts7-shared", 7, shared)
    eventually("no GPU under its plain name", lambda: plugin.allocatable() == 0)
    assert plugin.resources()[GPU] == (1, 0)
    plugin.switch("exclusive", 1)
    eventually("no GPU under the name of shared ones", lambda: plugin.allocatable(shared) == 0)
    assert shared in plugin.resources()


def test_a_label_that_names_no_config_leads_to_the_default_and_a_crash_looping_sidecar(plugin: Cluster) -> None:
    """Nothing changes at first. But on each start the sidecar sets the default before it fails on the label again."""
    plugin.switch("ts7", 7)
    plugin.set_label("no-such-config")
    sidecar = "nvidia-device-plugin-sidecar"

    def is_crash_looping() -> bool:
        waiting = plugin.containers()[sidecar].state.waiting
        return bool(waiting and waiting.reason == "CrashLoopBackOff")

    eventually("CrashLoopBackOff", is_crash_looping)
    eventually("the default's one GPU", lambda: plugin.allocatable() == 1)
    eventually("a plugin that looks well", lambda: plugin.containers()["nvidia-device-plugin-ctr"].ready)
    plugin.switch("ts3", 3, seconds=180.0)


def test_a_deleted_plugin_pod_takes_the_gpus_away_until_the_next_registers(plugin: Cluster, namespace: str) -> None:
    plugin.switch("ts7", 7)
    (running,) = start_many(plugin, namespace, 1)
    (old,) = plugin.plugin_pods()
    plugin.core.delete_namespaced_pod(old.metadata.name, PLUGIN_NAMESPACE)

    def is_replaced() -> bool:
        pods = plugin.plugin_pods()
        return len(pods) == 1 and pods[0].metadata.uid != old.metadata.uid and pods[0].status.phase == "Running"

    eventually("a new plugin pod", is_replaced)
    eventually("7 GPUs again", lambda: plugin.allocatable() == 7)
    assert plugin.phase(namespace, running) == "Running"


def test_new_plugin_pods_know_a_new_config_key_at_once(plugin: Cluster) -> None:
    """Running ones learn it when the kubelet renews their mounted ConfigMap, about once a minute."""
    name = "nvidia-device-plugin-configs"
    text = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}}\n"
    try:
        plugin.core.patch_namespaced_config_map(name, PLUGIN_NAMESPACE, {"data": {"ts5": text}})
        for daemon in ("nvidia-device-plugin", "gpu-feature-discovery"):
            for pod in plugin.plugin_pods(daemon):
                plugin.core.delete_namespaced_pod(pod.metadata.name, PLUGIN_NAMESPACE)
        plugin.switch("ts5", 5)
    finally:
        plugin.core.patch_namespaced_config_map(name, PLUGIN_NAMESPACE, {"data": {"ts5": None}})


@pytest.mark.testbed
def test_a_restarted_kubelet_shows_no_gpu_until_the_plugin_registers_again(plugin: Cluster, namespace: str) -> None:
    assert plugin.instance
    plugin.switch("ts7", 7)
    (running,) = start_many(plugin, namespace, 1)
    lifecycle.restart(plugin.instance, "kubelet")
    eventually("7 GPUs again", lambda: plugin.allocatable() == 7, 90.0)
    assert plugin.phase(namespace, running) == "Running"
