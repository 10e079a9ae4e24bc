"""Runs on different nodes at the same time: what they share, and what they do not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.driving import node_of, normalised, state, study_of
from cluster.harness import PLUGIN_NAMESPACE, Cluster
from cluster.second_node import CONFIGS, NAME, second_node
from cluster.test_switching import shown
from kubernetes import client

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.study.study import Study

FIRST_RUN, SECOND_RUN = "20261120-000000-aaaa", "20261120-000000-bbbb"


@pytest.fixture
def two(plugin: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster with a second node."""
    monkeypatch.setenv("KUBECONFIG", str(plugin.kubeconfig))
    monkeypatch.setitem(os.environ, "SHAREBENCH_RUN_ID", "")
    assert plugin.node_name != NAME
    with second_node(plugin):
        yield plugin


def study_on(namespace: str, node: str) -> Study:
    return normalised(study_of(namespace, replicas=[1, 3], kubernetes={"node": node}))


def as_run(run_id: str) -> None:
    """Set the run id, since both runs are in this process; each job of a run has its own in its environment."""
    os.environ["SHAREBENCH_RUN_ID"] = run_id


def keys(cluster: Cluster) -> set[str]:
    found = cluster.core.read_namespaced_config_map(CONFIGS, PLUGIN_NAMESPACE)
    notes = found.metadata.annotations or {}
    return {name for name in (*found.data, *notes) if name.startswith("sharebench")}


def leases(cluster: Cluster) -> list[str]:
    found = client.CoordinationV1Api(cluster.api).list_namespaced_lease(PLUGIN_NAMESPACE).items
    return sorted(each.spec.holder_identity for each in found if each.metadata.name.startswith("sharebench"))


def test_runs_on_two_nodes_at_the_same_time(two: Cluster, namespace: str, tmp_path: Path) -> None:
    before, config = shown(two), study_on(namespace, two.node_name)
    with pytest.raises(NodeError, match=rf"2 nodes have GPUs \({two.node_name}, {NAME}\); name the one to measure"):
        node_of(study_on(namespace, "auto"), tmp_path / "any", FIRST_RUN)
    one = node_of(config, tmp_path / "one", FIRST_RUN)
    other_config = study_on(namespace, NAME)
    other = node_of(other_config, tmp_path / "other", SECOND_RUN)
    try:
        assert leases(two) == [FIRST_RUN, SECOND_RUN]
        with pytest.raises(NodeError, match=f"the node is in use by run {SECOND_RUN}"):
            node_of(other_config, tmp_path / "third", "20261120-000000-cccc")
        assert {made.facts()["details"]["node"] for made in (one, other)} == {"node-0"}
        assert len({made.facts()["product"] for made in (one, other)}) == 2
        other_key = both_there(two, config, one, other)
        as_run(FIRST_RUN)
        one.restore()
        one.release()
        # The second run still needs the keys that the first one added.
        assert leases(two) == [SECOND_RUN]
        assert other_key in keys(two)
        assert shown(two)["labels"] == before["labels"]
        as_run(SECOND_RUN)
        other.ensure(state(other_config, "mps", 3))
        assert two.core.read_node(NAME).metadata.labels["nvidia.com/gpu.sharing-strategy"] == "mps"
    finally:
        end(one, FIRST_RUN)
        end(other, SECOND_RUN)
    assert keys(two) == set()
    assert leases(two) == []
    assert shown(two) == before
    assert two.core.read_node(NAME).metadata.labels.get("nvidia.com/device-plugin.config") is None


def both_there(two: Cluster, config: Study, one: ClusterNode, other: ClusterNode) -> str:
    """Put both nodes into the same state; returns its key."""
    for made, run_id in ((one, FIRST_RUN), (other, SECOND_RUN)):
        as_run(run_id)
        made.ensure(state(config, "time-slicing"))
    nodes = [two.core.read_node(name) for name in (two.node_name, NAME)]
    assert [node.status.allocatable["nvidia.com/gpu"] for node in nodes] == ["3", "3"]
    (key,) = {str(node.metadata.labels["nvidia.com/device-plugin.config"]) for node in nodes}
    return key


def end(made: ClusterNode, run_id: str) -> None:
    as_run(run_id)
    made.restore()
    made.release()


def test_a_dead_run_on_one_node_does_not_affect_another(two: Cluster, namespace: str, tmp_path: Path) -> None:
    config, other_config = study_on(namespace, two.node_name), study_on(namespace, NAME)
    dead = node_of(config, tmp_path / "one", FIRST_RUN)
    other = node_of(other_config, tmp_path / "other", SECOND_RUN)
    key = both_there(two, config, dead, other)
    # The first run has died: its Lease expires, and its annotations stay. The second one ends well.
    as_run(FIRST_RUN)
    dead.release()
    end(other, SECOND_RUN)
    assert key in keys(two)
    assert two.node().metadata.labels["nvidia.com/device-plugin.config"] == key
    heir = node_of(config, tmp_path / "heir", "20261120-000000-cccc")
    try:
        heir.sweep()
        assert keys(two) == set()
        assert two.labels().get("device-plugin.config") == "exclusive"
    finally:
        end(heir, "20261120-000000-cccc")
