"""The driver's readiness where a device plugin fails as NVIDIA's own cannot be made to: a stand-in of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.driving import grants, normalised, owned, state, study_of, tenants_of
from cluster.harness import GPU, RESTRICTED, Cluster, eventually, own_bed
from cluster.testbed import gpu
from cluster.testbed.fake_plugin import FakePlugin, idle

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.node import ClusterNode
from sharebench.study.study import Study

pytestmark = pytest.mark.testbed
SHARED = "nvidia.com/gpu.shared"
KUBELET_SECONDS = 25.0  # it reports every ten, and later under load


@pytest.fixture(scope="module")
def bed(machine: None) -> Iterator[Cluster]:
    """A test bed of its own whose plugin offers nothing, with NVIDIA's own labels."""
    with own_bed("fake-plugin") as found:
        gpu.install(found.kubeconfig)
        idle(found)
        cluster = Cluster(found.kubeconfig, found)
        eventually("no GPU", lambda: cluster.allocatable() == 0, KUBELET_SECONDS)
        yield cluster


@pytest.fixture
def offered(bed: Cluster, tmp_path: Path) -> Iterator[FakePlugin]:
    """One GPU to begin with."""
    assert bed.instance is not None
    made = FakePlugin(bed.instance, tmp_path, "gpu")
    try:
        made.offer(1)
        eventually("a GPU", lambda: bed.allocatable() == 1, KUBELET_SECONDS)
        yield made
    finally:
        made.stop()


@pytest.fixture
def study(bed: Cluster) -> Iterator[Study]:
    with bed.namespace(RESTRICTED) as namespace:
        options = {"stable_seconds": 3, "switch_seconds": 60}
        yield normalised(study_of(namespace, strategies=["exclusive", "time-slicing"], kubernetes=options))


@pytest.fixture
def node(bed: Cluster, offered: FakePlugin, study: Study, tmp_path: Path) -> Iterator[ClusterNode]:
    with owned(bed, study, tmp_path) as made:
        yield made
        offered.offer(1)


class Switch:
    """The driver on its way into time-slicing for three, meanwhile."""

    def __init__(self, node: ClusterNode, study: Study) -> None:
        self.failure: NodeError | None = None
        self._thread = threading.Thread(target=self._go, args=(node, study))
        self._thread.start()

    def _go(self, node: ClusterNode, study: Study) -> None:
        try:
            node.ensure(state(study, "time-slicing"))
        except NodeError as failure:
            self.failure = failure

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> NodeError | None:
        self._thread.join(120)
        assert self.is_over
        return self.failure


def is_labelled(cluster: Cluster) -> bool:
    labels = cluster.labels()
    return str(labels.get("device-plugin.config")).startswith("sharebench") and labels.get("gpu.replicas") == "3"


def test_allocatable_that_is_0_for_long_and_bounces(
    bed: Cluster, offered: FakePlugin, node: ClusterNode, study: Study
) -> None:
    offered.offer(0)
    eventually("no GPU", lambda: bed.allocatable() == 0, KUBELET_SECONDS)
    switch = Switch(node, study)
    eventually("all labels", lambda: is_labelled(bed))
    for count in (2, 0):
        offered.offer(count)
        eventually(f"{count} GPUs", lambda count=count: bed.allocatable() == count, KUBELET_SECONDS)  # type: ignore[misc]
        assert not switch.is_over
    offered.offer(3)
    assert switch.result() is None
    assert bed.allocatable() == 3


def test_allocatable_that_stays_0_is_named(node: ClusterNode, offered: FakePlugin, study: Study) -> None:
    node.cluster.options = {**node.cluster.options, "switch_seconds": 20}
    offered.offer(0)
    failure = Switch(node, study).result()
    assert "allocatable is nothing, not nvidia.com/gpu 3" in str(failure)


def test_a_name_that_never_vanishes_hinders_only_while_it_has_devices(
    bed: Cluster, offered: FakePlugin, node: ClusterNode, study: Study, tmp_path: Path
) -> None:
    assert bed.instance is not None
    offered.offer(3)
    assert Switch(node, study).result() is None
    renamed = FakePlugin(bed.instance, tmp_path, "shared", SHARED)
    try:
        renamed.offer(4)
        eventually("the other name", lambda: bed.allocatable(SHARED) == 4, KUBELET_SECONDS)
        node.cluster.options = {**node.cluster.options, "switch_seconds": 20}
        assert f"{SHARED} 4" in str(Switch(node, study).result())
        renamed.offer(0)
        eventually("none under the other name", lambda: bed.allocatable(SHARED) == 0, KUBELET_SECONDS)
    finally:
        renamed.stop()
    assert SHARED in bed.resources()
    node.cluster.options = {**node.cluster.options, "switch_seconds": 60}
    assert Switch(node, study).result() is None


def test_two_plugins_with_one_name(
    bed: Cluster, offered: FakePlugin, node: ClusterNode, study: Study, tmp_path: Path
) -> None:
    """Whoever spoke last counts for the kubelet; the driver sees by the number that it was another one."""
    assert bed.instance is not None
    offered.offer(3)
    assert Switch(node, study).result() is None
    second = FakePlugin(bed.instance, tmp_path, "second")
    try:
        second.offer(5)
        eventually("the second one's devices", lambda: bed.allocatable() == 5, KUBELET_SECONDS)
        node.cluster.options = {**node.cluster.options, "switch_seconds": 10}
        assert "allocatable is nvidia.com/gpu 5, not nvidia.com/gpu 3" in str(Switch(node, study).result())
        second.offer(3)
        node.cluster.options = {**node.cluster.options, "switch_seconds": 60}
        assert Switch(node, study).result() is None
    finally:
        second.stop()


def test_a_device_that_turns_unhealthy_while_tenants_run(
    bed: Cluster, offered: FakePlugin, node: ClusterNode, study: Study
) -> None:
    offered.offer(3)
    assert Switch(node, study).result() is None
    tenants = tenants_of(node, study, 3)
    try:
        tenants.start(grants(3))
        tenants.wait_ready()
        offered.offer(1, unhealthy=2)
        eventually("one device", lambda: bed.allocatable() == 1, KUBELET_SECONDS)
        proof = node.evidence(study.strategies["time-slicing"], grants(3), [])
        seen = {item["name"]: item for item in proof}
        assert not seen["allocatable"]["holds"]
        assert seen["allocatable"]["observed"] == {GPU: 1}
        assert all(item["holds"] for name, item in seen.items() if name.startswith("label"))
    finally:
        tenants.stop()
    offered.offer(3)
    assert Switch(node, study).result() is None
