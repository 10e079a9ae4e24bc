"""The way into a state and back where the GPU operator's plugin has no ConfigMap yet, over a cluster in memory."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import CONFIGS, DELAY_SECONDS, NODE, FakeCluster, manager
from unit.kubernetes.objects import daemon_set, owner
from unit.kubernetes.test_device_plugin import label, opened, state

from sharebench.nodes.base import NodeError
from sharebench.nodes.kubernetes import cluster_policy, device_plugin, original
from sharebench.ownership import RUN_ID_VARIABLE

POLICY = f"{cluster_policy.PATH}/cluster-policy"
OURS = f"/api/v1/namespaces/nvidia/configmaps/{cluster_policy.CONFIG_MAP}"
ALLOWED = ["clusterpolicy"]


class Operated(FakeCluster):
    """A cluster whose operator rolls the plugin a little after its ClusterPolicy was changed; `rolled` counts that."""

    def __init__(self) -> None:
        super().__init__()
        del self.store[CONFIGS]
        self.store[POLICY] = {"metadata": {"name": "cluster-policy"}, "spec": {"devicePlugin": {"enabled": True}}}
        self.rolled = 0
        self.is_idle = False
        """The operator heeds nothing any more."""
        self._roll()

    def _roll(self) -> None:
        config = cluster_policy.config_of(self.store[POLICY]) or {}
        container = "nvidia-device-plugin"
        made = manager(container) if config.get("name") else daemon_set("plugin", container)
        for volume in made["spec"]["template"]["spec"].get("volumes", ()):
            volume["configMap"]["name"] = config["name"]
        made["metadata"]["ownerReferences"] = [owner("policy") | {"kind": "ClusterPolicy"}]
        self.daemon_sets[0] = made
        self.rolled += 1

    def _switch(self) -> None:
        self.store[CONFIGS] = copy.deepcopy(self.store.get(OURS) or {"data": {"default": "version: v1\n"}})
        super()._switch()
        del self.store[CONFIGS]

    def find(self, path: str) -> dict[str, Any] | None:
        if path == cluster_policy.PATH:
            return copy.deepcopy({"items": [self.store[POLICY]]})
        return super().find(path)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        result = super().patch(path, body)
        if path == POLICY and not self.is_idle:
            later = self._due

            def act() -> None:
                self._roll()
                if later is not None:
                    later[1]()

            self._due = (self.now + DELAY_SECONDS, act)
        return result


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Operated:
    made = Operated()
    monkeypatch.setattr(device_plugin, "time", made)
    monkeypatch.setenv(RUN_ID_VARIABLE, "a-run")
    return made


def test_the_policy_names_our_config_map_during_the_run_and_nothing_afterwards(
    cluster: Operated, tmp_path: Path
) -> None:
    before = copy.deepcopy(cluster.store[POLICY])
    node = opened(cluster, tmp_path, may_change=ALLOWED)
    node.ensure(state("time-slicing"))
    assert label(cluster) == "sharebench-ts-7"
    assert cluster_policy.config_of(cluster.store[POLICY]) == {"name": cluster_policy.CONFIG_MAP, "default": "default"}
    assert set(cluster.store[OURS]["data"]) >= {"default", "sharebench-ts-7"}
    node.ensure(state("mps", 3))
    assert cluster.rolled == 2
    assert node.restore()
    assert cluster.store[POLICY] == before
    assert OURS not in cluster.store
    assert label(cluster) is None
    assert cluster.rolled == 3
    assert original.of(cluster.store[NODE]) is None


def test_the_original_is_noted_on_the_node_before_the_policy_changes(cluster: Operated, tmp_path: Path) -> None:
    opened(cluster, tmp_path, may_change=ALLOWED).ensure(state("time-slicing"))
    changes = [path for _, path, body in cluster.log if path == POLICY or "annotations" in str(body)]
    assert changes.index(NODE) < changes.index(POLICY)
    note = original.of(cluster.store[NODE])
    assert note is not None
    assert note["device-plugin"]["policy"] == {"name": "cluster-policy", "plugin": True, "config": None}


def test_another_driver_brings_back_what_a_dead_one_left(cluster: Operated, tmp_path: Path) -> None:
    before = copy.deepcopy(cluster.store[POLICY])
    opened(cluster, tmp_path, may_change=ALLOWED).ensure(state("time-slicing"))
    later = opened(cluster, tmp_path / "other", may_change=[])
    assert later.restore()
    assert cluster.store[POLICY] == before
    assert OURS not in cluster.store


def test_without_leave_nothing_is_changed(cluster: Operated, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    why = node.infeasible(state("time-slicing").strategy, 3)
    assert "allow it for the run (kubernetes: {may_change: [clusterpolicy]})" in str(why)
    assert not [path for _, path, _ in cluster.log if path in (POLICY, NODE)]


def test_an_operator_that_does_not_react_is_named(cluster: Operated, tmp_path: Path) -> None:
    cluster.is_idle = True
    node = opened(cluster, tmp_path, may_change=ALLOWED)
    with pytest.raises(NodeError, match=r"did not get a ConfigMap .* the operator has not given the device plugin"):
        node.ensure(state("time-slicing"))


def test_of_two_nodes_the_last_one_brings_it_back(cluster: Operated, tmp_path: Path) -> None:
    before = copy.deepcopy(cluster.store[POLICY])
    node = opened(cluster, tmp_path, may_change=ALLOWED)
    node.ensure(state("time-slicing"))
    note = (original.of(cluster.store[NODE]) or {})["device-plugin"]["policy"]
    second = opened(cluster, tmp_path / "second", may_change=ALLOWED)
    # What the second node's run writes down while the first one's lasts.
    assert second.access("device-plugin")._noted(cluster.store[NODE])["policy"] == note  # type: ignore[attr-defined]
    other = copy.deepcopy(cluster.store[NODE])
    other["metadata"]["name"] = "other-node"
    cluster.others = [other]
    node.restore()
    assert cluster_policy.config_of(cluster.store[POLICY]) is not None
    assert OURS in cluster.store
    cluster.others = []
    cluster.store[NODE]["metadata"]["annotations"] = {original.ANNOTATION: original.text(original.of(other))}
    node.restore()
    assert cluster.store[POLICY] == before


def test_of_two_nodes_that_end_at_once_neither_leaves_it_to_the_other(cluster: Operated, tmp_path: Path) -> None:
    before = copy.deepcopy(cluster.store[POLICY])
    node = opened(cluster, tmp_path, may_change=ALLOWED)
    node.ensure(state("time-slicing"))
    other = copy.deepcopy(cluster.store[NODE])
    other["metadata"]["name"] = "other-node"
    noted = original.of(other) or {}
    ending = {original.ANNOTATION: original.text({"device-plugin": noted["device-plugin"] | {original.ENDS: True}})}
    other["metadata"]["annotations"] = ending
    cluster.others = [other]
    seen = []
    patch = cluster.patch

    def watched(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == POLICY:
            seen.append(original.of(cluster.store[NODE]))
        return patch(path, body)

    cluster.patch = watched  # type: ignore[method-assign]
    assert node.restore()
    assert cluster.store[POLICY] == before
    assert OURS not in cluster.store
    # The other one could see that this one would not stay, before it was taken for granted.
    (note,) = seen
    assert note is not None and note["device-plugin"][original.ENDS] is True
    assert original.of(cluster.store[NODE]) is None


def test_a_node_that_could_not_end_counts_again_once_it_is_used(cluster: Operated, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path, may_change=ALLOWED)
    node.ensure(state("time-slicing"))
    cluster.is_idle = True
    with pytest.raises(NodeError, match="did not get back"):
        node.restore()
    assert not original.others_in_use([cluster.store[NODE]], "another", but_ending=True)
    cluster.is_idle = False
    node.ensure(state("mps", 3))
    assert original.others_in_use([cluster.store[NODE]], "another", but_ending=True)
