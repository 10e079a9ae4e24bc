"""Cordon and taint of a node: from the first switch to the last, and never in place of an owner's."""

import copy
from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster
from unit.kubernetes.test_device_plugin import STUDY, cluster, opened, state

from sharebench.measure.nodes.contract import State
from sharebench.measure.nodes.kubernetes.cluster import reservation
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused

__all__ = ["cluster"]


def test_the_node_is_cordoned_or_tainted_from_the_first_switch_to_the_last(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """Else a foreign GPU pod that waits would land on the node in mid-switch."""
    spec, seen = cluster.store[NODE]["spec"], set()

    def look() -> None:
        here = cluster.store[NODE]["spec"]
        (ours,) = here["taints"]
        seen.add((ours["effect"], here.get("unschedulable", False)))

    cluster.meanwhile = look
    node = opened(cluster, tmp_path)
    for each in (state("time-slicing"), state("mps", 3)):
        node.ensure(each)
        assert cluster.store[NODE]["spec"]["taints"] == [
            {"key": reservation.TAINT, "value": "true", "effect": "NoSchedule"}
        ]
        assert not cluster.store[NODE]["spec"].get("unschedulable")
    assert seen == {("PreferNoSchedule", True)}, "all waiting is in a switch, and DaemonSets tolerate its cordon"
    seen.clear()
    assert node.restore()
    assert seen == {("PreferNoSchedule", True)}, "a restore restarts their pods, too"
    assert cluster.store[NODE]["spec"] == spec


def test_the_mark_of_a_cordon_goes_with_ours(cluster: FakeCluster, tmp_path: Path) -> None:
    node, spec = opened(cluster, tmp_path), copy.deepcopy(cluster.store[NODE]["spec"])
    node.ensure(state("time-slicing"))
    node.cluster.reserve("cordon")
    cluster.store[NODE]["spec"]["taints"].insert(0, {"key": reservation.CORDON_TAINT, "effect": "NoSchedule"})
    assert node.restore()
    assert cluster.store[NODE]["spec"] == spec


def test_the_next_run_restores_a_node_under_a_cordon(cluster: FakeCluster, tmp_path: Path) -> None:
    opened(cluster, tmp_path / "killed").ensure(state("mps", 3))
    seen = set()
    cluster.meanwhile = lambda: seen.add(cluster.store[NODE]["spec"].get("unschedulable", False))
    opened(cluster, tmp_path / "next").sweep()
    assert seen == {True}
    assert cluster.store[NODE]["spec"] == {}


def test_leaving_the_plugins_state_for_another_access_is_under_a_cordon(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods of DaemonSets restart for the state that is left, too."""
    node, seen = opened(cluster, tmp_path), set()
    node.ensure(state("time-slicing"))
    cluster.meanwhile = lambda: seen.add(cluster.store[NODE]["spec"].get("unschedulable", False))
    monkeypatch.setattr(node.access("static"), "ensure", lambda state: None)
    node.switch(State(STUDY.strategies["exclusive"].changed(access="static"), 1, 0))
    assert seen == {True}
    assert not cluster.store[NODE]["spec"].get("unschedulable")
    assert node.restore()


def test_a_cordon_by_someone_else_stays(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.store[NODE]["spec"]["unschedulable"] = True
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    assert node.restore()
    assert cluster.store[NODE]["spec"] == {"unschedulable": True}


def test_a_node_is_restored_without_the_right_to_cordon_it(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, before = opened(cluster, tmp_path), copy.deepcopy(cluster.store[NODE])
    node.ensure(state("time-slicing"))
    patched = node.cluster.api.patch

    def patch(path: str, body: Any, **more: Any) -> Any:
        if body.get("spec", {}).get("unschedulable"):
            raise ApiRefused(403, "no cordon")
        return patched(path, body, **more)

    monkeypatch.setattr(node.cluster.api, "patch", patch)
    assert node.restore()
    assert cluster.store[NODE]["spec"] == before["spec"]
    assert cluster.store[NODE]["metadata"]["labels"] == before["metadata"]["labels"]


def test_our_cordon_that_someone_lifted_is_set_again(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.cluster.reserve("cordon")
    cluster.store[NODE]["spec"]["unschedulable"] = False
    node.cluster.reserve("cordon")
    assert cluster.store[NODE]["spec"]["unschedulable"]


def cordoned_by(manager: str) -> Any:
    """As the API server notes it of who has changed the field."""
    return [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]


@pytest.mark.parametrize(("manager", "stays"), [("sharebench", False), ("kubectl", True)])
def test_a_cordon_stays_that_someone_else_sets_in_place_of_ours(
    cluster: FakeCluster, tmp_path: Path, manager: str, stays: bool
) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    node.cluster.reserve("cordon")
    cluster.store[NODE]["metadata"]["managedFields"] = cordoned_by(manager)
    node.cluster.reserve("taint")
    assert bool(cluster.store[NODE]["spec"].get("unschedulable")) == stays
    assert node.restore()
    assert cluster.store[NODE]["spec"] == ({"unschedulable": True} if stays else {})


def test_a_node_whose_daemons_tolerate_our_taint_is_never_cordoned(cluster: FakeCluster, tmp_path: Path) -> None:
    for each in cluster.daemon_sets:
        each["spec"]["template"]["spec"]["tolerations"] = [{"key": reservation.TAINT, "operator": "Exists"}]
    node, seen = opened(cluster, tmp_path), []
    assert "cordon" not in node.plan(STUDY.strategies["mps"])
    cluster.meanwhile = lambda: seen.append(copy.deepcopy(cluster.store[NODE]["spec"]))
    node.ensure(state("mps", 3))
    assert node.restore()
    assert seen
    assert all(spec == {"taints": [reservation.our_taint("taint")]} for spec in seen)
