"""A node that version 0.1.0 has left changed is restored.

left_by_0.1.0.json has the node, the plugin's ConfigMap and the Lease of a run that was killed under MPS, as the code of
0.1.0 (commit 5d24e8b7) wrote them to the fake cluster of its tests.
"""

import copy
import json
from pathlib import Path

import pytest
from unit.kubernetes.fake_cluster import CONFIGS, NODE, FakeCluster
from unit.kubernetes.test_device_plugin import STUDY, cluster, opened, state
from unit.kubernetes.test_interrupted_switches import shape

from sharebench.measure.run import interrupts
from sharebench.measure.run.restore import restore_node

__all__ = ["cluster"]
LEFT = json.loads((Path(__file__).parent / "left_by_0.1.0.json").read_text(encoding="utf-8"))


@pytest.fixture
def before(cluster: FakeCluster) -> object:
    """What the cluster was like before the run of 0.1.0, which has now left it."""
    del cluster.store[NODE]["metadata"]["labels"]["nvidia.com/gpu.memory"]
    was = shape(cluster)
    cluster.store |= copy.deepcopy(LEFT)
    cluster._switch()
    assert shape(cluster) != was
    return was


def test_restore_undoes_what_0_1_left(
    cluster: FakeCluster, before: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharebench.measure.nodes.kubernetes.cluster.cluster.Api", lambda _: cluster)
    # It would handle the signals of all tests after this one.
    monkeypatch.setattr(interrupts, "end_run_at_first", lambda _: None)
    assert restore_node(STUDY, tmp_path / "results", [], "") == 0
    assert shape(cluster) == before


def test_the_next_run_restores_what_0_1_left(cluster: FakeCluster, before: object, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing", 3))
    assert cluster.store[NODE]["metadata"]["labels"]["nvidia.com/device-plugin.config"] != "sharebench-mps-3-42f24c4e"
    node.restore()
    assert CONFIGS in cluster.store and shape(cluster) == before
