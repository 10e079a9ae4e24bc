"""Facts of a real GPU that tenants observe: its identity, its SMs, and whether MPS limits were active."""

from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster, node_of
from unit.kubernetes.test_cluster_node import H200, INFO
from unit.kubernetes.test_device_plugin import cluster
from unit.studies import study_with

from sharebench.measure.nodes.kubernetes.access.device_plugin.plugin import DevicePluginAccess
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from tenant.contract import PROBE_BYTES_VARIABLE

__all__ = ["cluster"]
GIB = 1 << 30
THIRD = (143771 << 20) * 33 // 100
STUDY = study_with({"node": "kubernetes", "strategies": ["exclusive", "time-slicing", "mps"], "replicas": [3]})


@pytest.fixture
def node(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterNode:
    """A node with a real GPU, and a device plugin without evidence of its own."""
    cluster.store[NODE]["metadata"]["labels"] = dict(H200)
    cluster.store[NODE]["status"]["nodeInfo"] = INFO
    monkeypatch.setattr(DevicePluginAccess, "evidence", lambda *_: [])
    return node_of(cluster, STUDY.node_options(), tmp_path)


def seen(node: ClusterNode, name: str, replicas: int, **changes: Any) -> list[str]:
    """Names of the evidence that does not hold after a cell with these views."""
    view = {"device": "0123", "is_mig": False, "sm_count": 132, "memory_free_bytes": 139 * GIB} | changes
    strategy = STUDY.strategies[name]
    records: Any = [{"view": {"over_limit_refused": None, **view}}] * replicas
    evidence = node.evidence(strategy, node.grants(strategy, replicas), records)
    return sorted({item["name"] for item in evidence if not item["holds"]})


def test_a_tenant_reveals_the_nodes_gpu(node: ClusterNode, cluster: FakeCluster, tmp_path: Path) -> None:
    before = node.facts()
    assert before["device"] == before["details"]["machine"]
    assert seen(node, "exclusive", 1) == []
    assert node.facts()["device"] == "0123"
    later = node_of(cluster, STUDY.node_options(), tmp_path)
    assert later.facts()["device"] == "0123", "a later job of the run knows it"
    seen(node, "exclusive", 1, device="4567")
    assert node.facts()["device"] == "4567"
    seen(node, "exclusive", 1, device="mig-instance", is_mig=True)
    assert node.facts()["device"] == "4567", "an instance is not the GPU"


def test_tenants_beyond_their_limits_contradict_the_strategy(node: ClusterNode) -> None:
    limited = {"sm_count": 42, "memory_free_bytes": THIRD - GIB, "over_limit_refused": True}
    assert seen(node, "mps", 3, **{**limited, "sm_count": 132}) == [], "the number of SMs is not known yet"
    assert seen(node, "exclusive", 1) == []
    assert seen(node, "mps", 3, **limited) == []
    assert seen(node, "mps", 3, **{**limited, "sm_count": 132}) == ["SMs"]
    assert seen(node, "mps", 3, **{**limited, "memory_free_bytes": 139 * GIB}) == ["free memory in bytes"]
    assert seen(node, "mps", 3, **{**limited, "over_limit_refused": False}) == ["allocation beyond the limit refused"]
    assert seen(node, "time-slicing", 3, sm_count=42) == ["SMs"]


def test_a_limited_tenant_probes_its_memory_limit(node: ClusterNode) -> None:
    for name, limit in (("time-slicing", None), ("mps", str(int((143771 << 20) * (100 / 3) / 100) + GIB))):
        cell = next(each for each in STUDY.cells if (each.strategy, each.replicas) == (name, 3))
        spec: Any = STUDY.spec(cell)
        needs = node.access("device-plugin").pod_needs(spec, node.grants(STUDY.strategies[name], 3)[0])
        assert needs.environment.get(PROBE_BYTES_VARIABLE) == limit
