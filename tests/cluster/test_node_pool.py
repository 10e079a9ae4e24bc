"""A study on two nodes at once gives the results of one node, and cells of a failed node move to the other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import PATIENT_SECONDS, Run, study_of
from cluster.harness import PLUGIN_NAMESPACE, PYTHON_IMAGE, RESTRICTED, Cluster, eventually, own_bed
from cluster.test_runs import run_in
from cluster.testbed import gpu
from cluster.testbed.instance import NODE, SECOND_NODE
from cluster.testbed.second import second_node
from kubernetes import client
from tables import rows

from sharebench.read.compare import write_comparison

pytestmark = pytest.mark.slow
POOL = {"pool": "mock"}
# A server that sleeps, so its latency depends little on the load of the machine.
WAITS = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    def do_GET(self):
        time.sleep({seconds})
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""
# A ratio that other load of the machine would not cause.
FACTOR = 1.5


@pytest.fixture(scope="module")
def pool(machine: None) -> Iterator[Cluster]:
    """Two nodes with a GPU each."""
    with own_bed("pool") as found:
        gpu.install(found)
        with second_node(found):
            cluster = Cluster(found)
            for name in (NODE, SECOND_NODE):
                cluster.core.patch_node(name, {"metadata": {"labels": POOL}})
            eventually("GPUs on both", lambda: all("nvidia.com/gpu.product" in each for each in labels(cluster)))
            yield cluster


def labels(cluster: Cluster) -> list[dict[str, str]]:
    return [dict(cluster.core.read_node(name).metadata.labels) for name in (NODE, SECOND_NODE)]


def waiting(seconds: float) -> dict[str, Any]:
    command = ["python3", "-c", WAITS.replace("{seconds}", str(seconds))]
    return {"kind": "http", "image": PYTHON_IMAGE, "command": command, "port": 8000}


def study(namespace: str, node: str | list[str]) -> dict[str, Any]:
    return study_of(
        namespace,
        strategies=["exclusive", "time-slicing"],
        replicas=[2],
        repeats=2,
        null_cells=False,
        workloads=["short", "long"],
        workload_catalogue={"short": waiting(0.02), "long": waiting(0.03)},
        window_seconds=3,
        kubernetes={"node": node},
    )


def records_of(run: Run) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in run.folder.glob("results/cells/*/*/*/*/raw.json")]
    assert [each["status"] for each in found] == ["ok"] * 8
    assert all(item["holds"] for each in found for item in each["evidence"])
    return found


def first(record: dict[str, Any]) -> float:
    return float(record["window"]["start_epoch_seconds"])


def last(record: dict[str, Any]) -> float:
    return float(record["window"]["end_epoch_seconds"])


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return max(first(one), first(other)) < min(last(one), last(other))


def traces(cluster: Cluster) -> dict[str, Any]:
    """The parts of a node that a study changes and restores."""
    leases = client.CoordinationV1Api(cluster.api).list_namespaced_lease(PLUGIN_NAMESPACE).items
    nodes = [cluster.core.read_node(name) for name in (NODE, SECOND_NODE)]
    # The label's timestamp does not matter.
    kept = [{key: value for key, value in each.items() if "timestamp" not in key} for each in labels(cluster)]
    return {
        "labels": kept,
        "taints": [taint.key for node in nodes for taint in node.spec.taints or []],
        "notes": [key for node in nodes for key in node.metadata.annotations if key.startswith("sharebench")],
        "leases": [each.metadata.name for each in leases if each.metadata.name.startswith("sharebench")],
    }


def test_two_nodes_give_the_results_of_one(pool: Cluster, tmp_path: Path) -> None:
    """Six minutes on two cores, ten on busy ones."""
    before = traces(pool)
    seconds: dict[str, float] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    with pool.namespace(RESTRICTED) as namespace:
        for name, node in (("one", NODE), ("two", "pool=mock")):
            run = run_in(tmp_path / name, pool.kubeconfig, study(namespace, node))
            run.seconds = PATIENT_SECONDS
            if name == "two":
                code, out = run.finish("plan")
                assert code == 0 and "devices at the same time 0: 4 cells, 1: 4 cells" in " ".join(out.split()), out
            began = time.monotonic()
            run.passed()
            seconds[name], found[name] = time.monotonic() - began, records_of(run)
        assert pool.core.list_namespaced_pod(namespace).items == []
        code, out = run.finish("preflight")
        assert code == 0 and out.count("pods on the node") == 2, out
    assert traces(pool) == before
    print(f"{seconds['two']:.0f} s on two nodes, {seconds['one']:.0f} s on one: {seconds['two'] / seconds['one']:.0%}")
    spans = {name: max(map(last, found[name])) - min(map(first, found[name])) for name in found}
    print(f"windows over {spans['two']:.0f} s and {spans['one']:.0f} s: {spans['two'] / spans['one']:.0%}")
    places: dict[str, set[str]] = {}
    for record in found["two"]:
        places.setdefault(record["node"]["details"]["node"], set()).add(record["cell"]["workload"])
    # The states of a strategy are set once, so that a workload is one block.
    assert sorted(map(len, places.values())) == [1, 1] and places.keys() == {"node-0", "node-1"}
    assert len({record["node"]["device"] for record in found["two"]}) == 2
    one, other = ([each for each in found["two"] if each["node"]["details"]["node"] == name] for name in places)
    assert any(overlap(*pair) for pair in product(one, other))
    assert not any(overlap(a, b) for own in (one, other) for a in own for b in own if a is not b)
    print(write_comparison(tmp_path / "one/results", tmp_path / "two/results", tmp_path / "compared"))
    means = [row["ratio"] for row in rows(tmp_path / "compared/compare.csv") if row["metric"] == "latency_mean_seconds"]
    # On a busy machine gates may exclude a cell.
    ratios = [float(ratio) for ratio in means if ratio]
    assert len(means) == 4 and ratios and all(1 / FACTOR < ratio < FACTOR for ratio in ratios)


def test_cells_of_a_failed_node_move_to_the_other(pool: Cluster, tmp_path: Path) -> None:
    with pool.namespace(RESTRICTED) as namespace:
        given = study(namespace, [NODE, SECOND_NODE])
        run = run_in(tmp_path / "study", pool.kubeconfig, given)
        run.seconds = PATIENT_SECONDS
        pool.core.patch_node(SECOND_NODE, {"spec": {"unschedulable": True}})
        try:
            code, out = run.finish()
        finally:
            pool.core.patch_node(SECOND_NODE, {"spec": {"unschedulable": None}})
        assert code == 1
        assert "device 1 is down, the next run leaves it out" in " ".join(out.split())
        run.passed()
        assert {record["node"]["details"]["node"] for record in records_of(run)} == {"node-0"}
