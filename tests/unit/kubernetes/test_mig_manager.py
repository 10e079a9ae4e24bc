"""Changes of the layout by a fake manager, which behaves as the real one was seen to."""

from typing import Any

import pytest
from unit.kubernetes.fake_cluster import MAP, NODE, FakeCluster, manager_set, merged
from unit.kubernetes.objects import daemon_pod, node
from unit.studies import study_with

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_manager
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_layouts import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_manager import MigManager, map_file
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import StackComponent

STUDY = study_with({"node": "kubernetes", "strategies": ["exclusive"], "kubernetes": {"switch_seconds": 100}})
OPTIONS: Any = STUDY.node_options() | {"node": "gpu-node"}
PAUSED = {mig_manager.DEPLOY_LABELS[0]: mig_manager.PAUSED_VALUE}
RUNNING = {mig_manager.DEPLOY_LABELS[0]: "true"}
TEXT = "version: v1\nmig-configs:\n  all-disabled: [{devices: all, mig-enabled: false}]\n"


class Scripted(FakeCluster):
    """`script` has the manager's reactions to each new value of its label: seconds and labels."""

    def __init__(self, script: dict[str, list[tuple[float, Json]]]) -> None:
        super().__init__()
        self.script = script
        self.phases: dict[str, float] = {}
        self.store[MAP] = {"metadata": {"resourceVersion": "1"}, "data": {"config.yaml": TEXT}}
        self.daemons["manager"] = daemon_pod("manager", "nvidia-mig-manager")
        self.daemons["discovery"]["metadata"]["labels"] = {"app": "gpu-feature-discovery"}
        self._heard: list[tuple[float, Json]] = []

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.store[NODE]["metadata"]["labels"]
        return found

    def _react(self) -> None:
        while self._heard and self._heard[0][0] <= self.now:
            self.store[NODE]["metadata"]["labels"] = merged(self.labels, self._heard.pop(0)[1])

    def patch(self, path: str, body: Json) -> Json:
        before = self.labels.get(MIG_CONFIG_LABEL)
        made = super().patch(path, body)
        if (value := self.labels.get(MIG_CONFIG_LABEL)) not in (None, before):
            self._heard = [(self.now + seconds, labels) for seconds, labels in self.script.get(value, [])]
        return made

    def delete(self, path: str, grace_seconds: int | None = None, **query: Any) -> None:
        super().delete(path)
        self._heard = []


def state(word: str | None, **labels: str) -> Json:
    return {MIG_STATE_LABEL: word, **labels}


def opened(
    monkeypatch: pytest.MonkeyPatch, script: dict[str, list[tuple[float, Json]]], labels: Json | None = None
) -> tuple[Scripted, MigManager]:
    fake = Scripted(script)
    fake.labels.update(labels or {})
    monkeypatch.setattr(mig_manager, "time", fake)
    return fake, manager_of(fake, manager_set())


def manager_of(fake: Scripted, daemon_set: Json) -> MigManager:
    cluster = Cluster(OPTIONS, fake.phases.__setitem__)
    cluster.__dict__["api"] = fake
    return MigManager(cluster, StackComponent(daemon_set, "nvidia-mig-manager"))


GOOD = [(0.5, state("pending", **PAUSED)), (5.0, state("success", **RUNNING))]


@pytest.mark.parametrize(("before", "values"), [("all-disabled", ["all-1g"]), ("all-1g", [None, "all-1g"])])
def test_an_old_success_is_not_taken_for_the_new_one(
    monkeypatch: pytest.MonkeyPatch, before: str, values: list[str | None]
) -> None:
    """A value that does not change is removed first, since the manager would ignore it."""
    labels = {MIG_CONFIG_LABEL: before, MIG_STATE_LABEL: "success"}
    fake, manager = opened(monkeypatch, {"all-1g": GOOD}, labels)
    manager.set_layout("all-1g", {"another": "label"})
    assert fake.phases == pytest.approx({"pending": 0.5, "cut": 4.5})
    assert fake.labels["another"] == "label"
    assert [body["metadata"]["labels"][MIG_CONFIG_LABEL] for _, _, body in fake.log] == values


def test_components_paused_by_an_earlier_failure_are_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": [(0.1, state("success"))]}, PAUSED)
    manager.set_layout("all-1g", {})
    assert fake.labels[mig_manager.DEPLOY_LABELS[0]] == "true"


def test_an_earlier_change_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": GOOD, "all-2g": [(0.0, state("pending")), (30.0, state("success"))]})
    fake.patch(NODE, {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-2g"}}})
    manager.set_layout("all-1g", {})
    assert fake.now - 1000.0 == pytest.approx(35.0)


def test_an_earlier_change_that_never_ends_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": GOOD, "all-2g": [(0.0, state("pending", **PAUSED))]})
    fake.patch(NODE, {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-2g"}}})
    manager.set_layout("all-1g", {})
    assert ("delete", "/api/v1/namespaces/nvidia/pods/manager-x", None) in fake.log


def test_a_failed_change_resumes_paused_components(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [(0.5, state("pending", **PAUSED)), (5.0, state("failed"))]
    fake, manager = opened(monkeypatch, {"all-1g": failing})
    with pytest.raises(NodeError, match=r"failed to set all-1g \(is something using the GPU\?\); see its log$"):
        manager.set_layout("all-1g", {})
    assert MIG_CONFIG_LABEL not in fake.labels
    assert MIG_STATE_LABEL not in fake.labels
    assert fake.labels[mig_manager.DEPLOY_LABELS[0]] == "true"
    # it works, and only a stuck one is restarted
    assert [what for what, _, _ in fake.log if what == "delete"] == []


def test_a_stuck_manager_is_restarted_without_a_layout_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {"all-1g": [(0.5, state("pending", **PAUSED))]})
    with pytest.raises(NodeError, match="was pending for 100 s with all-1g; it waits for pods to end: discovery-x"):
        manager.set_layout("all-1g", {})
    assert fake.labels[mig_manager.DEPLOY_LABELS[0]] == "true"
    restarted = next(at for at, (what, _, _) in enumerate(fake.log) if what == "delete")
    assert fake.log[restarted - 1][2]["metadata"]["labels"] == {MIG_CONFIG_LABEL: None}


@pytest.mark.parametrize(
    ("script", "words"),
    [([], "did nothing about all-1g within 100 s"), ([(1.0, state("rebooting"))], "reboots the node to set all-1g")],
)
def test_unsuccessful_changes(monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, Json]], words: str) -> None:
    _, manager = opened(monkeypatch, {"all-1g": script})
    with pytest.raises(NodeError, match=words):
        manager.set_layout("all-1g", {})


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
def test_a_layout_that_could_not_be_restored_is_refused(labels: dict[str, str], words: str | None) -> None:
    made = node()
    made["metadata"]["labels"].update(labels)
    if words is None:
        mig_manager.refuse_unsettled(made)
        return
    with pytest.raises(NodeError, match=words):
        mig_manager.refuse_unsettled(made)


def test_the_managers_map_from_its_config_map_or_the_generated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, manager = opened(monkeypatch, {})
    fake.store[MAP] = {"metadata": {"resourceVersion": "1"}, "data": {"config.yaml": "nothing"}}
    with pytest.raises(NodeError, match=r"key config\.yaml of ConfigMap nvidia/layouts"):
        manager.layout_map(1, None)
    made = manager_set()
    made["spec"]["template"]["spec"]["volumes"] = []
    generated = manager_of(fake, made)
    fake.store["/api/v1/namespaces/nvidia/configmaps/gpu-node-mig-config"] = {
        "metadata": {"resourceVersion": "1"},
        "data": {"config.yaml": TEXT},
    }
    assert generated.layout_map(1, None).entry_name({}) == "all-disabled"


def test_the_map_file_is_found_by_its_mount() -> None:
    manager = StackComponent(manager_set(), "nvidia-mig-manager")
    assert map_file(manager, "gpu-node") == ("nvidia", "layouts", "config.yaml")
