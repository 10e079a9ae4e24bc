"""What a user's manifest refers to outside of its namespace: a volume of its own, and a RuntimeClass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.driving import Run, study_of
from cluster.harness import PLUGIN_NAMESPACE, PYTHON_IMAGE, Cluster, eventually
from cluster.test_pods_that_fail import left
from kubernetes import client

pytestmark = pytest.mark.slow
PATH = "/var/lib/testbed-weights"
VOLUME: dict[str, Any] = {"name": "weights", "hostPath": {"path": PATH, "type": "DirectoryOrCreate"}}
MANIFEST = {
    "kind": "Pod",
    "spec": {
        "runtimeClassName": "nvidia",
        "volumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}],
        "containers": [
            {
                "name": "server",
                "image": PYTHON_IMAGE,
                "command": ["python3", "-m", "http.server", "{port}", "--directory", "/weights"],
                "volumeMounts": [{"name": "weights", "mountPath": "/weights"}],
            }
        ],
    },
}


@contextmanager
def made(cluster: Cluster, namespace: str) -> Iterator[None]:
    """A RuntimeClass, and a volume with a file, which is claimed in the namespace."""
    classes = client.NodeV1Api(cluster.api)
    writer = {
        "metadata": {"name": "writer"},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [VOLUME],
            "containers": [
                {
                    "name": "main",
                    "image": PYTHON_IMAGE,
                    "command": ["python3", "-c", f"open('{PATH}/answer', 'w').write('42')"],
                    "volumeMounts": [{"name": "weights", "mountPath": PATH}],
                }
            ],
        },
    }
    asked = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**asked, "capacity": {"storage": "1Mi"}, "hostPath": VOLUME["hostPath"]}
    claim = {**asked, "volumeName": namespace, "resources": {"requests": {"storage": "1Mi"}}}
    classes.create_runtime_class({"metadata": {"name": "nvidia"}, "handler": "runc"})
    cluster.core.create_persistent_volume({"metadata": {"name": namespace}, "spec": volume})
    cluster.core.create_namespaced_persistent_volume_claim(namespace, {"metadata": {"name": "weights"}, "spec": claim})
    cluster.core.create_namespaced_pod(PLUGIN_NAMESPACE, writer)
    try:
        cluster.wait_for_phase(PLUGIN_NAMESPACE, "writer", "Succeeded")
        yield
    finally:
        cluster.core.delete_namespaced_pod("writer", PLUGIN_NAMESPACE)
        cluster.core.delete_namespaced_persistent_volume_claim("weights", namespace)
        cluster.core.delete_persistent_volume(namespace)
        classes.delete_runtime_class("nvidia")


def test_a_server_with_a_volume_of_its_own_and_a_runtime_class(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    own = {"kind": "http", "manifest": "mine.yaml", "port": 8000, "request": {"path": "/answer"}}
    given = study_of(
        namespace,
        strategies=["time-slicing"],
        replicas=[2],
        baseline="none",
        workloads=["own"],
        workload_catalogue={"own": own},
    )
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(MANIFEST))
    run = Run(tmp_path, plugin.kubeconfig, given)
    code, out = run.finish("preflight")
    said = " ".join(out.split())
    assert code == 1, out
    assert f"persistentvolumeclaims/weights is not in namespace {namespace}; copy it there" in said
    assert 'RuntimeClass "nvidia" not found' in said
    with made(plugin, namespace):
        assert "all that is needed" in run.passed("preflight")
        seen: list[Any] = []
        process = run.start()
        eventually("its pods", lambda: seen.extend(pods(plugin, namespace)) or len(seen) >= 2, 300)
        out, _ = process.communicate(timeout=run.seconds)
        assert process.returncode == 0, out
        assert {pod.spec.runtime_class_name for pod in seen} == {"nvidia"}
        (record,) = (json.loads(path.read_text()) for path in tmp_path.glob("results/cells/*/*/*/*/raw.json"))
        assert record["status"] == "ok", record["reason"]
        assert [(tenant["errors"], tenant["count"] > 0) for tenant in record["tenants"]] == [(0, True)] * 2
        assert left(plugin, namespace) == []


def pods(cluster: Cluster, namespace: str) -> list[Any]:
    return list(cluster.core.list_namespaced_pod(namespace, label_selector="sharebench/cell").items)
