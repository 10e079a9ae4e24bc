"""`make cluster-install` and `cluster-uninstall`, and `kubectl apply -k config/cluster`, on a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.driving import REPOSITORY, node_of, normalised, study_of
from cluster.harness import Cluster, eventually
from cluster.test_runs import MANIFESTS, NAMESPACE, administer, install, kubectl, names
from kubernetes import client

from sharebench.nodes.kubernetes.preflight.rights import FEATURES, OPTIONAL

pytestmark = pytest.mark.testbed
KINDS = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,leases,configmaps,pods"


def ours(cluster: Cluster) -> set[str]:
    """Objects whose name says that they are ours, and the namespace."""
    found = asked(cluster, "get", KINDS, "--all-namespaces", "--output", "name").split()
    return {each for each in found if each.split("/")[1].startswith("sharebench")} | {NAMESPACE} & names(cluster)


def asked(cluster: Cluster, *arguments: str) -> str:
    """Output of kubectl."""
    done = subprocess.run([kubectl(), f"--kubeconfig={cluster.kubeconfig}", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_installed_is_removed_again(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ours(cluster)
    install(cluster, *FEATURES, *OPTIONAL)
    try:
        made = {each.split("/")[1] for each in ours(cluster) - before if "rolebinding" in each}
        assert made == {"sharebench", "sharebench-tenants", "sharebench-plugin"} | {
            f"sharebench-{name}" for name in (*FEATURES, *OPTIONAL)
        }
        assert "would run: " in administer(cluster, "uninstall")
        assert made <= {each.partition("/")[2] for each in ours(cluster)}, "a dry run removes nothing"

        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        monkeypatch.setenv("SHAREBENCH_RUN_ID", "20261120-000000-bbbb")
        node = node_of(normalised(study_of(NAMESPACE)), tmp_path, "20261120-000000-bbbb")
        try:
            command = [sys.executable, str(REPOSITORY / "scripts" / "cluster_uninstall.py"), "--apply"]
            path = f"{Path(kubectl()).parent}:{os.environ['PATH']}"
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": path})
            assert done.returncode == 1
            assert "run 20261120-000000-bbbb owns a node" in done.stderr
        finally:
            node.release()
        # What a run may have forgotten.
        cluster.core.patch_node(node.cluster.name, {"metadata": {"annotations": {"sharebench/forgotten": "x"}}})
    finally:
        administer(cluster, "uninstall", "--apply")
    eventually("the namespace's end", lambda: NAMESPACE not in names(cluster))
    assert ours(cluster) == before
    assert not any(key.startswith("sharebench/") for key in cluster.node().metadata.annotations)


def test_kubectl_alone_installs_the_same(cluster: Cluster, tmp_path: Path) -> None:
    """The base, and one of a user's own with another namespace in one line."""
    own = tmp_path / "kustomization.yaml"
    base = os.path.relpath(MANIFESTS, tmp_path.resolve())
    own.write_text(f"namespace: team\nresources: [{base}/tenants]\ncomponents: [{base}/tenants/dra]\n")
    cluster.core.create_namespace({"metadata": {"name": "gpu-operator"}})
    try:
        for folder in (MANIFESTS, tmp_path):
            try:
                asked(cluster, "apply", "--validate=strict", "-k", str(folder))
                subjects = client.RbacAuthorizationV1Api(cluster.api).list_role_binding_for_all_namespaces().items
                ours = [each.subjects[0].namespace for each in subjects if each.metadata.name.startswith("sharebench")]
                assert set(ours) == {NAMESPACE if folder == MANIFESTS else "team"}
            finally:
                asked(cluster, "delete", "--ignore-not-found", "-k", str(folder))
    finally:
        cluster.core.delete_namespace("gpu-operator")
        eventually("the namespaces' end", lambda: not names(cluster) & {NAMESPACE, "team", "gpu-operator"})
