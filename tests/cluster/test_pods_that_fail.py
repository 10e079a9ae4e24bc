"""Failures of pods are reported in the cluster's words within seconds, and leave nothing behind."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import TIMEOUTS, grants, normalised, owned, state, study_of, tenants_of
from cluster.harness import GPU, Cluster, eventually
from cluster.testbed import lifecycle

from sharebench.measure.nodes.contract import NodeError, TenantUnreachable
from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.access.device_plugin.plugin import DevicePluginAccess
from sharebench.measure.nodes.kubernetes.cluster.cluster import node_unready_reason
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.pods import manifest
from sharebench.measure.nodes.kubernetes.pods.forward import OPEN_TIMEOUT_SECONDS
from sharebench.measure.nodes.tenants.endpoint import TIMEOUT_SECONDS, HttpEndpoint
from sharebench.study.study import Study

# From the cluster's report to the driver's message, also on a busy machine: no time-out has been waited for.
NAMED_SECONDS = TIMEOUTS["start_seconds"] / 2
# One request on the kept connection, one on a new one, and the last attempt to open one.
UNREACHABLE_SECONDS = 2 * TIMEOUT_SECONDS + OPEN_TIMEOUT_SECONDS + NAMED_SECONDS


@pytest.fixture
def study(namespace: str) -> Study:
    return normalised(study_of(namespace))


@pytest.fixture
def node(plugin: Cluster, study: Study, tmp_path: Path) -> Iterator[ClusterNode]:
    with owned(plugin, study, tmp_path) as made:
        yield made


def left(cluster: Cluster, namespace: str) -> list[str]:
    """Our remaining objects."""
    found = cluster.core.list_namespaced_config_map(namespace, label_selector="sharebench/node").items
    found += cluster.core.list_namespaced_pod(namespace, label_selector="sharebench/node").items
    return [each.metadata.name for each in found]


def failure(node: ClusterNode, study: Study, count: int = 1, **workload: Any) -> str:
    """The message with which unavailable tenants fail."""
    tenants = tenants_of(node, study, count, **workload)
    began = time.monotonic()
    try:
        with pytest.raises(NodeError) as caught:
            tenants.start(grants(count))
            tenants.wait_ready()
        assert time.monotonic() - began < NAMED_SECONDS
    finally:
        tenants.stop()
    return str(caught.value)


def test_tenants_without_room_on_the_node_fail(
    node: ClusterNode, study: Study, plugin: Cluster, namespace: str
) -> None:
    node.ensure(state(study, "time-slicing"))
    line = failure(node, study, 4)
    assert "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu" in line
    assert left(plugin, namespace) == []


def test_a_missing_namespace_fails(node: ClusterNode, study: Study) -> None:
    node.cluster.options = {**node.cluster.options, "namespace": "no-such-namespace"}
    assert 'namespaces "no-such-namespace" not found' in failure(node, study)


def test_a_request_that_the_plugin_refuses_fails(
    node: ClusterNode, study: Study, plugin: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler finds room, but the plugin refuses a request for more than one client's share."""
    node.ensure(state(study, "mps", 3))
    monkeypatch.setattr(DevicePluginAccess, "pod_needs", lambda *_: PodNeeds(limits={GPU: "2"}))
    line = failure(node, study)
    assert "UnexpectedAdmissionError" in line
    assert "maximum request size for shared resources is 1; found 2" in line
    assert left(plugin, namespace) == []


def test_a_container_that_the_runtime_cannot_create_fails(
    node: ClusterNode, study: Study, plugin: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pod = manifest.tenant_pod

    def with_lost_profile(*arguments: Any) -> dict[str, Any]:
        body = copy.deepcopy(make_pod(*arguments))
        lost = {"type": "Localhost", "localhostProfile": "lost.json"}
        body["spec"]["containers"][0]["securityContext"]["seccompProfile"] = lost
        return body

    monkeypatch.setattr(manifest, "tenant_pod", with_lost_profile)
    line = failure(node, study)
    assert "CreateContainerError" in line
    assert "lost.json" in line
    assert left(plugin, namespace) == []


def test_a_workload_that_the_image_cannot_run_fails(node: ClusterNode, study: Study) -> None:
    assert "onnxruntime" in failure(node, study, module="detector", params={})


def test_an_evicted_pod_fails(node: ClusterNode, study: Study, plugin: Cluster, namespace: str) -> None:
    tenants = tenants_of(node, study, 1)
    try:
        tenants.start(grants(1))
        tenants.wait_ready()
        name = tenants.units[0].name
        plugin.core.create_namespaced_pod_eviction(name, namespace, {"metadata": {"name": name}})
        with pytest.raises(NodeError, match="EvictionByEvictionAPI"):
            tenants.sleep_until(tenants.now_ns() + 60 * 10**9)
    finally:
        tenants.stop()
    assert left(plugin, namespace) == []


def test_an_unreachable_api_server_fails(
    node: ClusterNode, study: Study, plugin: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A harness failure after the retries, here sooner than usual; remaining objects are swept later."""
    retry_limit_seconds = 5.0
    monkeypatch.setattr(node.cluster.api, "retry_limit_seconds", retry_limit_seconds)
    tenants = tenants_of(node, study, 1)
    tenants.start(grants(1))
    tenants.wait_ready()
    lifecycle.hold(plugin.instance, "kube-apiserver")
    try:
        with pytest.raises(NodeError, match="the API server cannot be reached since 5 s"):
            tenants.sleep_until(tenants.now_ns() + 120 * 10**9)
        with pytest.raises(NodeError, match="the API server cannot be reached since 5 s"):
            tenants.stop()
    finally:
        plugin.bring_api_server_back()
    assert left(plugin, namespace)
    eventually("a sweep", lambda: is_swept(node))
    assert left(plugin, namespace) == []


def is_swept(node: ClusterNode) -> bool:
    try:
        node.sweep()
    except NodeError:
        return False
    return True


def test_pods_are_deleted_with_the_config_map(node: ClusterNode, study: Study, plugin: Cluster, namespace: str) -> None:
    tenants = tenants_of(node, study, 1)
    try:
        tenants.start(grants(1))
        plugin.core.delete_namespaced_config_map(tenants.place.name, namespace)
        eventually("the garbage collector", lambda: left(plugin, namespace) == [])
    finally:
        tenants.stop()


def test_a_kubelet_that_hangs_is_given_up(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    """Its connections stay open: neither the kept one nor a new one ever answers."""
    tenants = tenants_of(node, study, 1)
    try:
        tenants.start(grants(1))
        tenants.wait_ready()
        (endpoint,) = tenants.endpoints()
        began = time.monotonic()
        with lifecycle.frozen(plugin.instance, "kubelet"):
            with pytest.raises(TenantUnreachable, match="GET /clock: the API server forwards no port of the pod"):
                endpoint.read_clock()
            assert time.monotonic() - began < UNREACHABLE_SECONDS
        eventually("an answer", lambda: is_answering(endpoint))
    finally:
        tenants.stop()
    eventually("the node", lambda: node_unready_reason(node.cluster.read_node()) is None)


def is_answering(endpoint: HttpEndpoint) -> bool:
    try:
        return endpoint.read_clock() is not None
    except TenantUnreachable:
        return False


def test_a_silent_node_fails(node: ClusterNode, study: Study, plugin: Cluster) -> None:
    """The cluster takes most of a minute to notice it; the driver then reports it at once."""
    tenants = tenants_of(node, study, 1)
    try:
        tenants.start(grants(1))
        tenants.wait_ready()
        lifecycle.hold(plugin.instance, "kubelet")
        with pytest.raises(NodeError, match="the node is not ready: NodeStatusUnknown: Kubelet stopped posting"):
            tenants.sleep_until(tenants.now_ns() + 120 * 10**9)
    finally:
        lifecycle.release(plugin.instance, "kubelet")
        tenants.stop()
    eventually("the node", lambda: node_unready_reason(node.cluster.read_node()) is None)
