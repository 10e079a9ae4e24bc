"""`kubectl apply -k` of the folders of config/cluster on a real API server."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.harness import Cluster, eventually
from cluster.test_runs import MANIFESTS, NAMESPACE, asked, grant, names
from kubernetes import client

KINDS = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts"


def ours(cluster: Cluster) -> set[str]:
    """Roles and bindings with our name, and the namespace."""
    found = asked(cluster, "get", KINDS, "--all-namespaces", "--output", "name").split()
    return {each for each in found if each.split("/")[1].startswith("sharebench")} | {NAMESPACE} & names(cluster)


def test_applied_manifests_can_be_deleted(cluster: Cluster) -> None:
    before = ours(cluster)
    folders = sorted(path.parent for path in MANIFESTS.glob("**/kustomization.yaml"))
    shown = [str(path.relative_to(MANIFESTS)) for path in folders]
    assert len(shown) > 2
    grant(cluster, *shown)
    try:
        made = {each.split("/")[1] for each in ours(cluster) - before if "rolebinding" in each}
        assert made == {"sharebench", "sharebench-tenants"} | {
            f"sharebench-{path.name}" for path in folders if path.name != "tenants"
        }
    finally:
        grant(cluster, *reversed(shown), delete=True)
    eventually("the namespace's end", lambda: NAMESPACE not in names(cluster))
    assert ours(cluster) == before


def test_a_users_kustomization_leaves_the_namespace_alone(cluster: Cluster, tmp_path: Path) -> None:
    base = os.path.relpath(MANIFESTS, tmp_path.resolve())
    own = tmp_path / "kustomization.yaml"
    own.write_text(f"namespace: team\nresources: [{base}/tenants, {base}/tenants/dra]\n")
    asked(cluster, "create", "namespace", "team")
    labels = cluster.core.read_namespace("team").metadata.labels
    try:
        asked(cluster, "apply", "--validate=strict", "-k", str(tmp_path))
        rbac = client.RbacAuthorizationV1Api(cluster.api)
        bindings = rbac.list_role_binding_for_all_namespaces().items + rbac.list_cluster_role_binding().items
        ours = [each.subjects[0].namespace for each in bindings if each.metadata.name.startswith("sharebench")]
        assert set(ours) == {"team"}
    finally:
        asked(cluster, "delete", "--ignore-not-found", "-k", str(tmp_path))
        left = cluster.core.read_namespace("team")
        cluster.core.delete_namespace("team")
    assert (left.metadata.labels, left.status.phase) == (labels, "Active")
