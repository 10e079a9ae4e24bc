"""A run's changes of a node whose saved state someone has removed are said, and never taken for the owner's."""

from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster, node_of
from unit.kubernetes.objects import CONFIG
from unit.kubernetes.test_static import tenant
from unit.studies import study_with

from sharebench.core import run_names
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.run import giving_back, lifecycle
from sharebench.measure.run.ownership import OwnershipError

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


@pytest.mark.parametrize("rule", ["run_cell", "restore"])
def test_a_run_of_another_namespace_is_left_alone_where_no_plugin_has_the_lease(
    cluster: FakeCluster, tmp_path: Path, rule: str
) -> None:
    theirs = tenant()
    theirs["metadata"]["namespace"] = "team-a"
    cluster.foreign.append(theirs)
    cluster.daemon_sets.clear()
    annotations = cluster.store[NODE]["metadata"]["annotations"] = {saved_state.ANNOTATION: "{}"}
    with pytest.raises(OwnershipError, match="a run in namespace team-a has pods on the node"):
        lifecycle.begin(study_with(STUDY), tmp_path / "results", {rule: []}, ["snakemake"], "")
    assert cluster.store[NODE]["metadata"]["annotations"] == annotations, "it would have been restored"


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
