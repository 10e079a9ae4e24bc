"""The driver sets and restores MIG layouts by NVIDIA's mig-manager, despite each of the manager's pitfalls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import normalised, owned, state, study_of
from cluster.harness import GPU, PLUGIN_NAMESPACE, Cluster, eventually, pod
from cluster.mig import MIG_LABEL, ONE_G, PAUSABLE, STATE, THREE_G, TWO_G, await_allocatable, configure, offered
from cluster.test_runs import GRANTED, NAMESPACE, audited, beyond, grant, run_in, unused
from cluster.testbed import gpu

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_manager
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.study.study import Study

OTHERS_LAYOUT = "all-3g.20gb"
# more than fits, which only the manager detects
CATALOGUE = {"mig-too-much": {"mechanism": "mig", "profiles": ["4g", "4g"]}}


@pytest.fixture(scope="module")
def study() -> Study:
    strategies = ["exclusive", "mig", "mig-unequal", "mig-time-slicing", *CATALOGUE]
    return normalised(
        study_of(
            "default",
            strategies=strategies,
            replicas=[1, 2, 3],
            strategy_catalogue=CATALOGUE,
            kubernetes={"may_change": ["mig"]},
        )
    )


@pytest.fixture
def node(mig: Cluster, study: Study, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ClusterNode]:
    """The study's node, whose GPU has no instances, or the layout given as parameter."""
    if hasattr(request, "param"):
        assert configure(mig, request.param) == "success"
        eventually("its labels", lambda: mig.labels().get("mig-3g.20gb.count") == "2")
        await_allocatable(mig, {THREE_G: 2})
    else:
        begin_whole(mig)
    with owned(mig, study, tmp_path) as made:
        yield made


# The layout at the start is restored, not a whole GPU.
on_a_cut_gpu = pytest.mark.parametrize("node", [OTHERS_LAYOUT], indirect=True, ids=[OTHERS_LAYOUT])


def begin_whole(mig: Cluster) -> None:
    """Remove the manager's labels and all instances, which earlier tests may have left."""
    mig.set_label(None)
    if "mig.config" in mig.labels():
        assert configure(mig, "all-disabled", "exclusive") == "success"
    for name in (MIG_LABEL, mig_manager.MIG_STATE_LABEL, *mig_manager.DEPLOY_LABELS):
        mig.set_label("true" if name in gpu.MIG_CLIENTS.values() else None, name)
    eventually("one GPU", lambda: offered(mig) == {"nvidia.com/gpu": 1})
    eventually("its labels", lambda: mig.labels().get("gpu.replicas") == "1")


def shown(mig: Cluster) -> dict[str, Any]:
    """Everything that a change of the layout may change, in the cluster and on the GPU."""
    node = mig.node()
    return {
        "instances": gpu.profiles(mig.instance),
        "labels": {
            name: value
            for name, value in mig.labels().items()
            if name.startswith(("mig", "gpu.deploy", "device-plugin", "gpu.product", "gpu.count"))
        },
        "taints": [taint.key for taint in node.spec.taints or []],
        "notes": [name for name in node.metadata.annotations if name.startswith("sharebench")],
        "allocatable": offered(mig),
        "configs": sorted(mig.core.read_namespaced_config_map("nvidia-device-plugin-configs", PLUGIN_NAMESPACE).data),
    }


def test_the_node_reaches_every_layout_and_is_restored(node: ClusterNode, study: Study, mig: Cluster) -> None:
    before = shown(mig)
    node.ensure(state(study, "mig"))
    assert offered(mig) == {ONE_G: 7}
    assert mig.labels()["mig.config"] == "all-1g.5gb"
    assert node.facts()["details"]["gpus"] == 1
    assert node.switched is not None
    phases = node.switched["phases"]
    # the states seen first are not old ones, and success is not the end
    assert all(phases[phase] > 0 for phase in ("publish", "pending", "cut", "plugin", "follow"))
    node.ensure(state(study, "mig-time-slicing"))
    assert offered(mig) == {"nvidia.com/mig-3g.20gb": 4}
    node.ensure(state(study, "exclusive"))
    assert offered(mig) == {"nvidia.com/gpu": 1}
    assert node.restore()
    assert shown(mig) == before


def test_a_plugin_with_the_single_mig_strategy(node: ClusterNode, study: Study, mig: Cluster) -> None:
    """The MIG strategy `single` is set for all keys, as is the GPU operator's default."""
    before = shown(mig)
    set_strategy(mig, "single")
    try:
        vars(node.cluster).pop("installed", None)
        assert "of its DaemonSet is single, not mixed" in str(node.infeasible(study.strategies["mig-unequal"], 3))
        node.ensure(state(study, "mig"))
        assert offered(mig) == {GPU: 7}
        node.ensure(state(study, "mig-time-slicing"))
        assert offered(mig) == {GPU: 4}
        assert mig.labels()["gpu.product"].endswith("-MIG-3g.20gb-SHARED")
        assert node.restore()
    finally:
        set_strategy(mig, None)
    eventually("the node as it was", lambda: shown(mig) == before)


def set_strategy(mig: Cluster, strategy: str | None) -> None:
    """The MIG strategy of the DaemonSets of plugin and GPU Feature Discovery; None leaves it to their configs."""
    variable = {"name": "MIG_STRATEGY"} | ({"$patch": "delete"} if strategy is None else {"value": strategy})
    for name in gpu.MIG_CLIENTS:
        change = {"containers": [{"name": f"{name}-ctr", "env": [variable]}]}
        mig.apps.patch_namespaced_daemon_set(name, PLUGIN_NAMESPACE, {"spec": {"template": {"spec": change}}})
    eventually("the roll-out", lambda: all(is_rolled_out(mig, name) for name in gpu.MIG_CLIENTS))


def is_rolled_out(mig: Cluster, name: str) -> bool:
    daemon_set = mig.apps.read_namespaced_daemon_set(name, PLUGIN_NAMESPACE)
    status = daemon_set.status
    is_seen = status.observed_generation == daemon_set.metadata.generation
    return is_seen and status.updated_number_scheduled == status.number_ready == 1


@on_a_cut_gpu
def test_a_layout_found_at_the_start_is_restored(node: ClusterNode, study: Study, mig: Cluster) -> None:
    node.ensure(state(study, "mig"))
    assert offered(mig) == {ONE_G: 7}
    # the same value again, for a layout that no longer exists
    gpu.cut(mig.instance, "1g.5gb 1g.5gb")
    # Without our taint, a new pod reads the GPU at once, and the old one once a minute.
    mig.core.patch_node(mig.node_name, {"spec": {"taints": None}})
    for each in mig.plugin_pods("gpu-feature-discovery"):
        mig.core.delete_namespaced_pod(each.metadata.name, PLUGIN_NAMESPACE)
    eventually("its labels", lambda: mig.labels().get("mig-1g.5gb.count") == "2")
    node.ensure(state(study, "mig"))
    assert offered(mig) == {ONE_G: 7}
    assert node.restore()
    assert (mig.labels()["mig.config"], mig.labels()["device-plugin.config"]) == (OTHERS_LAYOUT, "mig-mixed")
    assert gpu.profiles(mig.instance) == ["3g.20gb", "3g.20gb"]


@on_a_cut_gpu
def test_a_change_that_fails(node: ClusterNode, study: Study, mig: Cluster) -> None:
    """A manager that has succeeded before leaves plugin and labels away after a failed change."""
    before = shown(mig)
    assert before["instances"] == ["3g.20gb", "3g.20gb"]
    node.ensure(state(study, "mig"))
    with gpu.in_use(mig.instance), pytest.raises(NodeError, match="failed to set all-balanced"):
        node.ensure(state(study, "mig-unequal"))
    assert mig.labels()[PAUSABLE] == "true"
    # the failed value does not count as set
    node.ensure(state(study, "mig-unequal"))
    assert offered(mig) == {ONE_G: 2, TWO_G: 1, THREE_G: 1}
    # nor does a GPU in MIG mode without an instance
    with pytest.raises(NodeError, match="failed to set too-much"):
        node.ensure(state(study, "mig-too-much"))
    assert gpu.profiles(mig.instance) == []
    assert mig.labels()[PAUSABLE] == "true"
    eventually("the plugin", mig.plugin_pods)
    assert node.restore()
    assert shown(mig) == before


def test_a_gpu_that_does_not_enter_mig_mode(node: ClusterNode, study: Study, mig: Cluster) -> None:
    before = shown(mig)
    assert before["instances"] is None
    with gpu.in_use(mig.instance), pytest.raises(NodeError, match=r"failed to set all-1g\.5gb"):
        node.ensure(state(study, "mig"))
    assert node.restore()
    # The manager has stopped GPU feature discovery, which labels the node when it is back.
    eventually("all as before", lambda: shown(mig) == before)


@on_a_cut_gpu
def test_a_change_that_never_ends(node: ClusterNode, study: Study, mig: Cluster) -> None:
    """The manager waits for the pods that it stopped; one that stays keeps it pending forever."""
    before = shown(mig)
    node.cluster.options = {**node.cluster.options, "switch_seconds": 12}
    with running(mig, PLUGIN_NAMESPACE, "stays", {"app": "gpu-feature-discovery"}):
        with pytest.raises(
            NodeError, match=r"was pending for 12 s with all-1g\.5gb; it waits for pods to end: .*stays"
        ):
            node.ensure(state(study, "mig"))
        assert mig.labels()[PAUSABLE] == "true"
    node.cluster.options = {**node.cluster.options, "switch_seconds": 300}
    assert node.restore()
    assert shown(mig) == before


@contextmanager
def running(mig: Cluster, namespace: str, name: str, labels: dict[str, str], **changes: Any) -> Iterator[None]:
    """A pod of someone else."""
    made = pod(name, **changes)
    made["metadata"]["labels"] = labels
    made["spec"]["tolerations"] = [{"operator": "Exists"}]
    mig.core.create_namespaced_pod(namespace, made)
    try:
        mig.wait_for_phase(namespace, name)
        yield
    finally:
        mig.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        eventually(
            "its end", lambda: all(each.metadata.name != name for each in mig.core.list_namespaced_pod(namespace).items)
        )


def test_instances_that_others_use_or_set(node: ClusterNode, study: Study, mig: Cluster) -> None:
    config = mig.labels().get("device-plugin.config")
    node.ensure(state(study, "mig"))
    # the manager does not evict pods, which would lose their instance
    with running(mig, "default", "training", {}, resources={"limits": {ONE_G: "1"}}):
        with pytest.raises(NodeError, match="foreign GPU pods run on the node: default/training"):
            node.ensure(state(study, "exclusive"))
        assert mig.labels()["mig.config"] == "all-1g.5gb"
    node.ensure(state(study, "mig"))
    mig.set_label(OTHERS_LAYOUT, MIG_LABEL)
    with pytest.raises(NodeError, match=r"someone set the node's label nvidia.com/mig.config to all-3g\.20gb"):
        node.ensure(state(study, "mig"))
    # their layout stays, and the plugin has its old key, which shows such a GPU as a whole one
    assert node.restore()
    assert mig.labels()["mig.config"] == OTHERS_LAYOUT
    assert mig.labels().get("device-plugin.config") == config
    eventually("the end of their change", lambda: mig.labels().get(STATE) == "success")
    eventually("its labels", lambda: mig.labels().get("gpu.replicas") == "0")
    await_allocatable(mig, {GPU: 1})


@pytest.mark.slow
def test_a_run_with_only_the_rights_of_the_manifests(mig: Cluster, tmp_path: Path) -> None:
    begin_whole(mig)
    folders = (*GRANTED, "plugin/mig")
    grant(mig, *folders)
    since, options = len(audited(mig)), {"may_change": ["mig"]}
    given = study_of(NAMESPACE, strategies=["mig"], replicas=[2], baseline="none", null_cells=False, kubernetes=options)
    run_in(tmp_path / "study", mig.kubeconfig_of("sharebench", NAMESPACE, tmp_path), given).passed()
    grant(mig, *folders, delete=True)
    assert not beyond(mig, since, *folders)
    assert not unused(mig, since, "plugin/mig")
