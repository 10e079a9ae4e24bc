"""Suspect MPS daemons, whose tenants may not have ended well, are restarted before the next cell."""

from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import PODS, FakeCluster
from unit.kubernetes.test_device_plugin import STUDY, cluster, opened, state

from sharebench.measure.nodes.contract import Evidence, NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin.plugin import DevicePluginAccess
from sharebench.measure.nodes.kubernetes.node import ClusterNode

__all__ = ["cluster"]
DAEMON, PLUGIN = f"{PODS}mps-x", f"{PODS}plugin-x"
WELL = {"load": {"arrival": "closed", "censored": 0}}
STUCK = {"load": {"arrival": "closed", "censored": 1}}


def deleted(cluster: FakeCluster) -> list[str]:
    """Pods deleted since the last call, in order."""
    found = [path for verb, path, _ in cluster.log if verb == "delete" and path.startswith(PODS)]
    cluster.log.clear()
    return found


def begin(node: ClusterNode, replicas: int) -> None:
    """Begin a cell under MPS without starting its tenants."""
    node.ensure(state("mps", replicas))
    cell = next(each for each in STUDY.cells if (each.strategy, each.replicas) == ("mps", replicas))
    settings = {"timeouts": {"start_seconds": 1, "record_seconds": 1}, "loads": [], "cell_folder": "a-cell"}
    node.tenants(STUDY.spec(cell), settings)


def end(node: ClusterNode, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]], holds: bool = True) -> None:
    """End the cell with these records, and with evidence that holds or not."""
    evidence: Evidence = [{"name": "n", "expected": True, "observed": holds, "holds": holds, "source": "node"}]
    monkeypatch.setattr(DevicePluginAccess, "evidence", lambda *_: evidence)
    delivered: Any = [
        {"view": {"sm_count": None, "memory_free_bytes": 0, "over_limit_refused": True}, **each} for each in records
    ]
    node.evidence(STUDY.strategies["mps"], node.grants(STUDY.strategies["mps"], len(records)), delivered)


def test_the_mps_daemon_is_restarted_after_tenants_ended_badly(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("mps", 3))
    node.mark_dirty()
    deleted(cluster)
    later = opened(cluster, tmp_path)
    later.ensure(state("mps", 3))
    # The plugin looks for a daemon only when it starts, and would not notice one that shares nothing; here the first
    # one started before the daemon.
    assert deleted(cluster) == [DAEMON, PLUGIN, PLUGIN]
    assert "mps" in cluster.daemons
    assert cluster.started_daemons == 2
    assert later.switched is not None
    assert "its daemon is restarted" in capsys.readouterr().err
    opened(cluster, tmp_path).ensure(state("mps", 3))
    assert deleted(cluster) == []


@pytest.mark.parametrize(
    ("records", "holds", "is_renewed"),
    [
        ([WELL, WELL], True, False),
        ([WELL, {"load": {"arrival": "poisson", "censored": 3}}], True, False),
        ([WELL, WELL | {"job": {"completion_seconds": 1.5}}], True, False),
        ([WELL, WELL | {"job": {"completion_seconds": None}}], True, True),
        ([WELL, STUCK], True, True),
        ([WELL, WELL], False, True),
        # No record, as when a tenant does not answer, a pod is evicted, or the job is killed.
        (None, True, True),
    ],
)
def test_the_daemon_is_suspect_until_the_tenants_records_are_good(
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    records: list[dict[str, Any]] | None,
    holds: bool,
    is_renewed: bool,
) -> None:
    node = opened(cluster, tmp_path)
    begin(node, 3)
    if records is not None:
        end(node, monkeypatch, records, holds)
    deleted(cluster)
    opened(cluster, tmp_path).ensure(state("mps", 3))
    assert deleted(cluster) == ([DAEMON, PLUGIN, PLUGIN] if is_renewed else [])


def test_a_suspect_daemon_that_is_gone_needs_no_restart(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("mps", 3))
    node.mark_dirty()
    node.ensure(state("time-slicing"))
    deleted(cluster)
    node.ensure(state("mps", 3))
    assert deleted(cluster) == [PLUGIN], "only the plugin, which looks for the new one"
    assert not node.mps_suspect_file("device-plugin").exists()
    node.mark_dirty()
    node.restore()
    assert not node.mps_suspect_file("device-plugin").exists(), "nor after the end of the run"


def test_a_daemon_that_does_not_end_fails_and_stays_suspect(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("mps", 3))
    node.mark_dirty()
    monkeypatch.setattr(cluster, "delete", lambda path, *_, **__: None)
    for _ in range(2):
        with pytest.raises(NodeError, match="the pod of mps does not end within 300 s: its MPS server may hang"):
            opened(cluster, tmp_path).ensure(state("mps", 3))
