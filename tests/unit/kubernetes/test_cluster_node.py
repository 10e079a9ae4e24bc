"""The parts of a node that do not depend on the access: switching between accesses, and restoring."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster, leased, node_of
from unit.kubernetes.test_device_plugin import cluster, label, taints
from unit.kubernetes.test_nvidia_stack import pod
from unit.studies import S, config_with, study_with

from sharebench.measure.nodes.contract import Evidence, Grant, NodeError, State
from sharebench.measure.nodes.kubernetes import node as cluster_node
from sharebench.measure.nodes.kubernetes.access.base import Access, PodNeeds
from sharebench.measure.nodes.kubernetes.cluster import pod_monitor, reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.measure.nodes.kubernetes.cluster.saved_state import AccessState
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.run import interrupts
from sharebench.measure.run.restore import restore_node
from sharebench.model.config.load import load
from sharebench.model.pod_template import PodTemplate
from sharebench.model.records.record import SCHEMA_PATH
from sharebench.model.strategy import Strategy
from sharebench.study.study import Study

__all__ = ["cluster"]
NODE_SCHEMA = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))["properties"]["node"]
OTHER = Strategy.model_construct(name="other", mechanism=("time-slicing",), access="other")


class Other(Access):
    """An access that saves one label of the node and sets it."""

    name = "other"
    lacks: str | None = None

    def missing(self) -> str | None:
        return self.lacks

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        return None

    def ensure(self, state: State) -> None:
        if self.name not in (self.cluster.saved_state() or {}):
            self.cluster.save_access(self.name, {"before": self.cluster.read_node()["metadata"]["labels"].get("other")})
        self.cluster.api.patch(self.cluster.path, {"metadata": {"labels": {"other": "ours"}}})

    def restore(self, state: AccessState) -> None:
        self.cluster.api.patch(self.cluster.path, {"metadata": {"labels": {"other": state["before"]}}})

    def pod_needs(self, spec: object, grant: Grant) -> PodNeeds:
        return PodNeeds()

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[Mapping[str, Any]]) -> Evidence:
        return []

    def plan(self, strategy: Strategy) -> str:
        return "sets a label"


@pytest.fixture
def node(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterNode:
    given = load(config_with({"node": "kubernetes", "strategies": ["time-slicing"], "replicas": [3]}))
    options = Study(given).node_options() | {"accesses": ["device-plugin", "other"]}
    monkeypatch.setitem(cluster_node.ACCESSES, "other", Other)
    return leased(cluster, options, tmp_path)


def by_plugin() -> State:
    plugins = Strategy(name="time-slicing", mechanism=("time-slicing",), access="device-plugin")
    return State(plugins, None, 0)


def savers(cluster: FakeCluster) -> set[str] | None:
    found = saved_state.load(cluster.store[NODE])
    return None if found is None else set(found)


def test_one_access_is_restored_before_another_is_used(cluster: FakeCluster, node: ClusterNode) -> None:
    cluster.store[NODE]["metadata"]["labels"]["other"] = "theirs"
    node.ensure(by_plugin())
    assert (label(cluster), savers(cluster)) == ("sharebench-ts-3", {"device-plugin"})
    node.ensure(State(OTHER, None, 0))
    assert (label(cluster), savers(cluster)) == (None, {"other"})
    assert cluster.store[NODE]["metadata"]["labels"]["other"] == "ours"
    assert taints(cluster) == [reservation.TAINT]
    node.ensure(by_plugin())
    assert (label(cluster), savers(cluster)) == ("sharebench-ts-3", {"device-plugin"})
    assert cluster.store[NODE]["metadata"]["labels"]["other"] == "theirs"
    assert node.restore()
    assert (label(cluster), taints(cluster), savers(cluster)) == (None, [], None)


def test_a_node_held_by_another_run_is_not_restored(cluster: FakeCluster, node: ClusterNode) -> None:
    node.ensure(by_plugin())
    node._lease.release("a-run")
    node._lease.acquire("another")
    before = copy.deepcopy(cluster.store[NODE])
    cluster.meanwhile = lambda: node._lease.renew("another")
    with pytest.raises(NodeError, match="in use by run another"):
        node.restore()
    assert cluster.store[NODE] == before


def test_a_pod_monitor_that_cannot_be_removed_does_not_block_the_restore(
    cluster: FakeCluster, node: ClusterNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.cluster.options = {**node.cluster.options, "has_pod_monitor": True}
    node.ensure(by_plugin())

    def refuse(*_: Any) -> None:
        raise ApiRefused(403, "podmonitors: not allowed")

    monkeypatch.setattr(pod_monitor, "remove", refuse)
    with pytest.raises(NodeError, match="podmonitors: not allowed"):
        node.restore()
    assert (label(cluster), taints(cluster), savers(cluster)) == (None, [], None)


@pytest.mark.parametrize(("is_watched", "ending"), [(True, "restore"), (True, "sweep"), (False, "restore")])
def test_the_pod_monitor_of_a_killed_run_goes_whatever_the_next_config_says(
    cluster: FakeCluster, node: ClusterNode, tmp_path: Path, is_watched: bool, ending: str
) -> None:
    """Without one nothing is asked for, since the right to may be lacking."""
    given = node.cluster.options
    node.cluster.options = {**given, "has_pod_monitor": is_watched}
    node.ensure(by_plugin())
    node.ensure(State(OTHER, None, 0))
    monitor = f"{pod_monitor.COLLECTION.format(namespace='sharebench')}/sharebench-{node.cluster.digest}"
    if is_watched:
        node.add_pod_monitor({"scrape_seconds": 1, "labels": {}})  # type: ignore[typeddict-item]
        assert monitor in cluster.store
    later = leased(cluster, given, tmp_path / "later")
    later.restore() if ending == "restore" else later.sweep()
    assert monitor not in cluster.store
    assert any(path == monitor for _, path, _ in cluster.log) == is_watched


def test_a_node_whose_lease_was_deleted_is_restored(cluster: FakeCluster, node: ClusterNode) -> None:
    node.ensure(by_plugin())
    del cluster.store[node._lease.path]
    assert node.restore()
    assert savers(cluster) is None
    assert cluster.store[node._lease.path]["spec"]["holderIdentity"] == "a-run"


def test_leftover_pods_are_removed_before_the_node_is_restored(cluster: FakeCluster, node: ClusterNode) -> None:
    node.ensure(by_plugin())
    cluster.tenants = [{"metadata": {"name": "sharebench-left-0"}}]
    cluster.log.clear()
    assert node.restore()
    (first, *_) = [path for verb, path, _ in cluster.log if verb in ("delete", "patch")]
    assert first == "/api/v1/namespaces/sharebench/pods/sharebench-left-0"


def test_a_cluster_without_access_is_refused_at_the_start(node: ClusterNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Other, "lacks", "nothing of the other way")
    node.cluster.options = {**node.cluster.options, "accesses": ["other"]}
    with pytest.raises(NodeError, match="nothing of the other way"):
        node.claim("a-run")


def test_a_node_is_restored_without_its_plugin(cluster: FakeCluster, node: ClusterNode, tmp_path: Path) -> None:
    node.cluster.options = {**node.cluster.options, "accesses": ["device-plugin"]}
    node.ensure(by_plugin())
    cluster.daemon_sets, cluster.daemons, cluster.is_stuck = [], {}, True
    began = cluster.now
    later = node_of(cluster, node.cluster.options, tmp_path / "later")
    # Like the start of a run, such as `sharebench restore`.
    later.claim("a-run")
    with pytest.raises(NodeError, match="the cluster has no NVIDIA device plugin"):
        later.sweep()
    later._lease.release("a-run")
    assert (label(cluster), taints(cluster), savers(cluster)) == (None, [], None)
    assert cluster.now - began < 60, "effects that need a plugin are not waited for"


def test_the_spec_has_each_strategys_access() -> None:
    given = config_with({"node": "kubernetes", "strategies": ["exclusive", "time-slicing"], "replicas": [1, 3]})
    given[S]["time-slicing"] |= {"access": "device-plugin"}
    of_study = Study(load(given))
    spec = of_study.spec(of_study.cells[0])
    assert spec.strategy.access == "device-plugin"
    assert of_study.node_options()["accesses"] == ["device-plugin"]
    on_host = study_with({"strategies": ["exclusive"]})
    assert on_host.spec(on_host.cells[0]).strategy.access is None


INFO = {
    "machineID": "m",
    "systemUUID": "ec2-1",
    "kubeletVersion": "v1.34.1",
    "containerRuntimeVersion": "containerd://2.1.4",
    "kernelVersion": "6.18.0",
}
CPU_MODEL = {"vendor_id": "Intel", "family": "6", "id": "143"}
H200 = {
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.memory": "143771",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/cuda.driver.major": "580",
    "nvidia.com/cuda.driver.minor": "159",
    "nvidia.com/cuda.driver.rev": "04",
}


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda", {"units": None, "units_name": "SMs", "is_gpu": True, "label": ""}),
        ("cpu", {"units": 2, "units_name": "cores", "is_gpu": False, "label": "GPU idle, CPU work in pods"}),
    ],
)
def test_facts_of_a_real_gpu_come_from_the_nodes_labels(
    cluster: FakeCluster, tmp_path: Path, device: str, expected: dict[str, Any]
) -> None:
    """Kubernetes and GPU feature discovery do not know the number of SMs; tenants on the GPU may."""
    cluster.store[NODE]["metadata"]["labels"] = H200
    cluster.store[NODE]["status"]["nodeInfo"] = INFO
    options = Study(load(config_with({"node": "kubernetes", "kubernetes.device": device}))).node_options()
    facts = node_of(cluster, options, tmp_path).facts()
    assert {key: facts[key] for key in expected} == expected
    assert (facts["kind"], facts["product"]) == ("kubernetes", "NVIDIA H200")
    assert facts["memory_bytes"] == 143771 << 20
    details = facts["details"]
    assert (details["driver"], details["gpus"], details["kubernetes"]) == ("580.159.04", 1, "v1.34.1")
    assert "ec2-1" not in str(facts), "the machine's id is published as a hash only"
    problems = list(jsonschema_rs.validator_for(NODE_SCHEMA).iter_errors(facts))
    assert not problems, problems


def test_the_host_of_a_node_is_what_its_kubelet_tells_as_hashes(cluster: FakeCluster, tmp_path: Path) -> None:
    node = node_of(cluster, Study(load(config_with({"node": "kubernetes"}))).node_options(), tmp_path)
    labels = {f"feature.node.kubernetes.io/cpu-model.{key}": text for key, text in CPU_MODEL.items()}
    cluster.store[NODE]["metadata"]["labels"] = H200 | labels
    cluster.store[NODE]["status"]["nodeInfo"] = INFO | {"bootID": "boot-1"}
    first = node.host_facts()
    assert (first["cpu"], first["topology"]) == ("Intel family 6 model 143", "2 threads, 1 GPU")
    assert "ec2-1" not in str(first) and "boot-1" not in str(first)
    cluster.store[NODE]["metadata"]["labels"] = H200
    cluster.store[NODE]["status"]["nodeInfo"] = INFO | {"bootID": "boot-2"}
    later = node.host_facts()
    assert later["cpu"] is None and later["machine"] == first["machine"] and later["boot"] != first["boot"]


KAI = Strategy.model_construct(
    name="other", mechanism=("time-slicing",), access="other", pod=PodTemplate.model_construct(companions="kai")
)


@pytest.mark.parametrize(("phase", "strategy"), [("Running", OTHER), ("Succeeded", OTHER), ("Running", KAI)])
def test_a_foreign_gpu_pod_in_a_cell_is_evidence_against_it(
    cluster: FakeCluster, node: ClusterNode, phase: str, strategy: Strategy
) -> None:
    node.options["device"] = "cpu"
    cluster.foreign = [pod("earlier", phase="Succeeded")]
    node.ensure(State(strategy, 1, 0))
    cluster.foreign += [pod("training", phase=phase), pod("reservation", namespace="kai")]
    (found,) = node.evidence(strategy, [], [])
    expected = ["team/training", "kai/reservation"][: 2 if strategy is OTHER else 1]
    assert (found["expected"], found["observed"], found["holds"]) == ([], expected, False)
    cluster.foreign = [pod("training")]
    with pytest.raises(NodeError, match="foreign GPU pods run on the node: team/training"):
        node.ensure(State(strategy, 1, 0))


def test_a_foreign_pod_that_follows_the_restore_is_no_failure_of_it(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pending one lands as soon as the node is given back."""
    study = study_with({"node": "kubernetes", "strategies": ["time-slicing"], "replicas": [3]})
    before = copy.deepcopy(cluster.store[NODE]["metadata"]["labels"])
    dead = leased(cluster, study.node_options(), tmp_path / "dead")
    dead.ensure(by_plugin())
    dead.release()
    cluster.meanwhile = lambda: cluster.foreign.append(pod("training")) if not cluster.foreign else None
    monkeypatch.setattr("sharebench.measure.nodes.kubernetes.cluster.cluster.Api", lambda _: cluster)
    # It would handle the signals of all tests after this one.
    monkeypatch.setattr(interrupts, "end_run_at_first", lambda _: None)
    assert restore_node(study, tmp_path / "results", [], "") == 0
    assert cluster.foreign
    assert cluster.store[NODE]["metadata"]["labels"] == before
    printed = capfd.readouterr()
    assert printed.out == "the node is back in its original state\n"
    assert printed.err == "looking for what a run has left changed\n"
