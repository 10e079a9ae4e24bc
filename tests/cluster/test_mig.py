"""MIG by NVIDIA's mig-manager and device plugin: what these do, and the driver's way through it and back."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, node_of, normalised, state, study_of
from cluster.harness import GPU, PLUGIN_NAMESPACE, RESTRICTED, Cluster, eventually, pod
from cluster.testbed import gpu, lifecycle

from sharebench.matrix import Study
from sharebench.nodes.base import NodeError
from sharebench.nodes.kubernetes import mig_manager
from sharebench.nodes.kubernetes.cluster_node import ClusterNode

pytestmark = pytest.mark.testbed
MIG_LABEL, STATE = "nvidia.com/mig.config", "mig.config.state"
ONE_G, TWO_G, THREE_G = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb")
SHOW_DEVICE = "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES']); time.sleep(3600)"


RUN = "20261120-000000-aaaa"
LAYOUTS = "mig-parted-config"
PAUSABLE = "gpu.deploy.device-plugin"
CATALOGUE = {
    # no layout of the map has it alone
    "mig-own": {"mechanism": "mig", "profile": "2g", "replicas": [1, 2]},
    # more than fits, which only the manager finds out
    "mig-too-much": {"mechanism": "mig", "profiles": ["3g", "3g", "3g"]},
}


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
    eventually(f"allocatable {wanted}", lambda: offered(cluster) == wanted, 60.0)


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


def test_after_a_layout_that_does_not_fit_plugin_and_labels_stay_away(mig: Cluster) -> None:
    """The GPU is left empty, and gpu.deploy.* at paused-for-mig-change, until a good layout comes."""
    assert configure(mig, "all-1g.5gb") == "success"
    assert configure(mig, "too-much") == "failed"
    assert mig.labels()["gpu.deploy.device-plugin"] == "paused-for-mig-change"
    assert mig.plugin_pods() == []
    assert configure(mig, "all-balanced") == "success"
    await_allocatable(mig, {ONE_G: 2, TWO_G: 1, THREE_G: 1})


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
def node(mig: Cluster, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterNode]:
    """The study's node, whose GPU nobody has cut."""
    monkeypatch.setenv("KUBECONFIG", str(mig.kubeconfig))
    monkeypatch.setenv("SHAREBENCH_RUN_ID", RUN)
    begin_whole(mig)
    made = node_of(study, tmp_path / "node", RUN)
    yield made
    made.restore()
    made.release()


def begin_whole(mig: Cluster) -> None:
    """No label of the manager's on the node, and no instances, whatever the tests of other people's programs left."""
    mig.set_label(None)
    if "mig.config" in mig.labels():
        assert configure(mig, "all-disabled", "exclusive") == "success"
    for name in (MIG_LABEL, mig_manager.STATE_LABEL, *mig_manager.DEPLOY_LABELS):
        mig.set_label("true" if name in gpu.MIG_CLIENTS.values() else None, name)
    eventually("one GPU", lambda: offered(mig) == {"nvidia.com/gpu": 1}, 60.0)
    eventually("its labels", lambda: mig.labels().get("gpu.replicas") == "1")


def offered(mig: Cluster) -> dict[str, int]:
    return {name: count for name, (_, count) in mig.resources().items() if count}


def shown(mig: Cluster) -> dict[str, Any]:
    """Everything of the cluster that a change of the layout may change."""
    node = mig.node()
    return {
        "labels": {
            name: value
            for name, value in mig.labels().items()
            if name.startswith(("mig", "gpu.deploy", "device-plugin", "gpu.product", "gpu.count"))
        },
        "taints": [taint.key for taint in node.spec.taints or []],
        "notes": [name for name in node.metadata.annotations if name.startswith("sharebench")],
        "allocatable": offered(mig),
        "layouts": mig.core.read_namespaced_config_map(LAYOUTS, PLUGIN_NAMESPACE).data,
        "configs": sorted(mig.core.read_namespaced_config_map("nvidia-device-plugin-configs", PLUGIN_NAMESPACE).data),
    }


def test_through_all_layouts_and_back(node: ClusterNode, study: Study, mig: Cluster) -> None:
    before = shown(mig)
    node.ensure(state(study, "mig-own"))
    assert offered(mig) == {TWO_G: 3}
    assert mig.labels()["mig.config"] == "sharebench-3x2g.10gb"
    assert node.facts()["details"]["gpus"] == 1
    assert node.switched is not None
    phases = node.switched["phases"]
    # the first states that were seen are not those of before, and success is not the end
    assert all(phases[phase] > 0 for phase in ("publish", "pending", "cut", "plugin", "follow"))
    node.ensure(state(study, "mig-time-slicing"))
    assert offered(mig) == {"nvidia.com/mig-3g.20gb": 4}
    node.ensure(state(study, "exclusive"))
    assert offered(mig) == {"nvidia.com/gpu": 1}
    assert node.restore()
    assert shown(mig) == before


def test_a_layout_that_somebody_made_comes_back(node: ClusterNode, study: Study, mig: Cluster) -> None:
    mig.set_label("mig-mixed")
    mig.set_label("all-3g.20gb", MIG_LABEL)

    def is_let_in() -> bool:
        """The manager is at the other layout, or about to begin with it, and its success with that is not ours."""
        try:
            node.ensure(state(study, "mig"))
        except NodeError as refusal:
            assert "MIG" in str(refusal)
            return False
        return True

    eventually("the end of the other change", is_let_in, 90.0)
    assert offered(mig) == {ONE_G: 7}
    # the same value again, for a layout that is not there any more
    assert mig.instance is not None
    gpu.cut(mig.instance, "1g.5gb 1g.5gb")
    # Without our taint a new pod looks at the GPU at once, and the old one once a minute.
    mig.core.patch_node(mig.node_name, {"spec": {"taints": None}})
    for each in mig.plugin_pods("gpu-feature-discovery"):
        mig.core.delete_namespaced_pod(each.metadata.name, PLUGIN_NAMESPACE)
    eventually("its labels", lambda: mig.labels().get("mig-1g.5gb.count") == "2", 90.0)
    node.ensure(state(study, "mig"))
    assert offered(mig) == {ONE_G: 7}
    assert node.restore()
    assert (mig.labels()["mig.config"], mig.labels()["device-plugin.config"]) == ("all-3g.20gb", "mig-mixed")
    assert gpu.profiles(mig.instance) == ["3g.20gb", "3g.20gb"]


def test_a_change_that_fails(node: ClusterNode, study: Study, mig: Cluster) -> None:
    """After a success in its life the manager leaves plugin and labels away when a change fails."""
    before = shown(mig)
    node.ensure(state(study, "mig"))
    assert mig.instance is not None
    with gpu.in_use(mig.instance), pytest.raises(NodeError, match="failed to set all-balanced"):
        node.ensure(state(study, "mig-unequal"))
    assert mig.labels()[PAUSABLE] == "true"
    # and a GPU in MIG mode without an instance
    with pytest.raises(NodeError, match="failed to set too-much"):
        node.ensure(state(study, "mig-too-much"))
    assert mig.labels()[PAUSABLE] == "true"
    eventually("the plugin", mig.plugin_pods)
    assert node.restore()
    assert shown(mig) == before


def test_a_change_that_never_ends(node: ClusterNode, study: Study, mig: Cluster) -> None:
    """The manager waits for the pods of what it stopped; one that stays keeps it pending for ever."""
    before = shown(mig)
    node.options = {**node.options, "switch_seconds": 12}
    with running(mig, PLUGIN_NAMESPACE, "stays", {"app": "gpu-feature-discovery"}):
        with pytest.raises(
            NodeError, match=r"was pending for 12 s with all-1g\.5gb; it waits for pods to end: .*stays"
        ):
            node.ensure(state(study, "mig"))
        assert mig.labels()[PAUSABLE] == "true"
    node.options = {**node.options, "switch_seconds": 120}
    node.ensure(state(study, "mig"))
    assert offered(mig) == {"nvidia.com/mig-1g.5gb": 7}
    assert node.restore()
    assert shown(mig) == before


def test_a_manager_that_does_nothing(
    node: ClusterNode, study: Study, mig: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shown(mig)
    monkeypatch.setattr(mig_manager, "SILENT_SECONDS", 2.0)
    nowhere = {"spec": {"template": {"spec": {"nodeSelector": {"sharebench.test/nowhere": "true"}}}}}
    everywhere = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    mig.apps.patch_namespaced_daemon_set("nvidia-mig-manager", PLUGIN_NAMESPACE, nowhere)
    try:
        eventually("no manager", lambda: not managers(mig))
        node.options = {**node.options, "switch_seconds": 8}
        with pytest.raises(NodeError, match=r"did nothing about all-1g\.5gb"):
            node.ensure(state(study, "mig"))
        assert "mig.config" not in mig.labels()
    finally:
        mig.apps.patch_namespaced_daemon_set("nvidia-mig-manager", PLUGIN_NAMESPACE, everywhere)
    eventually("the manager", lambda: managers(mig))
    node.options = {**node.options, "switch_seconds": 120}
    assert node.restore()
    assert shown(mig) == before


@contextmanager
def running(mig: Cluster, namespace: str, name: str, labels: dict[str, str], **changes: Any) -> Iterator[None]:
    """A pod of somebody else."""
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


def managers(mig: Cluster) -> list[Any]:
    return list(mig.core.list_namespaced_pod(PLUGIN_NAMESPACE, label_selector="app=nvidia-mig-manager").items)


@pytest.mark.slow
def test_instances_that_others_use_or_set(node: ClusterNode, study: Study, mig: Cluster) -> None:
    node.ensure(state(study, "mig"))
    # the manager does not evict, and pods would lose their instance under their feet
    with running(mig, "default", "training", {}, resources={"limits": {ONE_G: "1"}}):
        with pytest.raises(NodeError, match="GPU pods of others run on the node: default/training"):
            node.ensure(state(study, "exclusive"))
        assert mig.labels()["mig.config"] == "all-1g.5gb"
    node.ensure(state(study, "mig"))
    mig.set_label("all-3g.20gb", MIG_LABEL)
    with pytest.raises(NodeError, match=r"somebody set the node's label nvidia.com/mig.config to all-3g\.20gb"):
        node.ensure(state(study, "mig"))
    # theirs is left alone
    node.restore()
    assert mig.labels()["mig.config"] == "all-3g.20gb"


@pytest.mark.slow
def test_a_study(node: ClusterNode, mig: Cluster, tmp_path: Path) -> None:
    """Tenants on instances of their own size, on shared ones, and on the whole GPU, in one run."""
    node.release()
    with mig.namespace(RESTRICTED) as namespace:
        given = study_of(
            namespace,
            strategies=["mig-unequal", "mig-time-slicing", "mig-mps"],
            replicas=[3],
            null_cells=False,
            kubernetes={"may_change": ["mig"]},
        )
        folder = tmp_path / "study"
        folder.mkdir()
        code, out = Run(folder, mig.kubeconfig, given).finish()
    assert code == 0, out
    records = {
        record["cell"]["strategy"]: record
        for record in (json.loads(path.read_text()) for path in folder.glob("results/cells/*/*/*/*/raw.json"))
    }
    assert {name: record["status"] for name, record in records.items()} == {
        "exclusive": "ok",
        "mig-unequal": "ok",
        "mig-time-slicing": "ok",
        "mig-mps": "infeasible",
    }
    assert "refuses MPS on MIG instances" in records["mig-mps"]["reason"]
    # one device for all tables, however it is cut
    assert len({record["node"]["device"] for record in records.values()}) == 1
    measured = {name: record for name, record in records.items() if record["status"] == "ok"}
    assert all(item["holds"] for record in measured.values() for item in record["evidence"])
    given_devices = {
        name: sorted(Counter(tenant["view"]["device"] for tenant in record["tenants"]).values())
        for name, record in measured.items()
    }
    assert given_devices == {"exclusive": [1], "mig-unequal": [1, 1, 1], "mig-time-slicing": [1, 2]}
    with (folder / "results" / "tables" / "startup.csv").open(newline="") as file:
        steps = {row["strategy"]: row for row in csv.DictReader(file)}
    for name in ("mig-unequal", "mig-time-slicing"):
        assert float(steps[name]["switch_cut_seconds"]) > 0
