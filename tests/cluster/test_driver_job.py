"""The pipeline itself as a Job of the cluster, by config/cluster/driver.yaml.

The test bed has no registry and no package index. So the image is its Python, the checkout is a copy of this one, and
the packages are those of this environment, mounted from the host; everything else is as the manifest has it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.driving import REPOSITORY, RUN_SECONDS, study_of
from cluster.harness import PLUGIN_NAMESPACE, PYTHON_IMAGE, Cluster, eventually
from cluster.test_runs import NAMESPACE, account, objects, running
from cluster.test_switching import shown
from kubernetes import client

__all__ = ["account"]
NAME = "sharebench-driver"
USER = 1000
# Of the image, whose packages are those of this environment.
IMAGE_PYTHON = (3, 11)
SITE = "/site"
SNAKEMAKE = '#!/bin/sh\nexec python3 -m snakemake "$@"\n'

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info[:2] != IMAGE_PYTHON, reason="packages of another Python than the image's"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What the Job's volume holds: a checkout with its environment, what its packages want of the system,
    and a study of three cells."""
    checkout = tmp_path / "data" / "sharebench"
    listed = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--", "Snakefile", "rules", "scripts", "config", "envs"]
    files = subprocess.run([*listed, "profiles"], capture_output=True, check=True).stdout.decode().split("\0")
    for file in filter(None, files):
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, checkout / file)
    program = checkout / ".venv" / "bin" / "snakemake"
    program.parent.mkdir(parents=True)
    program.write_text(SNAKEMAKE)
    program.chmod(0o755)
    (checkout / ".venv" / "run.stamp").touch()
    chosen: dict[str, Any] = {"strategies": ["time-slicing"], "replicas": [1, 2, 3], "baseline": "none"}
    (checkout / "study.yaml").write_text(yaml.safe_dump(study_of(NAMESPACE, window_seconds=20, **chosen)))
    for library in ("libstdc++.so.6", "libgcc_s.so.1"):
        found = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True)
        (checkout / "lib").mkdir(exist_ok=True)
        shutil.copy(found.stdout.strip(), checkout / "lib" / library)
    for path in (checkout.parent, *checkout.parent.rglob("*")):
        os.chown(path, USER, USER)
    return checkout.parent


def volume(name: str, path: str, claim: str, mode: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": NAMESPACE, "name": claim},
            "hostPath": {"path": path},
        },
    }


@pytest.fixture
def job(plugin: Cluster, account: Path, data: Path) -> Iterator[client.BatchV1Api]:
    """The manifest's Job, not started yet, with the test bed's image and packages."""
    batch = client.BatchV1Api(plugin.api)
    claim, made = objects("driver")
    packages = {"metadata": {"name": "site"}, "spec": {**claim["spec"], "accessModes": ["ReadOnlyMany"]}}
    plugin.core.create_persistent_volume(volume("sharebench-data", str(data), "sharebench", "ReadWriteOnce"))
    plugin.core.create_persistent_volume(
        volume("sharebench-site", os.path.realpath(sysconfig.get_path("purelib")), "site", "ReadOnlyMany")
    )
    try:
        for body in (claim, packages):
            plugin.core.create_namespaced_persistent_volume_claim(NAMESPACE, body)
        pod = made["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        container["image"] = PYTHON_IMAGE
        libraries = {"name": "LD_LIBRARY_PATH", "value": "/data/sharebench/lib"}
        container["env"] += [{"name": "PYTHONPATH", "value": SITE}, libraries]
        for entry in container["env"]:
            if entry["name"] == "STUDY":
                entry["value"] = "study.yaml"
        container["volumeMounts"].append({"name": "site", "mountPath": SITE, "readOnly": True})
        pod["volumes"].append({"name": "site", "persistentVolumeClaim": {"claimName": "site"}})
        made["spec"]["suspend"] = True
        batch.create_namespaced_job(NAMESPACE, made)
        yield batch
    finally:
        batch.delete_collection_namespaced_job(NAMESPACE, propagation_policy="Background")
        eventually("the end of the driver", lambda: not driver(plugin), RUN_SECONDS)
        for name in ("sharebench-data", "sharebench-site"):
            plugin.core.delete_persistent_volume(name)


def driver(cluster: Cluster) -> list[client.V1Pod]:
    """The Job's pods that still run."""
    pods = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=f"app.kubernetes.io/name={NAME}").items
    return [pod for pod in pods if pod.status.phase in ("Pending", "Running")]


def log(cluster: Cluster) -> str:
    pods = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=f"app.kubernetes.io/name={NAME}").items
    return "\n".join(cluster.core.read_namespaced_pod_log(pod.metadata.name, NAMESPACE) for pod in pods)


def suspend(batch: client.BatchV1Api, is_suspended: bool) -> None:
    batch.patch_namespaced_job(NAME, NAMESPACE, {"spec": {"suspend": is_suspended}})


def records(data: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data.glob("sharebench/results/cells/*/*/*/*/raw.json")}


def test_the_pipeline_resumes_after_its_job_is_ended(plugin: Cluster, job: client.BatchV1Api, data: Path) -> None:
    before = shown(plugin)
    suspend(job, False)

    def second_cell() -> bool:
        assert not job.read_namespaced_job_status(NAME, NAMESPACE).status.failed, log(plugin)
        return len(records(data)) == 1 and bool(running(plugin, NAMESPACE))

    eventually("the second cell", second_cell, RUN_SECONDS)
    first = records(data)
    suspend(job, True)
    eventually("the end of the driver", lambda: not driver(plugin), RUN_SECONDS)
    # The running cell finished and no other began: its pods are gone, the node is restored, its Lease is free.
    done = records(data)
    assert len(done) == 2 and first.items() <= done.items()
    is_as_before(plugin, before)
    suspend(job, False)

    def is_complete() -> bool:
        status = job.read_namespaced_job_status(NAME, NAMESPACE).status
        assert not status.failed, log(plugin)
        return bool(status.succeeded)

    eventually("the end of the study", is_complete, RUN_SECONDS)
    said = log(plugin)
    assert "1 of 3 cells to measure" in said
    assert done.items() <= records(data).items()
    statuses = [json.loads(record)["status"] for record in records(data).values()]
    assert statuses == ["ok"] * 3
    assert (data / "sharebench/results/report.html").exists()
    is_as_before(plugin, before)


def is_as_before(cluster: Cluster, before: dict[str, Any]) -> None:
    assert running(cluster, NAMESPACE) == []
    assert cluster.core.list_namespaced_config_map(NAMESPACE, label_selector="sharebench/node").items == []
    leases = client.CoordinationV1Api(cluster.api).list_namespaced_lease(PLUGIN_NAMESPACE).items
    assert [each.metadata.name for each in leases if each.metadata.name.startswith("sharebench")] == []
    assert shown(cluster) == before
