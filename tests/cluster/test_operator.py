"""The GPU operator without a ConfigMap: NVIDIA's definition of a ClusterPolicy, and a stand-in for its controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import REPOSITORY, Run, study_of
from cluster.harness import PLUGIN_NAMESPACE, Cluster, eventually, own_bed
from cluster.testbed import gpu, operator, programs
from cluster.testbed.lifecycle import run
from kubernetes import client
from tables import rows

pytestmark = [pytest.mark.testbed, pytest.mark.slow]
NAMESPACE = "sharebench"
FOLDER = REPOSITORY / "config" / "cluster"


@pytest.fixture(scope="module")
def operated(machine: None) -> Iterator[Cluster]:
    """A test bed of its own whose ClusterPolicy names no ConfigMap."""
    with own_bed("operator") as found:
        gpu.install(found.kubeconfig)
        operator.install(found)
        with operator.operating(found):
            cluster = Cluster(found.kubeconfig, found)
            eventually("a plugin without sidecar", lambda: is_bare(cluster), 90)
            eventually("a GPU", lambda: cluster.allocatable() == 1, 60)
            yield cluster


def is_bare(cluster: Cluster) -> bool:
    pods = cluster.plugin_pods()
    return len(pods) == 1 and len(pods[0].spec.containers) == 1 and all(each.ready for each in statuses(cluster))


def statuses(cluster: Cluster) -> list[Any]:
    return list(cluster.containers().values()) if len(cluster.plugin_pods()) == 1 else []


@pytest.fixture
def account(operated: Cluster, tmp_path: Path) -> Path:
    """Kubeconfig of the service account with the rights of the manifests, those for a ClusterPolicy included."""
    kubectl = [programs.obtain(programs.KUBE)["kubectl"], f"--kubeconfig={operated.kubeconfig}", "apply"]
    for name in ("namespace", "rbac"):
        run(*kubectl, "-f", FOLDER / f"{name}.yaml")
    for name in ("rbac-plugin", "rbac-clusterpolicy"):
        run(*kubectl, f"--namespace={PLUGIN_NAMESPACE}", "-f", FOLDER / f"{name}.yaml")
    return operated.kubeconfig_of("sharebench", NAMESPACE, tmp_path)


def shown(cluster: Cluster) -> dict[str, Any]:
    """What a run changes, in the cluster and on the node."""
    policies = client.CustomObjectsApi(cluster.api)
    policy = policies.get_cluster_custom_object(operator.GROUP, operator.VERSION, operator.PLURAL, operator.NAME)
    node = cluster.node()
    return {
        "policy": policy["spec"],
        "config maps": [each.metadata.name for each in cluster.core.list_namespaced_config_map(PLUGIN_NAMESPACE).items],
        "labels": {key: cluster.labels().get(key) for key in ("device-plugin.config", "gpu.replicas")},
        "taints": node.spec.taints,
        "notes": [key for key in node.metadata.annotations if key.startswith("sharebench")],
        "allocatable": cluster.allocatable(),
        "is bare": is_bare(cluster),
    }


def study(**cluster: Any) -> dict[str, Any]:
    return study_of(NAMESPACE, strategies=["exclusive", "time-slicing"], replicas=[1, 3], kubernetes=cluster)


def test_without_leave_the_line_says_what_to_type_and_nothing_is_changed(
    operated: Cluster, account: Path, tmp_path: Path
) -> None:
    before = shown(operated)
    run = Run(tmp_path, account, study())
    code, out = run.finish("preflight")
    assert code == 1, out
    assert "v1.11.1 (ClusterPolicy cluster-policy" in out
    assert "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge" in out
    code, out = run.finish()
    assert code == 1, out
    assert "kubernetes: {may_change: [clusterpolicy]}" in out
    assert shown(operated) == before


def test_with_leave_the_policy_names_a_config_map_for_the_run_and_nothing_afterwards(
    operated: Cluster, account: Path, tmp_path: Path
) -> None:
    before = shown(operated)
    run = Run(tmp_path, account, study(may_change=["clusterpolicy"]))
    code, out = run.finish("preflight")
    assert code == 0, out
    assert "for a run the ClusterPolicy names one" in out
    code, out = run.finish()
    assert code == 0, out
    assert {row["status"] for row in rows(tmp_path / "results/tables/summary.csv")} == {"ok"}
    eventually("the plugin as it was", lambda: is_bare(operated), 60)
    assert shown(operated) == before
