"""Placeholder pods, which hold all of a node's GPUs but one, however the plugin distributes them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster, leased
from unit.kubernetes.test_device_plugin import STUDY, state

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import placeholders, readers
from sharebench.measure.nodes.kubernetes.access.device_plugin import plugin as device_plugin
from sharebench.measure.nodes.kubernetes.access.device_plugin.placeholders import parse_gpu
from sharebench.measure.nodes.kubernetes.cluster import lease
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from tenant.contract import device_digest

GPUS = 2


def uuid(minor: int) -> str:
    return f"GPU-{minor}"


class Dealing(FakeCluster):
    """A node with two GPUs, whose plugin gives each pod a replica of the one that has fewer pods."""

    def __init__(self) -> None:
        super().__init__()
        self.store[NODE]["metadata"]["labels"]["nvidia.com/gpu.count"] = str(GPUS)
        self.given: dict[str, str] = {}
        self.says = "{uuid}"

    def _switch(self) -> None:
        super()._switch()
        here = self.store[NODE]
        here["metadata"]["labels"]["nvidia.com/gpu.count"] = str(GPUS)
        for name, value in here["status"]["allocatable"].items():
            if name.startswith("nvidia.com/"):
                here["status"]["allocatable"][name] = str(GPUS * int(value))

    def create(self, path: str, body: Json) -> Json:
        made = super().create(path, body)
        if body["kind"] == "Pod":
            held = Counter(self.given[pod["metadata"]["name"]] for pod in self.tenants)
            self.given[body["metadata"]["name"]] = min(map(uuid, range(GPUS)), key=lambda each: held[each])
            self.tenants.append(made | {"status": {"phase": "Running"}})
        return made

    def get_text(self, path: str, **query: Any) -> str:
        name = path.split("/")[-2]
        return self.says.format(uuid=self.given[name], minor=self.given[name][-1])

    @property
    def held(self) -> Counter[str]:
        return Counter(self.given[pod["metadata"]["name"]] for pod in self.tenants)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Dealing:
    made = Dealing()
    for module in (device_plugin, readers, lease, placeholders):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setenv(RUN_ID_VARIABLE, "a-run")
    made._switch()
    return made


@pytest.fixture
def node(cluster: Dealing, tmp_path: Path) -> ClusterNode:
    return leased(cluster, STUDY.node_options(), tmp_path)


def test_placeholders_hold_all_gpus_but_one_during_a_state(cluster: Dealing, node: ClusterNode) -> None:
    node.ensure(state("time-slicing"))
    assert cluster.held == {uuid(1): 7}, "the study's largest number of tenants"
    later = leased(cluster, STUDY.node_options(), node.folder)
    cluster.log.clear()
    later.ensure(state("time-slicing"))
    assert [verb for verb, path, _ in cluster.log if path.endswith("/pods")] == []
    later.ensure(state("exclusive"))
    assert cluster.held == {uuid(1): 1}
    later.restore()
    assert cluster.held == {}


def test_the_plan_says_what_placeholders_hold(node: ClusterNode) -> None:
    assert "(a cordon while it switches); holds 1 other GPU by placeholder pods;" in node.plan(STUDY.strategies["mps"])


def test_a_lost_placeholder_is_recreated(cluster: Dealing, node: ClusterNode) -> None:
    node.ensure(state("exclusive"))
    cluster.tenants.clear()
    leased(cluster, STUDY.node_options(), node.folder).ensure(state("exclusive"))
    assert cluster.held == {uuid(1): 1}


@pytest.mark.parametrize(("seen", "holds"), [(uuid(0), True), (uuid(1), False)])
def test_the_tenants_gpu_is_evidence(cluster: Dealing, node: ClusterNode, seen: str, holds: bool) -> None:
    node.ensure(state("exclusive"))
    exclusive = STUDY.strategies["exclusive"]
    records: list[Any] = [{"view": {"device": device_digest(seen), "is_mig": False, "mps_pipe": None}}]
    evidence = node.access("device-plugin").evidence(exclusive, node.grants(exclusive, 1), records)
    (found,) = [each for each in evidence if each["name"] == "GPU that all cells have"]
    assert (found["expected"], found["holds"]) == ([device_digest(uuid(0))], holds)


def test_gpus_are_identified_by_device_files(cluster: Dealing, node: ClusterNode) -> None:
    """As with devices given by CDI."""
    cluster.says = "void nvidia{minor}"
    node.ensure(state("exclusive"))
    assert cluster.held == {uuid(1): 1}
    cluster.says = "void nvidia0 nvidia1"
    with pytest.raises(NodeError, match="does not show a pod which GPU it has"):
        node.ensure(state("time-slicing"))


def test_a_node_without_room_for_placeholders_is_infeasible(cluster: Dealing, node: ClusterNode) -> None:
    cluster.store[NODE]["status"]["allocatable"]["pods"] = "40"
    why = node.infeasible(STUDY.strategies["time-slicing"], 3)
    assert why is not None and why.startswith(
        "14 placeholder pods would have to hold the node's GPUs, it has room for 10"
    )
    assert node.infeasible(STUDY.strategies["exclusive"], 1) is None


@pytest.mark.parametrize(
    ("said", "gpu"),
    [
        ("GPU-1 nvidia0 nvidia1\n", device_digest("GPU-1")),
        ("void nvidia3", "nvidia3"),
        ("GPU-1,GPU-2 nvidia3", "nvidia3"),
    ],
)
def test_the_gpu_is_parsed_from_a_placeholders_log(said: str, gpu: str) -> None:
    assert parse_gpu(said) == gpu
