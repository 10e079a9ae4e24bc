"""The pipeline's pods on a real GPU: NVIDIA's device plugin and DRA driver on the driver of this machine.

The test bed of `tests/cluster` with the machine's own GPU. Needs root, and its programs: built here, or carried here by
`python -m cluster.testbed pack` and named in SHAREBENCH_TESTBED_BIN.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.testbed import cgroups, gpu, lifecycle, requirements, schedulers
from cluster.testbed.instance import Gpu, Instance, cache
from gpu.gpu_host import assert_clean_host, assert_valid, gpu_pids, gpu_settings, output_of, record_of, run

from sharebench.model.capabilities import has_nvidia_gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_nvidia_gpu(), reason="no NVIDIA GPU on this host"),
]

NAMESPACE = "sharebench"
WORKLOAD = "matmul-256-graph"
TENANTS = 2
RUN_SECONDS = 480
HERE = Path(__file__).parent
STUDY: dict[str, Any] = {
    "node": "kubernetes",
    "replicas": [TENANTS],
    "workloads": [WORKLOAD],
    "repeats": 1,
    "window_seconds": 4,
    "warmup": {"max_seconds": 3},
    "null_cells": False,
    "timeouts": {"start_seconds": 120},
    "workload_catalogue": {WORKLOAD: {"min_window_seconds": 1}},
    "kubernetes": {
        "namespace": NAMESPACE,
        "image": "testbed.local/python:1",
        "python": sys.executable,
        "device": "cuda",
        "stable_seconds": 3,
        "reach": "pod-ip",
    },
}


@contextmanager
def bed(kind: Gpu) -> Iterator[Instance]:
    """A test bed on the machine's GPU, with the namespace of a study; nothing is left of it."""
    lack = requirements.missing(kind)
    if lack:
        pytest.skip(lack)
    name = f"{kind}-{os.getpid()}"
    before = gpu_settings()
    assert_clean_host()
    try:
        found = lifecycle.up(name, gpu=kind)
        gpu.install(found)
        body = {"metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        text = yaml.safe_dump(body | {"apiVersion": "v1", "kind": "Namespace"})
        lifecycle.kubectl(found, "create", "-f", "-", text=text)
        yield found
    finally:
        lifecycle.down(name)
    assert_clean_host()
    assert gpu_pids() == []
    assert cgroups.processes(found.cgroup) == set()
    assert [str(folder) for folder in cgroups.folders(found.cgroup) if folder.exists()] == []
    assert str(cache()) not in Path("/proc/mounts").read_text()
    assert gpu_settings() == before


def measured(found: Instance, folder: Path, monkeypatch: pytest.MonkeyPatch, study: dict[str, Any]) -> None:
    """The study, run on the test bed."""
    monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    assert run(folder, seconds=RUN_SECONDS) == 0, output_of(folder)


def mean_seconds(record: dict[str, Any]) -> float:
    tenants = record["tenants"]
    return float(sum(each["sum_seconds"] for each in tenants) / sum(each["count"] for each in tenants))


def test_pods_share_the_gpu_through_the_device_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bed("real") as found:
        measured(found, tmp_path, monkeypatch, STUDY | {"strategies": ["time-slicing", "mps-limited"]})
        records = {
            name: record_of(tmp_path / "results", name, WORKLOAD, TENANTS) for name in ("time-slicing", "mps-limited")
        }
    for record in records.values():
        assert_valid(record)
        assert len({tenant["view"]["device"] for tenant in record["tenants"]}) == 1
    units = records["time-slicing"]["tenants"][0]["view"]["sm_count"]
    for tenant in records["mps-limited"]["tenants"]:
        assert tenant["view"]["sm_count"] == pytest.approx(units / TENANTS, abs=2)
    assert mean_seconds(records["mps-limited"]) < 0.5 * mean_seconds(records["time-slicing"])


def test_pods_share_the_gpu_through_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["time-slicing", "mps"]
    with bed("real-cdi") as found:
        by_claims = {"strategies": names, "kubernetes": STUDY["kubernetes"] | {"access": "dra"}}
        measured(found, tmp_path, monkeypatch, STUDY | by_claims)
        records = {name: record_of(tmp_path / "results", name, WORKLOAD, TENANTS) for name in names}
    for record in records.values():
        assert_valid(record)
    assert mean_seconds(records["mps"]) < 0.5 * mean_seconds(records["time-slicing"])


def test_hami_keeps_pods_to_their_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the GPU each for two pods, and for one alone: memory, and what the records say of time."""
    if (lack := schedulers.missing("hami")) is not None:
        pytest.skip(lack)
    study = yaml.safe_load((HERE / "hami-pods.yaml").read_text())
    study["kubernetes"]["python"] = sys.executable
    with bed("real") as found:
        schedulers.replace_plugin(found)
        schedulers.install(found, "hami", "deployment/hami-scheduler", "daemonset/hami-device-plugin")
        measured(found, tmp_path, monkeypatch, study)
    results = tmp_path / study["results"]
    count = {"exclusive": 1, "hami-half": 1, "hami": TENANTS}
    for workload in study["workloads"]:
        records = {name: record_of(results, name, workload, replicas) for name, replicas in count.items()}
        for record in records.values():
            assert_valid(record)
        for name in ("hami", "hami-half"):
            assert [tenant["view"]["over_limit_refused"] for tenant in records[name]["tenants"]] == [True] * count[name]
        # Whether it keeps pods to a share of the time depends on driver and workload: docs/strategies/schedulers.md.
        print(workload, {name: mean_seconds(record) for name, record in records.items()})
