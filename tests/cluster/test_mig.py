"""What NVIDIA's mig-manager and device plugin do with a GPU that can be cut."""

from __future__ import annotations

import time

import pytest
from cluster.harness import GPU, Cluster, eventually
from cluster.mig import MIG_LABEL, ONE_G, PAUSABLE, STATE, THREE_G, TWO_G, await_allocatable, configure

from sharebench.nodes.kubernetes.access.device_plugin import mig_manager

pytestmark = pytest.mark.testbed
SHOW_DEVICE = "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES']); time.sleep(3600)"
# A failure took 0.06 s to show.
DEAF_SECONDS = 3.0


def test_each_of_seven_pods_gets_an_instance_of_its_own(mig: Cluster) -> None:
    assert configure(mig, "all-1g.5gb") == "success"
    await_allocatable(mig, {ONE_G: 7})
    with mig.namespace({"pod-security.kubernetes.io/enforce": "restricted"}) as namespace:
        names = [f"tenant-{index}" for index in range(8)]
        for name in names:
            mig.start(namespace, name, SHOW_DEVICE, resources={"limits": {ONE_G: "1"}})
        for name in names[:7]:
            mig.wait_for_phase(namespace, name)
        assert eventually("a verdict", lambda: mig.unschedulable(namespace, names[7]))
        read = mig.core.read_namespaced_pod_log
        devices = {eventually("a log", lambda name=name: read(name, namespace)) for name in names[:7]}
        assert len(devices) == 7
        assert all(device.startswith("MIG-") for device in devices)


def test_a_mixed_layout_offers_every_profile_and_old_names_stay_with_nothing(mig: Cluster) -> None:
    assert configure(mig, "all-balanced") == "success"
    await_allocatable(mig, {ONE_G: 2, TWO_G: 1, THREE_G: 1})
    assert configure(mig, "all-3g.20gb") == "success"
    await_allocatable(mig, {THREE_G: 2})
    assert {ONE_G, TWO_G} <= set(mig.resources())


def test_single_strategy_offers_instances_as_whole_gpus(mig: Cluster) -> None:
    assert configure(mig, "all-1g.5gb", "mig-single") == "success"
    await_allocatable(mig, {GPU: 7})
    eventually("a product with its profile", lambda: mig.labels()["gpu.product"].endswith("-MIG-1g.5gb"))


def test_single_strategy_offers_nothing_of_unequal_instances(mig: Cluster) -> None:
    assert configure(mig, "all-balanced", "mig-single") == "success"
    eventually("an invalid product", lambda: mig.labels()["gpu.product"].endswith("-MIG-INVALID"))
    await_allocatable(mig, {})


def test_after_a_layout_that_does_not_fit_plugin_and_labels_stay_away(mig: Cluster) -> None:
    """The GPU is left empty, and gpu.deploy.* at paused-for-mig-change, until a good layout comes."""
    assert configure(mig, "all-1g.5gb") == "success"
    assert configure(mig, "too-much") == "failed"
    assert mig.labels()[PAUSABLE] == mig_manager.PAUSED_VALUE
    assert mig.plugin_pods() == []
    # It does nothing about the value that it has seen last.
    mig.set_label(None, mig_manager.MIG_STATE_LABEL)
    mig.set_label("too-much", MIG_LABEL)
    time.sleep(DEAF_SECONDS)
    assert STATE not in mig.labels()
    assert configure(mig, "all-balanced") == "success"
    await_allocatable(mig, {ONE_G: 2, TWO_G: 1, THREE_G: 1})
