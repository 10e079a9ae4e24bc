"""Nodes with two and with eight GPUs under the device plugin: all cells use one GPU, which is in the evidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import grants, normalised, owned, state, study_of, tenants_of
from cluster.harness import GPU, RESTRICTED, Cluster, own_bed
from cluster.mig import ONE_G, await_allocatable, offered
from cluster.test_runs import run_in
from cluster.testbed import gpu

from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL

SHARED_BY = "GPU that all cells have"


def bed(gpus: int) -> Iterator[Cluster]:
    with own_bed(f"gpus{gpus}") as found:
        gpu.install(found, gpus=gpus)
        yield Cluster(found)


@pytest.fixture(scope="module")
def two(machine: None) -> Iterator[Cluster]:
    yield from bed(2)


def placeholders(cluster: Cluster, namespace: str) -> Counter[str]:
    """Number of placeholder pods on each GPU."""
    found = cluster.core.list_namespaced_pod(namespace, label_selector=HELD_LABEL).items
    return Counter(cluster.core.read_namespaced_pod_log(each.metadata.name, namespace).split()[0] for each in found)


def given(cluster: Cluster, namespace: str, name: str) -> str:
    return cluster.execute(namespace, name, "printenv", "NVIDIA_VISIBLE_DEVICES").strip()


def test_every_cell_of_a_run_has_the_same_gpu(two: Cluster, tmp_path: Path) -> None:
    with two.namespace(RESTRICTED) as namespace:
        study = study_of(namespace, replicas=[2], null_cells=False)
        run = run_in(tmp_path / "study", two.kubeconfig, study)
        run.passed()
        files = (run.folder / "results").glob("cells/*/*/*/*/raw.json")
        records: dict[str, Any] = {path.parts[-5]: json.loads(path.read_text()) for path in files}
        assert {name: record["status"] for name, record in records.items()} == dict.fromkeys(study["strategies"], "ok")
        seen = [
            device
            for record in records.values()
            for each in record["evidence"]
            if each["name"] == SHARED_BY
            for device in each["observed"]
        ]
        assert len(seen) == 5 and len(set(seen)) == 1
        assert two.core.list_namespaced_pod(namespace).items == []
        assert offered(two) == {GPU: 2}


def test_half_of_the_gpus_are_partitioned(two: Cluster, tmp_path: Path) -> None:
    gpu.install_mig(two.instance)
    strategies = ["exclusive", "mig", "mig-time-slicing"]
    with two.namespace(RESTRICTED) as namespace:
        changes = {"strategies": strategies, "replicas": [2], "kubernetes": {"may_change": ["mig"]}}
        study = normalised(study_of(namespace, **changes))
        with owned(two, study, tmp_path) as node:
            node.ensure(state(study, "mig"))
            assert offered(two) == {GPU: 1, ONE_G: 7}
            tenants = tenants_of(node, study, 2)
            tenants.spec = study.spec(next(cell for cell in study.cells if cell.strategy == "mig"))
            tenants.sweep()
            tenants.start(grants(2))
            tenants.wait_ready()
            assert all(given(two, namespace, name).startswith("MIG-") for name in (unit.name for unit in tenants.units))
            tenants.stop()
            node.ensure(state(study, "exclusive"))
            assert offered(two) == {GPU: 2}
            assert sorted(placeholders(two, namespace).values()) == [1]
        await_allocatable(two, {GPU: 2})
