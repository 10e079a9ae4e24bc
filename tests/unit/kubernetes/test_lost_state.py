"""A run's changes of a node whose saved state someone has removed are said, and never taken for the owner's."""

from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster, copied, node_of
from unit.kubernetes.objects import CONFIG
from unit.kubernetes.test_device_plugin import cluster as plugin
from unit.kubernetes.test_device_plugin import opened, state
from unit.kubernetes.test_placeholders import Dealing
from unit.kubernetes.test_static import AS_FOUND
from unit.studies import S, study_with

from sharebench.core import run_names
from sharebench.measure.nodes.contract import NodeError, State
from sharebench.measure.nodes.kubernetes.access.device_plugin import placeholders, readers
from sharebench.measure.nodes.kubernetes.access.device_plugin import plugin as device_plugin
from sharebench.measure.nodes.kubernetes.cluster import lease, reservation, saved_state
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.preflight import preflight
from sharebench.measure.run import giving_back, lifecycle
from sharebench.measure.run.ownership import OwnershipError

__all__ = ["plugin"]
STUDY = {"node": "kubernetes", "strategies": ["exclusive", "time-slicing"], "replicas": [1, 3]}
LABEL = "sharebench-ts-3-7cf46c83"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCluster:
    """A cluster whose node has our label and no saved state."""
    for name in (run_names.RUN_ID_VARIABLE, run_names.RUN_OWNER_VARIABLE):
        monkeypatch.setenv(name, "")
    made = FakeCluster()
    made.store[NODE]["metadata"]["labels"][CONFIG] = LABEL
    node = node_of(made, study_with(STUDY).node_options(), tmp_path / "node")
    for module in (lifecycle, giving_back):
        monkeypatch.setattr(module, "open_nodes", lambda *_: [node])
    return made


@pytest.mark.parametrize("rule", ["run_cell", "restore"])
def test_no_run_begins_on_it(cluster: FakeCluster, tmp_path: Path, rule: str) -> None:
    """It would save our label as the owner's, and then remove the key that it names."""
    with pytest.raises(OwnershipError, match=f"removed .* left of a run: label {CONFIG}={LABEL};"):
        lifecycle.begin(study_with(STUDY), tmp_path / "results", {rule: []}, ["snakemake"], "")
    assert cluster.store[NODE]["metadata"]["labels"][CONFIG] == LABEL
    assert not any("leases" in path for path in cluster.store), "the node is not held"


def test_a_run_that_has_lost_it_does_not_end_well(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, results = study_with(STUDY), tmp_path / "results"
    del cluster.store[NODE]["metadata"]["labels"][CONFIG]
    claim: Any = lifecycle.begin(study, results, {"run_cell": [], "aggregate": []}, ["snakemake"], "")
    cluster.store[NODE]["spec"]["taints"] = [reservation.our_taint("taint")]
    giving = giving_back.GivingBack(study, claim)
    giving.started("aggregate")
    assert not giving.is_back(True)
    assert not lifecycle.finish(claim, study, None, lambda _: [], giving.is_back)
    said = capsys.readouterr().err
    assert f"someone has removed the node's annotation {saved_state.ANNOTATION}" in said
    assert "left of a run: taint sharebench/measuring;" in said and "as it was" not in said


def remove_state(cluster: FakeCluster) -> None:
    cluster.store[NODE]["metadata"]["annotations"].pop(saved_state.ANNOTATION, None)


@pytest.mark.parametrize("name", ["time-slicing", "exclusive"])
def test_a_run_that_loses_it_between_cells_measures_no_other(plugin: FakeCluster, tmp_path: Path, name: str) -> None:
    node = opened(plugin, tmp_path)
    node.ensure(state("time-slicing"))
    remove_state(plugin)
    before = copied(plugin.store[NODE])
    with pytest.raises(NodeError, match=f"removed .* left of a run: label {CONFIG}=sharebench-ts-7-.* and taint"):
        node.ensure(state(name))
    assert plugin.store[NODE] == before


def test_a_run_that_loses_it_in_a_switch_does_not_take_its_label_for_the_owners(
    plugin: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several GPUs the state is read again once the plugin has followed."""
    cluster = Dealing()
    cluster._switch()
    for module in (device_plugin, readers, lease, placeholders):
        monkeypatch.setattr(module, "time", cluster)
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    cluster.meanwhile = lambda: remove_state(cluster)
    with pytest.raises(NodeError, match=f"someone has removed .* left of a run: label {CONFIG}=sharebench-"):
        node.ensure(state("exclusive"))
    assert saved_state.load_access(cluster.store[NODE], "device-plugin") is None


def without_plugin(cluster: FakeCluster, folder: Path, namespace: str) -> ClusterNode:
    cluster.daemon_sets.clear()
    strategies = {"strategies": ["as-found"], f"{S}.as-found": AS_FOUND}
    study = study_with(STUDY | strategies | {"kubernetes": {"namespace": namespace}})
    return node_of(cluster, study.node_options(), folder)


@pytest.mark.parametrize("rule", ["run_cell", "restore"])
def test_a_run_in_another_namespace_is_left_alone_where_no_plugin_has_the_lease(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    del cluster.store[NODE]["metadata"]["labels"][CONFIG]
    other = without_plugin(cluster, tmp_path / "theirs", "team-a")
    other.cluster.write_saved_state({})
    before = copied(cluster.store[NODE])
    ours = without_plugin(cluster, tmp_path / "ours", "team-b")
    monkeypatch.setattr(lifecycle, "open_nodes", lambda *_: [ours])
    line = (
        "a run in namespace team-a has changed the node, .* or restore the node with kubernetes.namespace: team-a "
        r"\(where that is gone, or not allowed: .*, Undo without this tool\)"
    )
    with pytest.raises(OwnershipError, match=line):
        lifecycle.begin(study_with(STUDY), tmp_path / "results", {rule: []}, ["snakemake"], "")
    assert cluster.store[NODE] == before
    (row,), is_open = preflight.node_rows(ours)
    assert "a run in namespace team-a has changed the node" in str(row) and not is_open


def test_of_two_runs_that_begin_at_once_without_a_plugin_one_measures(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(run_names.RUN_ID_VARIABLE, "a-run")
    del cluster.store[NODE]["metadata"]["labels"][CONFIG]
    ours, theirs = (without_plugin(cluster, tmp_path / name, name) for name in ("team-a", "team-b"))
    measured = State(study_with({"node": "kubernetes", f"{S}.as-found": AS_FOUND}).strategies["as-found"], 1, 0)
    for each in (ours, theirs):
        each._lease.acquire("a-run")
        each.sweep()
    ours.ensure(measured)
    before = copied(cluster.store[NODE])
    for act in (lambda: theirs.ensure(measured), theirs.restore, lambda: theirs.cluster.write_saved_state({})):
        with pytest.raises(NodeError, match="a run in namespace team-a has changed the node"):
            act()
    assert cluster.store[NODE] == before
    ours.ensure(measured)
    assert ours.restore() and not theirs.restore()
    theirs.ensure(measured)


def test_a_dead_run_in_another_namespace_is_restored_where_the_plugin_has_the_lease(
    plugin: FakeCluster, tmp_path: Path
) -> None:
    opened(plugin, tmp_path / "dead", namespace="team-a").ensure(state("time-slicing"))
    opened(plugin, tmp_path / "next", namespace="team-b").sweep()
    assert CONFIG not in plugin.store[NODE]["metadata"]["labels"]
    assert saved_state.load(plugin.store[NODE]) is None


@pytest.mark.parametrize("rules", [["restore"], ["run_cell"], ["run_cell", "aggregate"]])
def test_a_plugin_that_is_not_ready_afterwards_is_named_and_not_the_runs_failure(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], rules: list[str]
) -> None:
    """GitOps may have removed the key of our label, or it was so before, and no run changed the node."""
    study = study_with(STUDY)
    del cluster.store[NODE]["metadata"]["labels"][CONFIG]
    (status,) = cluster.daemons["plugin"]["status"]["containerStatuses"]
    status |= {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    claim = lifecycle.begin(study, tmp_path / "results", {rule: [] for rule in rules}, ["snakemake"], "")
    giving = giving_back.GivingBack(study, claim)
    giving.started(rules[-1])
    assert giving.is_back(True) == ("aggregate" in rules)
    assert lifecycle.finish(claim, study, None, lambda _: [], giving.is_back)
    said = capsys.readouterr().err
    assert said.count("as they were, but plugin: nvidia-device-plugin-ctr is not ready (CrashLoopBackOff)") == 1
    assert "back as it was" not in said


def test_pods_of_the_plugin_are_not_looked_for_where_claims_give_gpus(cluster: FakeCluster, tmp_path: Path) -> None:
    del cluster.store[NODE]["metadata"]["labels"][CONFIG]
    cluster.daemons.clear()
    studies = [study_with(STUDY | {"kubernetes": {"access": access}}) for access in ("dra", "device-plugin")]
    nodes = [node_of(cluster, study.node_options(), tmp_path / "node") for study in studies]
    assert [lifecycle.state_lines(node)[1] is None for node in nodes] == [True, False]
