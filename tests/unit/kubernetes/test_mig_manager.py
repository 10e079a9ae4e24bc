"""How a change of the layout is followed, over a manager in memory that does what the real one was seen to do."""

import copy
from collections.abc import Mapping
from typing import Any, cast

import pytest
from unit.kubernetes.fake_cluster import manager_set, merged
from unit.kubernetes.objects import Json, daemon_pod, node

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.access.device_plugin import mig_manager
from sharebench.nodes.kubernetes.access.device_plugin.mig_layouts import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from sharebench.nodes.kubernetes.access.device_plugin.mig_manager import (
    MigManager,
    map_file,
)
from sharebench.nodes.kubernetes.cluster.nvidia_stack import Part
from sharebench.nodes.kubernetes.node import ClusterNode

PAUSED = {mig_manager.DEPLOY_LABELS[0]: mig_manager.PAUSED_VALUE}
RUNNING = {mig_manager.DEPLOY_LABELS[0]: "true"}
MAPS = "/api/v1/namespaces/nvidia/configmaps/layouts"
TEXT = "version: v1\nmig-configs:\n  all-disabled: [{devices: all, mig-enabled: false}]\n"


class FakeNode:
    """Stands in for the node, its API and the time. `script` has what the manager does about a new value of its label:
    seconds and labels, for each value."""

    name = "gpu-node"
    path = "/api/v1/nodes/gpu-node"

    def __init__(self, script: dict[str, list[tuple[float, Json]]]) -> None:
        self.now = 1000.0
        self.options = {"switch_seconds": 100.0}
        self.script = script
        self.is_deaf = False
        """It has missed the label, until it is restarted."""
        self.made = node(config="sharebench-exclusive")
        self.maps = {MAPS: {"metadata": {"resourceVersion": "1"}, "data": {"config.yaml": TEXT}}}
        self.log: list[tuple[str, str, Any]] = []
        self.phases: dict[str, float] = {}
        self._due: list[tuple[float, Json]] = []
        self.api = self

    def monotonic(self) -> float:
        return self.now

    def note_phase(self, phase: str, seconds: float) -> None:
        self.phases[phase] = seconds

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def labels(self) -> dict[str, str]:
        while self._due and self._due[0][0] <= self.now:
            self.made["metadata"]["labels"] = merged(self.made["metadata"]["labels"], self._due.pop(0)[1])
        found: dict[str, str] = self.made["metadata"]["labels"]
        return found

    def set_labels(self, labels: Mapping[str, str | None]) -> None:
        self.patch(self.path, {"metadata": {"labels": dict(labels)}})

    def read(self) -> Json:
        assert self.labels()
        return copy.deepcopy(self.made)

    def pods(self) -> list[Json]:
        staying = daemon_pod("discovery", "gpu-feature-discovery-ctr", labels={"app": "gpu-feature-discovery"})
        return [daemon_pod("manager", "nvidia-mig-manager"), staying]

    def find(self, path: str) -> Json | None:
        return self.maps.get(path)

    def get(self, path: str) -> Json:
        return self.maps[path]

    def patch(self, path: str, body: Json) -> None:
        self.log.append(("patch", path, body))
        if path != self.path:
            self.maps[path] = merged(self.maps[path], body)
            return
        before = self.labels().get(MIG_CONFIG_LABEL)
        self.made = merged(self.made, body)
        if self.labels().get(MIG_CONFIG_LABEL) != before and not self.is_deaf:
            self._hear()

    def _hear(self) -> None:
        value = self.labels().get(MIG_CONFIG_LABEL)
        if value is not None:
            self._due = [(self.now + seconds, labels) for seconds, labels in self.script.get(value, [])]

    def delete(self, path: str, grace_seconds: int | None = None) -> None:
        self.log.append(("delete", path, None))
        self.is_deaf, self._due = False, []
        self._hear()


def state(word: str | None, **labels: str) -> Json:
    return {MIG_STATE_LABEL: word, **labels}


def opened(
    monkeypatch: pytest.MonkeyPatch, script: dict[str, list[tuple[float, Json]]], **labels: str
) -> tuple[FakeNode, MigManager]:
    fake = FakeNode(script)
    fake.labels().update({name.replace("__", "/").replace("_", "."): value for name, value in labels.items()})
    monkeypatch.setattr(mig_manager, "time", fake)
    return fake, MigManager(cast(ClusterNode, fake), Part(manager_set(), "nvidia-mig-manager"))


GOOD = [(0.5, state("pending", **PAUSED)), (5.0, state("success", **RUNNING))]


def test_an_old_success_is_not_taken_for_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(
        monkeypatch, {"all-1g": GOOD}, nvidia_com__mig_config="all-disabled", nvidia_com__mig_config_state="success"
    )
    manager.change("all-1g", {"another": "label"})
    assert fake.phases == pytest.approx({"pending": 0.5, "cut": 4.5})
    assert fake.labels()["another"] == "label"


def test_what_an_earlier_failure_left_away_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": [(0.1, state("success"))]})
    fake.labels().update(PAUSED)
    manager.change("all-1g", {})
    assert fake.labels()[mig_manager.DEPLOY_LABELS[0]] == "true"


def test_the_same_value_is_taken_away_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(
        monkeypatch, {"all-1g": GOOD}, nvidia_com__mig_config="all-1g", nvidia_com__mig_config_state="success"
    )
    manager.change("all-1g", {})
    assert fake.phases == pytest.approx({"pending": 0.5, "cut": 4.5})
    values = [body["metadata"]["labels"][MIG_CONFIG_LABEL] for _, _, body in fake.log]
    assert values == [None, "all-1g"]


def test_an_earlier_change_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": GOOD, "all-2g": [(0.0, state("pending")), (30.0, state("success"))]})
    fake.patch(fake.path, {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-2g"}}})
    manager.change("all-1g", {})
    assert fake.now - 1000.0 == pytest.approx(35.0)


def test_an_earlier_change_that_never_ends_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": GOOD, "all-2g": [(0.0, state("pending", **PAUSED))]})
    fake.patch(fake.path, {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-2g"}}})
    manager.change("all-1g", {})
    assert ("delete", "/api/v1/namespaces/nvidia/pods/manager-x", None) in fake.log


def test_a_failure_brings_back_what_was_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [(0.5, state("pending", **PAUSED)), (5.0, state("failed"))]
    fake, manager = opened(monkeypatch, {"all-1g": failing})
    with pytest.raises(NodeError, match=r"failed to set all-1g \(is something using the GPU\?\); see its log$"):
        manager.change("all-1g", {})
    assert MIG_CONFIG_LABEL not in fake.labels()
    assert MIG_STATE_LABEL not in fake.labels()
    assert fake.labels()[mig_manager.DEPLOY_LABELS[0]] == "true"
    # it is at work, and only one that is stuck is restarted
    assert [what for what, _, _ in fake.log if what == "delete"] == []


def test_one_that_is_stuck_is_started_anew_without_a_layout_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": [(0.5, state("pending", **PAUSED))]})
    with pytest.raises(NodeError, match="was pending for 100 s with all-1g; it waits for pods to end: discovery-x"):
        manager.change("all-1g", {})
    assert fake.labels()[mig_manager.DEPLOY_LABELS[0]] == "true"
    restarted = next(at for at, (what, _, _) in enumerate(fake.log) if what == "delete")
    assert fake.log[restarted - 1][2]["metadata"]["labels"] == {MIG_CONFIG_LABEL: None}


def test_one_that_missed_the_label_reads_it_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": GOOD})
    fake.is_deaf = True
    manager.change("all-1g", {})
    assert mig_manager.SILENT_SECONDS < sum(fake.phases.values()) < mig_manager.SILENT_SECONDS + 10


@pytest.mark.parametrize(
    ("script", "words"),
    [([], "did nothing about all-1g within 100 s"), ([(1.0, state("rebooting"))], "reboots the node to set all-1g")],
)
def test_other_ends(monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, Json]], words: str) -> None:
    _, manager = opened(monkeypatch, {"all-1g": script})
    with pytest.raises(NodeError, match=words):
        manager.change("all-1g", {})


def test_what_was_there_comes_back_absence_as_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    more = [(0.5, state("pending")), (5.0, state("success", **{mig_manager.DEPLOY_LABELS[3]: "true"}))]
    fake, manager = opened(monkeypatch, {"all-1g": more, "all-disabled": more})
    saved = mig_manager.capture(fake.read())
    before = dict(fake.labels())
    manager.change("all-1g", {})
    manager.restore(saved | {"set": "all-1g"}, "all-disabled", {})
    assert fake.labels() == before


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({MIG_STATE_LABEL: "pending"}, "is changing the node"),
        ({MIG_STATE_LABEL: "rebooting"}, "is changing the node"),
        ({MIG_CONFIG_LABEL: "all-1g", MIG_STATE_LABEL: "failed"}, "is not what its label says: .* is failed"),
        ({MIG_CONFIG_LABEL: "all-1g"}, "is absent"),
        (PAUSED, "kubectl label node --overwrite gpu-node nvidia.com/gpu.deploy.device-plugin=true"),
        ({MIG_CONFIG_LABEL: "all-1g", MIG_STATE_LABEL: "success"}, None),
        ({MIG_STATE_LABEL: "success"}, None),
        ({}, None),
    ],
)
def test_a_layout_that_could_not_come_back(labels: dict[str, str], words: str | None) -> None:
    made = node()
    made["metadata"]["labels"].update(labels)
    if words is None:
        mig_manager.refuse_unsettled(made)
        return
    with pytest.raises(NodeError, match=words):
        mig_manager.refuse_unsettled(made)


def test_a_map_that_cannot_be_read_or_written(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {})
    fake.maps[MAPS] = {"metadata": {"resourceVersion": "1"}, "data": {"config.yaml": "nothing"}}
    with pytest.raises(NodeError, match=r"key config\.yaml of ConfigMap nvidia/layouts"):
        manager.known()
    with pytest.raises(NodeError, match="lacks a layout and cannot get it"):
        manager.publish([{}])
    made = manager_set()
    made["spec"]["template"]["spec"]["volumes"] = []
    generated = MigManager(cast(ClusterNode, fake), Part(made, "nvidia-mig-manager"))
    fake.maps["/api/v1/namespaces/nvidia/configmaps/gpu-node-mig-config"] = {
        "metadata": {"resourceVersion": "1"},
        "data": {"config.yaml": TEXT},
    }
    assert generated.known() == {"all-disabled": [{}]}
    with pytest.raises(NodeError, match="makes its map itself"):
        generated.publish([{"1g.5gb": 2}])


@pytest.mark.parametrize(
    ("items", "key"), [({}, "config.yaml"), ({"items": [{"key": "mine", "path": "config.yaml"}]}, "mine")]
)
def test_where_its_map_is(items: Json, key: str) -> None:
    found = map_file(Part(manager_set(**items), "nvidia-mig-manager"), "gpu-node")
    assert (found.namespace, found.name, found.key, found.is_read) == ("nvidia", "layouts", key, True)
