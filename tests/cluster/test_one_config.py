"""The device plugin as NVIDIA's README installs it: one config and no default, so that nodes fall back to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster.driving import study_of
from cluster.harness import PLUGIN_NAMESPACE, RESTRICTED, Cluster, eventually, own_bed
from cluster.test_faults import is_as_before, kill, mid_window, under_way
from cluster.test_runs import run_in
from cluster.test_switching import shown
from cluster.testbed import gpu
from cluster.testbed.lifecycle import kubectl

IN_NAMESPACE = f"--namespace={PLUGIN_NAMESPACE}"
CONFIG = {
    "version": "v1",
    "flags": {"migStrategy": "none"},
    "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
}


@pytest.fixture(scope="module")
def fallen_back(machine: None) -> Iterator[Cluster]:
    with own_bed("one-config") as found:
        gpu.install(found)
        cluster = Cluster(found)
        name = "nvidia-device-plugin-configs"
        old = cluster.core.read_namespaced_config_map(name, PLUGIN_NAMESPACE).data
        new = json.dumps({"data": dict.fromkeys(old) | {"config": yaml.safe_dump(CONFIG)}})
        kubectl(found, IN_NAMESPACE, "patch", "configmap", name, "--patch", new)
        variables = ("DEFAULT_CONFIG=", "FALLBACK_STRATEGIES=named,single")
        kubectl(found, IN_NAMESPACE, "set", "env", "daemonset", "--all", "--containers=*-init", *variables)
        kubectl(found, IN_NAMESPACE, "set", "env", "daemonset", "--all", "--containers=*-sidecar", *variables)
        eventually("four replicas", lambda: (cluster.allocatable(), cluster.labels().get("gpu.replicas")) == (4, "4"))
        yield cluster


def link(cluster: Cluster) -> str:
    """The config that the plugin would read if it started now."""
    pod, container = cluster.plugin_pods()[0].metadata.name, "nvidia-device-plugin-ctr"
    return cluster.execute(PLUGIN_NAMESPACE, pod, "cat", "/config/config.yaml", container=container)


def test_the_node_comes_back_after_a_killed_run_and_the_next_one(fallen_back: Cluster, tmp_path: Path) -> None:
    before = shown(fallen_back)
    assert (before["configs"], before["allocatable"]) == (["config"], {"nvidia.com/gpu": 4})
    with fallen_back.namespace(RESTRICTED) as namespace:
        study = study_of(namespace, strategies=["exclusive"], replicas=[1], null_cells=False, window_seconds=10)
        run = run_in(tmp_path / "study", fallen_back.kubeconfig, study)
        assert "default not set: config, the only one" in " ".join(run.passed("preflight").split())
        with under_way(run) as process:
            mid_window(fallen_back, namespace, run, 0)
            kill(process)
        assert "default" in shown(fallen_back)["configs"], "for nodes that look for their config meanwhile"
        assert "restoring the node" in run.passed()
        is_as_before(fallen_back, namespace, before)
    assert yaml.safe_load(link(fallen_back)) == CONFIG
    for name in ("nvidia-device-plugin", "gpu-feature-discovery"):
        assert all(status.ready for status in fallen_back.containers(name).values())
