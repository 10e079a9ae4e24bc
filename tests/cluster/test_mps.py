"""MPS by the device plugin: the real plugin and control daemon, with a stand-in for NVIDIA's MPS control program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from cluster.harness import PLUGIN_NAMESPACE, Cluster, eventually
from cluster.test_device_plugin import ONE_GPU, start_many
from cluster.testbed import gpu, programs
from cluster.testbed.lifecycle import run

DAEMON = "mps-control-daemon"
IDLE = "No devices are configured for MPS sharing"
RETRY_SECONDS = 30.0  # of the plugin, for a control daemon that does not answer


@pytest.fixture
def without_daemon(plugin: Cluster) -> Iterator[Cluster]:
    """No MPS control daemon, as where the chart's part for it is missing; there again afterwards."""
    remove_daemon(plugin)
    yield plugin
    install_daemon(plugin)


def remove_daemon(cluster: Cluster) -> None:
    """With its pod: Kubernetes takes it for the pod of the next DaemonSet of that name, and makes none for that one."""
    cluster.apps.delete_namespaced_daemon_set(DAEMON, PLUGIN_NAMESPACE)
    eventually("the end of the daemon's pod", lambda: not cluster.plugin_pods(DAEMON))


def install_daemon(cluster: Cluster) -> None:
    kubectl = programs.obtain(programs.KUBE)["kubectl"]
    run(kubectl, f"--kubeconfig={cluster.kubeconfig}", "apply", "-f", gpu.MANIFESTS / "mps.yaml")


def test_without_its_daemon_there_is_no_gpu_though_all_pods_look_well(without_daemon: Cluster, namespace: str) -> None:
    cluster = without_daemon
    cluster.set_label("mps7")
    eventually("no GPU", lambda: cluster.allocatable() == 0)
    eventually("a label for the daemon", lambda: cluster.labels().get("mps.capable") == "true")

    def is_retrying() -> bool:
        (pod,) = cluster.plugin_pods()
        read = cluster.core.read_namespaced_pod_log
        log = read(pod.metadata.name, PLUGIN_NAMESPACE, container="nvidia-device-plugin-ctr")
        return "error waiting for MPS daemon" in log

    eventually("a second attempt", is_retrying, 2 * RETRY_SECONDS)
    assert cluster.allocatable() == 0
    assert all(status.ready for status in cluster.containers().values())
    install_daemon(cluster)
    eventually("7 GPUs with the daemon", lambda: cluster.allocatable() == 7, 3 * RETRY_SECONDS)
    names = start_many(cluster, namespace, 1)
    assert "/mps" in cluster.execute(namespace, names[0], "printenv", "CUDA_MPS_PIPE_DIRECTORY")


def test_seven_tenants_share_threads_and_memory_by_limits(plugin: Cluster, namespace: str) -> None:
    plugin.switch("mps7", 7, seconds=3 * RETRY_SECONDS)
    start_many(plugin, namespace, 7)
    plugin.start(namespace, "one-too-many", **ONE_GPU)
    words = eventually("a verdict of the scheduler", lambda: plugin.unschedulable(namespace, "one-too-many"))
    assert "1 Insufficient nvidia.com/gpu" in words
    (daemon,) = plugin.plugin_pods(DAEMON)
    assert plugin.mps_share(daemon) == 100 // 7
    assert plugin.labels()["gpu.sharing-strategy"] == "mps"


def test_started_by_its_bare_name_the_daemon_works_and_its_sidecar_crash_loops(without_daemon: Cluster) -> None:
    """As in the plugin's chart: its sidecar looks for /usr/bin/mps-control-daemon, which no process is called then."""
    cluster = without_daemon
    (body,) = [part for part in yaml.safe_load_all((gpu.MANIFESTS / "mps.yaml").read_text()) if part]
    daemon = body["spec"]["template"]["spec"]["containers"][1]
    assert daemon["command"] == [f"/usr/bin/{DAEMON}"]
    daemon["command"] = [DAEMON]
    cluster.set_label("mps7")  # before the daemon starts: its sidecar passes on no later change
    cluster.apps.create_namespaced_daemon_set(PLUGIN_NAMESPACE, body)
    read = cluster.core.read_namespaced_pod_log

    def are_there() -> bool:
        for pod in cluster.plugin_pods(DAEMON):
            statuses = {status.name: status for status in pod.status.container_statuses or []}
            is_up = pod.metadata.deletion_timestamp is None and statuses and statuses[f"{DAEMON}-ctr"].ready
            if is_up and IDLE in read(pod.metadata.name, PLUGIN_NAMESPACE, container=f"{DAEMON}-ctr"):
                # It was faster than its sidecar, and has the default config: another one may be luckier.
                cluster.delete_plugin_pod(pod.metadata.name)
        return cluster.allocatable() == 7

    try:
        eventually("7 GPUs by the daemon", are_there, 6 * RETRY_SECONDS)

        def is_crash_looping() -> bool:
            waiting = cluster.containers(DAEMON)[f"{DAEMON}-sidecar"].state.waiting
            return bool(waiting and waiting.reason == "CrashLoopBackOff")

        eventually("CrashLoopBackOff of the sidecar", is_crash_looping, 90.0)
        assert cluster.containers(DAEMON)[f"{DAEMON}-ctr"].ready
        assert cluster.allocatable() == 7
    finally:
        remove_daemon(cluster)
