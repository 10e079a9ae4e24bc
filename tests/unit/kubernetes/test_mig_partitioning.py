"""Setting MIG states and restoring the node, on a fake cluster."""

import copy
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from unit.kubernetes.fake_cluster import CONFIGS, MAP, NODE, MigCluster, leased
from unit.studies import config_with

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import NodeError, State
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_manager, plugin, readers
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_instances import whole_product
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_layouts import MIG_CONFIG_LABEL
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_manager import MigManager
from sharebench.measure.nodes.kubernetes.cluster import saved_state
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.model.config.load import load
from sharebench.study.study import Study

LACKING = {"mechanism": "mig", "profiles": ["4g.20gb", "1g"]}
ONE_G, TWO_G, THREE_G = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb")
STRATEGIES = ["exclusive", "mps", "mig", "mig-unequal", "mig-time-slicing", "mig-mps", "lacking"]
STUDY = Study(
    load(
        config_with(
            {
                "node": "kubernetes",
                "strategies": STRATEGIES,
                "replicas": [1, 2],
                "strategy_catalogue.lacking": LACKING,
                "kubernetes": {"may_change": ["mig"]},
            }
        )
    )
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MigCluster:
    made = MigCluster()
    for module in (plugin, readers, mig_manager):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setenv(RUN_ID_VARIABLE, "a-run")
    return made


def opened(cluster: MigCluster, folder: Path, **options: Any) -> ClusterNode:
    return leased(cluster, STUDY.node_options() | options, folder)


def state(name: str) -> State:
    return State(STUDY.strategies[name], None, 0)


def offered(cluster: MigCluster) -> dict[str, str]:
    values = cluster.store[NODE]["status"]["allocatable"]
    return {name: value for name, value in values.items() if name != "cpu" and value != "0"}


def limits(node: ClusterNode, name: str, replicas: int) -> list[str]:
    """Resources that the pods of a cell request."""
    cell = next(each for each in STUDY.cells if (each.strategy, each.replicas) == (name, replicas))
    spec, strategy = STUDY.spec(cell), STUDY.strategies[name]
    access = node.access_of(strategy)
    return [resource for grant in node.grants(strategy, replicas) for resource in access.pod_needs(spec, grant).limits]


def test_the_node_reaches_every_state_and_is_restored(cluster: MigCluster, tmp_path: Path) -> None:
    before = copy.deepcopy(cluster.store)
    node = opened(cluster, tmp_path)
    node.ensure(state("mig"))
    assert offered(cluster) == {"nvidia.com/mig-1g.5gb": "7"}
    assert limits(node, "mig", 2) == ["nvidia.com/mig-1g.5gb"] * 2
    assert node.switched is not None
    assert set(node.switched["phases"]) == {"publish", "cut", "follow", "stable"}
    node.ensure(state("mig-time-slicing"))
    assert offered(cluster) == {"nvidia.com/mig-3g.20gb": "4"}
    node.ensure(state("mig-unequal"))
    assert offered(cluster) == dict(zip((ONE_G, TWO_G, THREE_G), "211", strict=True))
    assert limits(node, "mig-unequal", 2) == [THREE_G, TWO_G]
    node.ensure(state("exclusive"))
    assert offered(cluster) == {"nvidia.com/gpu": "1"}
    assert limits(node, "exclusive", 1) == ["nvidia.com/gpu"]
    assert node.restore()
    after = {path: body for path, body in cluster.store.items() if path in before}
    assert after[NODE]["metadata"].pop("annotations") == {}
    assert after == before


def test_a_layout_missing_from_the_map_comes_with_the_entry_to_add(cluster: MigCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    why = node.infeasible(STUDY.strategies["lacking"], 2)
    assert why == (
        "the MIG manager's map has no entry for these instances of one GPU: 1 of 4g.20gb, 1 of 1g.5gb; add to key "
        "config.yaml of ConfigMap nvidia/layouts: my-layout: "
        "[{devices: all, mig-enabled: true, mig-devices: {4g.20gb: 1, 1g.5gb: 1}}]"
    )
    cluster.store[MAP]["data"]["config.yaml"] += f"  {why.partition('/layouts: ')[2]}\n"
    node.ensure(state("lacking"))
    assert cluster.store[NODE]["metadata"]["labels"][MIG_CONFIG_LABEL] == "my-layout"
    assert limits(node, "lacking", 2) == ["nvidia.com/mig-4g.20gb", ONE_G]


@pytest.mark.parametrize("name", ["exclusive", "mps", "mig"])
@pytest.mark.parametrize("may_change", [["mig"], []])
def test_unequal_instances_under_the_single_mig_strategy_are_infeasible(
    cluster: MigCluster, tmp_path: Path, name: str, may_change: list[str]
) -> None:
    product = "NVIDIA-A100-SXM4-80GB-MIG-INVALID"
    labels = {"product": product, "count": "0", "replicas": "0"}
    cluster.store[NODE]["metadata"]["labels"] |= {f"nvidia.com/gpu.{key}": value for key, value in labels.items()}
    node = opened(cluster, tmp_path, may_change=may_change)
    reason = node.infeasible(STUDY.strategies[name], 2) or ""
    assert f"nvidia.com/gpu.product is {product}" in reason
    assert "set the plugin's MIG strategy to mixed" in reason
    assert whole_product(node.cluster.labels()) == "NVIDIA-A100-SXM4-80GB"


def test_strategies_without_mig_do_not_partition_the_gpu(cluster: MigCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("exclusive"))
    node.restore()
    assert all(MIG_CONFIG_LABEL not in (body or {}).get("metadata", {}).get("labels", {}) for _, _, body in cluster.log)


def test_without_may_change_only_existing_instances_are_used(cluster: MigCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path, may_change=[])
    assert "may_change: [mig]" in (node.infeasible(STUDY.strategies["mig"], 1) or "")
    cluster.patch(
        NODE, {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-1g.5gb", "nvidia.com/device-plugin.config": "mixed"}}}
    )
    cluster.store[CONFIGS]["data"]["mixed"] = "version: v1\nflags: {migStrategy: mixed}\n"
    cluster.sleep(10)
    node.cluster.read_node()
    assert offered(cluster) == {"nvidia.com/mig-1g.5gb": "7"}
    assert node.infeasible(STUDY.strategies["mig"], 2) is None
    assert "partitioned by MIG" in (node.infeasible(STUDY.strategies["exclusive"], 1) or "")
    changes = len(cluster.log)
    node.ensure(state("mig"))
    assert limits(node, "mig", 1) == ["nvidia.com/mig-1g.5gb"]
    node.restore()
    labels = [body["metadata"].get("labels", {}) for _, path, body in cluster.log[changes:] if path == NODE]
    assert labels
    assert all(MIG_CONFIG_LABEL not in each for each in labels)


def test_missing_requirements_of_mig_are_named(cluster: MigCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    assert "refuses MPS on MIG instances" in (node.infeasible(STUDY.strategies["mig-mps"], 2) or "")
    cluster.daemon_sets[0]["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "MIG_STRATEGY", "value": "mixed"}
    ]
    assert "no MPS while MIG_STRATEGY" in (opened(cluster, tmp_path).infeasible(STUDY.strategies["mps"], 2) or "")
    del cluster.daemon_sets[-1]
    assert "MIG manager makes others" in (opened(cluster, tmp_path).infeasible(STUDY.strategies["mig"], 2) or "")


def test_an_unsettled_node_is_refused_unchanged(cluster: MigCluster, tmp_path: Path) -> None:
    cluster.store[NODE]["metadata"]["labels"]["nvidia.com/mig.config.state"] = "pending"
    node = opened(cluster, tmp_path)
    with pytest.raises(NodeError, match="the MIG manager is changing the node"):
        node.ensure(state("mig"))
    assert saved_state.load_access(cluster.store[NODE], "device-plugin") is None


def test_a_label_newer_than_the_layout_is_refused(cluster: MigCluster, tmp_path: Path) -> None:
    labels = cluster.store[NODE]["metadata"]["labels"]
    labels |= {MIG_CONFIG_LABEL: "all-1g.5gb", "nvidia.com/mig.config.state": "success"}
    node = opened(cluster, tmp_path)
    unsettled = pytest.raises(NodeError, match=r"does not show the MIG layout of its label .*, all-1g\.5gb")
    with unsettled:
        node.ensure(state("exclusive"))
    labels["nvidia.com/mig-1g.5gb.count"] = "7"
    with unsettled:
        node.ensure(state("exclusive"))
    assert saved_state.load_access(cluster.store[NODE], "device-plugin") is None
    cluster.store[NODE]["status"]["allocatable"][ONE_G] = "7"
    node.ensure(state("exclusive"))


def test_a_layout_set_by_someone_else_fails_the_state_and_stays(cluster: MigCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("mig"))
    cluster.patch(NODE, {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-2g.10gb"}}})
    cluster.sleep(10)
    for name in ("mig", "exclusive"):
        with pytest.raises(
            NodeError, match=r"someone set the node's label .*mig.config to all-2g\.10gb, it was all-1g"
        ):
            node.ensure(state(name))
    node.restore()
    assert cluster.store[NODE]["metadata"]["labels"][MIG_CONFIG_LABEL] == "all-2g.10gb"
    assert saved_state.load(cluster.store[NODE]) is None


def test_a_layout_that_was_ours_once_and_is_someone_elses_now_stays(cluster: MigCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("mig"))
    ours = cluster.store[NODE]["metadata"]["labels"][MIG_CONFIG_LABEL]
    node.ensure(state("mig-unequal"))
    cluster.patch(NODE, {"metadata": {"labels": {MIG_CONFIG_LABEL: ours}}})
    cluster.sleep(10)
    node.restore()
    assert cluster.store[NODE]["metadata"]["labels"][MIG_CONFIG_LABEL] == ours


def test_a_layout_changed_without_the_manager_is_set_again(cluster: MigCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("mig"))
    cluster.layout = {"1g.5gb": 2}
    cluster._switch()
    node.ensure(state("mig"))
    assert offered(cluster) == {"nvidia.com/mig-1g.5gb": "7"}


def test_a_switch_that_ended_between_two_layouts_is_undone(
    cluster: MigCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saved state names the next layout, and the label still has the previous one."""
    node = opened(cluster, tmp_path)
    node.ensure(state("mig"))
    with monkeypatch.context() as patched, pytest.raises(NodeError, match="away"):
        patched.setattr(MigManager, "set_layout", Mock(side_effect=NodeError("away")))
        node.ensure(state("exclusive"))
    opened(cluster, tmp_path / "next").sweep()
    assert cluster.layout == {}
    assert MIG_CONFIG_LABEL not in cluster.store[NODE]["metadata"]["labels"]
