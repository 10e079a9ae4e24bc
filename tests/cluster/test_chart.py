"""A second installation: NVIDIA's chart of the device plugin, unchanged, with the values of config/cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, normalised, owned, state, study_of
from cluster.harness import RESTRICTED, Cluster, eventually, own_bed
from cluster.testbed import charts
from kubernetes import client
from tables import rows

pytestmark = pytest.mark.slow
CONFIGS = f"{charts.RELEASE}-nvidia-device-plugin-configs"


@pytest.fixture(scope="module")
def charted(machine: None) -> Iterator[Cluster]:
    """A separate test bed with the plugin and NFD installed by Helm."""
    with own_bed("chart") as found:
        charts.install(found)
        cluster = Cluster(found)
        eventually("a GPU with labels", lambda: cluster.labels().get("gpu.sharing-strategy") == "none")
        eventually("an allocatable GPU", lambda: cluster.allocatable() == 1)
        yield cluster


def state_of(cluster: Cluster) -> dict[str, Any]:
    """The parts of a node and of its installation that a run changes."""
    node = cluster.node()
    kept = ("device-plugin.config", "gpu.replicas", "gpu.sharing-strategy", "mps.capable")
    leases = client.CoordinationV1Api(cluster.api).list_namespaced_lease(charts.NAMESPACE).items
    return {
        "labels": {key: value for key, value in cluster.labels().items() if key in kept},
        "taints": [taint.key for taint in node.spec.taints or []],
        "notes": [key for key in node.metadata.annotations if key.startswith("sharebench")],
        "allocatable": {name: count for name, (_, count) in cluster.resources().items() if count},
        "configs": cluster.core.read_namespaced_config_map(CONFIGS, charts.NAMESPACE).data,
        "daemon sets": {
            each.metadata.name: each.metadata.generation
            for each in cluster.apps.list_namespaced_daemon_set(charts.NAMESPACE).items
        },
        "leases": [each.metadata.name for each in leases],
    }


def test_a_study_on_the_unmodified_chart(charted: Cluster, tmp_path: Path) -> None:
    before = state_of(charted)
    assert before["configs"].keys() == {"default"}
    assert len(before["daemon sets"]) == 3
    with charted.namespace(RESTRICTED) as namespace:
        # Its MPS daemon may have to be restarted, more than once on a busy machine.
        run = Run(tmp_path, charted.kubeconfig, study_of(namespace, kubernetes={"switch_seconds": 300}))
        out = run.passed("preflight")
        assert f"0.19.3 (standalone, {charts.NAMESPACE}/{charts.RELEASE}-nvidia-device-plugin)" in out
        assert f"{charts.NAMESPACE}/{CONFIGS}, default default" in out
        run.passed()
        summary = rows(tmp_path / "results/tables/summary.csv")
        cells = {(row["strategy"], row["replicas"]): row["status"] for row in summary}
        assert cells == {
            ("exclusive", "1"): "ok",
            ("exclusive-again", "1"): "ok",
            ("time-slicing", "1"): "ok",
            ("time-slicing", "3"): "ok",
            ("mps", "1"): "infeasible",
            ("mps", "3"): "ok",
        }
        assert state_of(charted) == before
        run.passed("restore")
        assert state_of(charted) == before


def daemon_of(cluster: Cluster) -> Any:
    """The pod of the MPS daemon; the chart gives all its pods the same labels."""
    pods = cluster.core.list_namespaced_pod(charts.NAMESPACE).items
    (found,) = [pod for pod in pods if "mps-control-daemon" in pod.metadata.name]
    return found


def test_a_suspect_mps_daemon_is_restarted_and_shares_as_before(charted: Cluster, tmp_path: Path) -> None:
    """A new daemon idles if it started before its sidecar, which only a plugin that restarts notices."""
    before = state_of(charted)
    with charted.namespace(RESTRICTED) as namespace:
        study = normalised(study_of(namespace, kubernetes={"switch_seconds": 300}))
        with owned(charted, study, tmp_path) as node:
            node.ensure(state(study, "mps", 3))
            first = daemon_of(charted).metadata.uid
            node.mark_dirty()
            node.ensure(state(study, "mps", 3))
            second = daemon_of(charted)
            assert second.metadata.uid != first
            assert charted.allocatable() == 3
            assert charted.mps_share(second) == 33
    assert state_of(charted) == before
