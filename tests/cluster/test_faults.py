"""Failures during a run: measured cells are kept, no object stays, and the node is restored."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster.driving import RUN_SECONDS, Run, study_of
from cluster.harness import Cluster, eventually
from cluster.test_runs import left, run_in, running
from cluster.test_switching import shown, watched
from cluster.testbed import lifecycle
from cluster.testbed.lifecycle import kubectl
from tables import rows

from sharebench.measure.nodes.kubernetes.cluster import reservation

pytestmark = pytest.mark.slow

# The time of a cell before its window. No test fails if it takes longer.
UNTIL_WINDOW_SECONDS = 6.0


def study(namespace: str, window_seconds: float) -> dict[str, Any]:
    """The config of two cells in one state, without a baseline."""
    chosen: dict[str, Any] = {"strategies": ["time-slicing"], "replicas": [1, 2], "baseline": "none"}
    return study_of(namespace, window_seconds=window_seconds, **chosen)


@contextmanager
def under_way(run: Run) -> Iterator[subprocess.Popen[str]]:
    """A run that is ended afterwards in any case."""
    process = run.start()
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the run with all its jobs; a job in another session is killed by its group."""
    started = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
    for pid in started:
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def records(run: Run) -> dict[Path, bytes]:
    """The run's records so far."""
    return {path: path.read_bytes() for path in run.folder.glob("results/cells/*/*/*/*/raw.json")}


def cell_is_running(cluster: Cluster, namespace: str, run: Run, done: int) -> Callable[[], bool]:
    """A probe for all running tenants of the cell after this number of records."""

    def probe() -> bool:
        log = run.folder / "results/.sharebench/run.json"
        known = json.loads(log.read_text()) if log.exists() else {"done": 0}
        if known["done"] != done + 1 or len(records(run)) != done:
            return False
        pods = cluster.core.list_namespaced_pod(namespace, label_selector="sharebench/cell").items
        return bool(pods) and all(pod.status.phase == "Running" for pod in pods)

    return probe


def mid_window(cluster: Cluster, namespace: str, run: Run, done: int) -> None:
    eventually(f"the tenants of cell {done + 1}", cell_is_running(cluster, namespace, run, done), RUN_SECONDS)
    time.sleep(UNTIL_WINDOW_SECONDS)


def is_as_before(cluster: Cluster, namespace: str, before: dict[str, Any]) -> None:
    """Check that none of our objects is left, and that label, values, taints and ConfigMap are restored."""
    assert left(cluster, namespace) == []
    assert shown(cluster) == before


def test_the_api_server_and_a_kubelet_may_be_away_during_windows(
    plugin: Cluster, namespace: str, tmp_path: Path
) -> None:
    before = shown(plugin)
    run = run_in(tmp_path / "study", plugin.kubeconfig, study(namespace, window_seconds=40))
    with under_way(run) as process:
        mid_window(plugin, namespace, run, 0)
        lifecycle.hold(plugin.instance, "kube-apiserver")
        time.sleep(30)
        plugin.release_api_server()
        mid_window(plugin, namespace, run, 1)
        first = records(run)
        lifecycle.hold(plugin.instance, "kubelet")
        time.sleep(5)
        lifecycle.release(plugin.instance, "kubelet")
        out, _ = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode == 0, out
    assert first.items() <= records(run).items()
    assert [row["status"] for row in rows(run.folder / "results/tables/summary.csv")] == ["ok", "ok"]
    for record in map(json.loads, records(run).values()):
        window = record["window"]
        assert window["end_monotonic_seconds"] - window["start_monotonic_seconds"] == pytest.approx(40)
        assert all(tenant["coverage_ratio"] > 0.5 for tenant in record["tenants"])
    is_as_before(plugin, namespace, before)


def test_a_deleted_pod_and_a_changed_label_fail_their_jobs(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    before = shown(plugin)
    run = run_in(tmp_path / "study", plugin.kubeconfig, study(namespace, window_seconds=15))
    with under_way(run) as process:
        mid_window(plugin, namespace, run, 0)
        name, *_ = running(plugin, namespace)
        plugin.core.delete_namespaced_pod(name, namespace)
        first = name.rpartition("-")[0]

        def another_cell() -> bool:
            found = running(plugin, namespace)
            return bool(found) and not any(each.startswith(first) for each in found)

        eventually("the tenants of the other cell", another_cell, RUN_SECONDS)
        plugin.set_label("ts3")
        out, _ = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode != 0
    assert "someone deleted the pod" in out or "someone deleted it" in out
    assert ", observed ts3" in out or "someone set the node's label" in out
    assert records(run) == {}
    after = shown(plugin)
    # A label that someone else has set stays.
    assert plugin.labels()["device-plugin.config"] == "ts3"
    assert left(plugin, namespace) == []
    ours = ("taints", "notes", "configs", "config notes", "plugin notes")
    assert {key: after[key] for key in ours} == {key: before[key] for key in ours}
    eventually("three replicas", lambda: plugin.allocatable() == 3)
    before = shown(plugin)
    run.passed()
    assert [row["status"] for row in rows(run.folder / "results/tables/summary.csv")] == ["ok", "ok"]
    is_as_before(plugin, namespace, before)


def test_a_killed_driver_and_a_second_one_next_to_it(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    before = shown(plugin)
    given = study(namespace, window_seconds=15)
    run = run_in(tmp_path / "first", plugin.kubeconfig, given)
    with under_way(run) as process:
        mid_window(plugin, namespace, run, 0)
        code, out = run_in(tmp_path / "second", plugin.kubeconfig, given).finish()
        owner = json.loads((run.folder / "results/.sharebench/run.json").read_text())["run_id"]
        assert code == 1
        assert f"not started: the node is in use by run {owner}" in out
        eventually("the other cell's tenants", cell_is_running(plugin, namespace, run, 1), RUN_SECONDS)
        kill(process)
    done = records(run)
    assert len(done) == 1
    assert left(plugin, namespace)
    assert shown(plugin) != before
    out = run.passed()
    assert "restoring the node" in out
    assert "1 of 2 cells to measure" in out
    assert done.items() <= records(run).items()
    assert [row["status"] for row in rows(run.folder / "results/tables/summary.csv")] == ["ok", "ok"]
    is_as_before(plugin, namespace, before)


def test_ctrl_c_restores_the_node(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    """The cell removes its tenants, and the node is restored (SIGTERM: `test_driver_job.py`)."""
    before = shown(plugin)
    run = run_in(tmp_path / "study", plugin.kubeconfig, study(namespace, window_seconds=120))
    with under_way(run) as process:
        mid_window(plugin, namespace, run, 0)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode != 0, out
    assert records(run) == {}
    is_as_before(plugin, namespace, before)


def test_a_drain_ends_the_tenants_and_a_plain_rerun_goes_on(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    """It also ends the master of Node Feature Discovery, without which no label changes."""
    before = shown(plugin)
    run = run_in(tmp_path / "study", plugin.kubeconfig, study(namespace, window_seconds=30))
    how = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--grace-period=1", "--timeout=120s")
    with under_way(run) as process:
        mid_window(plugin, namespace, run, 0)
        kubectl(plugin.instance, "drain", plugin.node_name, *how)
        out, _ = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode != 0
    assert "cordoned" in out or "someone" in out, out
    assert records(run) == {}
    assert shown(plugin)["cordoned"], "by its owner, so it stays"
    code, out = run.finish("preflight")
    assert code == 1 and "cordon" in out, out
    kubectl(plugin.instance, "uncordon", plugin.node_name)
    out = run.passed()
    assert [row["status"] for row in rows(run.folder / "results/tables/summary.csv")] == ["ok", "ok"]
    is_as_before(plugin, namespace, before)


def wait_for_a_switch(cluster: Cluster) -> None:
    """Wait until a run has cordoned the node and changed its label."""

    def is_switched() -> bool:
        return shown(cluster)["cordoned"] and cluster.labels()["device-plugin.config"].startswith("sharebench")

    eventually("a cordon", is_switched, RUN_SECONDS)


def one_cell(namespace: str) -> dict[str, Any]:
    return study_of(namespace, strategies=["mps"], replicas=[3], baseline="none", null_cells=False)


def test_a_node_cordoned_by_a_run_that_was_killed_in_a_switch_comes_back(
    plugin: Cluster, namespace: str, tmp_path: Path
) -> None:
    before = shown(plugin)
    run = run_in(tmp_path / "study", plugin.kubeconfig, one_cell(namespace))
    with under_way(run) as process:
        wait_for_a_switch(plugin)
        plugin.start(namespace, "waiting", resources={"limits": {"nvidia.com/gpu": "1"}})
        said = eventually("a pod that waits", lambda: plugin.unschedulable(namespace, "waiting"))
        kill(process)
    assert "unschedulable" in said
    plugin.core.delete_namespaced_pod("waiting", namespace)
    assert shown(plugin)["cordoned"]
    with watched(plugin) as seen:
        out = run.passed()
    assert "restoring the node, which a run that did not end well has left changed" in out
    assert "all cells are measured, and the node is back as it was" in out, "it is not kept for figures and report"
    assert seen == {("", False), ("PreferNoSchedule", True), ("NoSchedule", False)}
    is_as_before(plugin, namespace, before)


def test_a_cordon_that_the_owner_sets_during_a_switch_stays(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    before = shown(plugin)
    run = run_in(tmp_path / "study", plugin.kubeconfig, one_cell(namespace))
    with under_way(run) as process:
        wait_for_a_switch(plugin)
        kubectl(plugin.instance, "uncordon", plugin.node_name)
        kubectl(plugin.instance, "cordon", plugin.node_name)
        out, _ = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode != 0
    assert "cordoned" in out or "unschedulable" in out
    assert left(plugin, namespace) == []
    assert shown(plugin) == before | {"cordoned": True, "taints": [reservation.CORDON_TAINT]}
    kubectl(plugin.instance, "uncordon", plugin.node_name)
    eventually("the end of its taint", lambda: shown(plugin) == before)
    run.passed()
    is_as_before(plugin, namespace, before)
