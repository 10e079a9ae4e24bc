"""The device plugin as NVIDIA's README installs it: one config and no default, so that nodes fall back to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster.driving import Run, documented, study_of, typed
from cluster.harness import PLUGIN_NAMESPACE, RESTRICTED, Cluster, eventually, own_bed
from cluster.test_faults import is_as_before, kill, mid_window, under_way
from cluster.test_runs import left, run_in
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


def killed_run(cluster: Cluster, namespace: str, folder: Path) -> Run:
    """A run that was killed in mid-window, as its driver's machine may be."""
    study = study_of(namespace, strategies=["exclusive"], replicas=[1], null_cells=False, window_seconds=10)
    run = run_in(folder, cluster.kubeconfig, study)
    assert "default not set: config, the only one" in " ".join(run.passed("preflight").split())
    with under_way(run) as process:
        mid_window(cluster, namespace, run, 0)
        kill(process)
    assert "default" in shown(cluster)["configs"], "for nodes that look for their config meanwhile"
    return run


def check_parts(cluster: Cluster) -> None:
    """Check that plugin and GPU Feature Discovery run, and that the plugin would start with its config."""
    for name in ("nvidia-device-plugin", "gpu-feature-discovery"):
        kubectl(cluster.instance, IN_NAMESPACE, "rollout", "status", f"daemonset/{name}", "--timeout=90s")
        eventually(f"one pod of {name}", lambda name=name: len(cluster.plugin_pods(name)) == 1, 60)  # type: ignore[misc]
    assert yaml.safe_load(link(cluster)) == CONFIG


def test_the_node_comes_back_after_a_killed_run_and_the_next_one(fallen_back: Cluster, tmp_path: Path) -> None:
    before = shown(fallen_back)
    assert (before["configs"], before["allocatable"]) == (["config"], {"nvidia.com/gpu": 4})
    with fallen_back.namespace(RESTRICTED) as namespace:
        run = killed_run(fallen_back, namespace, tmp_path / "study")
        assert "restoring the node" in run.passed()
        is_as_before(fallen_back, namespace, before)
    check_parts(fallen_back)


# What a person does in the editor.
EDITOR = """
import sys, yaml
found = yaml.safe_load(open(sys.argv[1]))
for part in (found["data"], found["metadata"].get("annotations", {})):
    for name in [name for name in part if name.startswith("sharebench")]:
        del part[name]
yaml.safe_dump(found, open(sys.argv[1], "w"))
"""


@pytest.mark.slow
def test_the_documented_commands_undo_a_killed_run(fallen_back: Cluster, tmp_path: Path) -> None:
    before = shown(fallen_back)
    (tmp_path / "edit.py").write_text(EDITOR)
    with fallen_back.namespace(RESTRICTED) as namespace:
        killed_run(fallen_back, namespace, tmp_path / "study")
        first, second = documented("security.md", "Undo without this tool")
        names = "node=my-node namespace=gpu-operator map=sharebench-configs"
        own = f"node={fallen_back.node_name} namespace={PLUGIN_NAMESPACE} map=nvidia-device-plugin-configs"
        commands = (first + second).replace(names, own).replace("--namespace sharebench", f"--namespace {namespace}")
        out = typed(fallen_back, commands, KUBE_EDITOR=f"{sys.executable} {tmp_path}/edit.py")
        assert '"label":null' in out.replace(" ", ""), "what to restore"
        check_parts(fallen_back)
        eventually("the node as before", lambda: shown(fallen_back) == before, 120)
        assert left(fallen_back, namespace) == []


@pytest.mark.slow
def test_a_plugin_that_falls_back_to_no_config_and_one_without_discovery(fallen_back: Cluster, tmp_path: Path) -> None:
    """The last test, since the bed does not get these back."""
    for containers in ("--containers=*-init", "--containers=*-sidecar"):
        changed = (IN_NAMESPACE, "set", "env", "daemonset", "--all", containers, "FALLBACK_STRATEGIES=empty")
        kubectl(fallen_back.instance, *changed)
    eventually("one GPU", lambda: shown(fallen_back)["allocatable"] == {"nvidia.com/gpu": 1}, 120)
    eventually("its labels", lambda: fallen_back.labels().get("gpu.replicas") == "1", 120)
    before = shown(fallen_back)
    with fallen_back.namespace(RESTRICTED) as namespace:
        study = study_of(namespace, strategies=["time-slicing"], replicas=[2], baseline="none", null_cells=False)
        run = run_in(tmp_path / "study", fallen_back.kubeconfig, study)
        run.passed()
        is_as_before(fallen_back, namespace, before)
        kubectl(fallen_back.instance, IN_NAMESPACE, "delete", "daemonset", "gpu-feature-discovery")
        code, out = run.finish("preflight")
    said = " ".join(out.split())
    assert code == 1
    assert "GPU Feature Discovery is not installed, so that nothing would prove a state; set gfd.enabled: true" in said
