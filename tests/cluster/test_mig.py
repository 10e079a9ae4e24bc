"""MIG by NVIDIA's mig-manager and device plugin, on the mock GPU's layout."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from cluster.harness import GPU, Cluster, eventually
from cluster.testbed import gpu, lifecycle

pytestmark = pytest.mark.testbed
MIG_LABEL, STATE = "nvidia.com/mig.config", "mig.config.state"
ONE_G, TWO_G, THREE_G = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb")
SHOW_DEVICE = "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES']); time.sleep(3600)"


@pytest.fixture(scope="module")
def mig(machine: None) -> Iterator[Cluster]:
    """A test bed of its own: its GPU and daemons are others than those of the shared one."""
    name = f"mig-tests-{os.getpid()}"
    found = lifecycle.up(name)
    try:
        gpu.install(found.kubeconfig)
        gpu.install_mig(found)
        yield Cluster(found.kubeconfig, found)
    finally:
        lifecycle.down(name)


def configure(cluster: Cluster, mig_config: str, plugin_config: str = "mig-mixed") -> str:
    """Set both labels; the state that the manager ends in. It does nothing about a value that it has seen last."""
    cluster.set_label(plugin_config)
    if cluster.labels().get("mig.config") == mig_config:
        return cluster.labels()[STATE]
    cluster.set_label(None, f"nvidia.com/{STATE}")
    cluster.set_label(mig_config, MIG_LABEL)
    return eventually("an end state", lambda: ended_state(cluster), 90.0)


def ended_state(cluster: Cluster) -> str | None:
    state = cluster.labels().get(STATE)
    return state if state in ("success", "failed") else None


def await_allocatable(cluster: Cluster, wanted: dict[str, int]) -> None:
    def is_there() -> bool:
        offered = {name: count for name, (_, count) in cluster.resources().items() if count}
        return offered == wanted

    eventually(f"allocatable {wanted}", is_there, 60.0)


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


def test_instances_can_be_time_sliced(mig: Cluster) -> None:
    assert configure(mig, "all-1g.5gb", "mig-mixed-ts3") == "success"
    await_allocatable(mig, {ONE_G: 21})


def test_an_unknown_layout_fails_at_once_and_a_good_one_repairs(mig: Cluster) -> None:
    assert configure(mig, "all-3g.20gb") == "success"
    assert configure(mig, "no-such-layout") == "failed"
    assert configure(mig, "all-balanced") == "success"
    await_allocatable(mig, {ONE_G: 2, TWO_G: 1, THREE_G: 1})


def test_after_a_layout_that_does_not_fit_plugin_and_labels_stay_away(mig: Cluster) -> None:
    """The GPU is left empty, and gpu.deploy.* at paused-for-mig-change, until a good layout comes."""
    assert configure(mig, "all-1g.5gb") == "success"
    assert configure(mig, "too-much") == "failed"
    assert mig.labels()["gpu.deploy.device-plugin"] == "paused-for-mig-change"
    assert mig.plugin_pods() == []
    assert configure(mig, "all-balanced") == "success"
    await_allocatable(mig, {ONE_G: 2, TWO_G: 1, THREE_G: 1})


def test_the_whole_gpu_comes_back(mig: Cluster) -> None:
    assert configure(mig, "all-disabled", "exclusive") == "success"
    await_allocatable(mig, {GPU: 1})
