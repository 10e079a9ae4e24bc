"""The user's unmodified container in pods: an independent server, and containers that fail."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.driving import Run, grants, normalised, owned, study_of, tenants_of
from cluster.harness import PYTHON_IMAGE, Cluster, eventually
from cluster.test_pods_that_fail import NAMED_SECONDS, left
from cluster.test_static import AS_FOUND, STATIC
from cluster.testbed import images
from cluster.testbed.lifecycle import import_images

from sharebench.measure.nodes.contract import NodeError, TenantsFailed
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.study.study import Study

SERVER: dict[str, Any] = {"kind": "http", "image": images.HTTPBIN, "request": {"path": "/bytes/1024"}}
BY_MANIFEST = {
    "kind": "Deployment",
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "httpbin",
                        "image": images.HTTPBIN,
                        "args": ["-port", "{port}"],
                        "ports": [{"containerPort": 8000}],
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    }
                ]
            }
        }
    },
}
ENDS = "import sys; print('no weights at /weights', file=sys.stderr); sys.exit(3)"
WORKS = "import time; end = time.monotonic() + {}\nwhile time.monotonic() < end: pass"

NAPS = """
import sys, time
from prometheus_client import Histogram, start_http_server
naps = Histogram("nap_seconds", "Naps", buckets=(0.001, 0.01, 0.1, 1))
start_http_server(int(sys.argv[1]))
print("up", flush=True)
while True:
    with naps.time():
        time.sleep(0.005)
"""


def python(code: str) -> dict[str, Any]:
    return {"image": PYTHON_IMAGE, "command": ["python3", "-c", code]}


@pytest.fixture
def server(plugin: Cluster) -> Cluster:
    """The test bed with the image of an independent server."""
    import_images(plugin.instance, images.further_archive(images.HTTPBIN))
    return plugin


def test_a_server_under_every_setting_of_the_plugin(server: Cluster, namespace: str, tmp_path: Path) -> None:
    given = study_of(
        namespace,
        strategies=["time-slicing", "mps"],
        replicas=[3],
        baseline="none",
        workloads=["mixed"],
        workload_catalogue={
            "web": {**SERVER, "ready": {"path": "/status/200"}},
            "own": {"kind": "http", "manifest": "mine.yaml", "load": {"arrival": "poisson", "rate_hz": 20}},
            "loop": {"module": "matmul", "params": {"size": 64}},
            "mixed": {"tenants": ["web", "own", "loop"]},
        },
        kubernetes={"pod": {"metadata": {"labels": {"team": "a"}}}},
    )
    run = Run(tmp_path, server.kubeconfig, given)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(BY_MANIFEST))
    run.passed()
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/cells/*/*/*/*/raw.json")]
    assert {record["cell"]["strategy"]: record["status"] for record in records} == {"time-slicing": "ok", "mps": "ok"}
    for record in records:
        assert all(item["holds"] for item in record["evidence"]), record["evidence"]
        for tenant in record["tenants"]:
            assert (tenant["errors"], tenant["count"] > 0) == (0, True)
            if tenant["workload"] != "loop":
                assert tenant["measured_by"] == "client"
                # CPU time is counted in hundredths of a second.
                assert tenant["cpu"]["affinity"], "what the server uses is seen from the client"
                assert tenant["memory_bytes"] > 1 << 20
    assert left(server, namespace) == []


def test_a_server_under_a_static_template(server: Cluster, namespace: str, tmp_path: Path) -> None:
    """With a static template, as if another scheduler shared the GPU."""
    server.switch("ts3", 3)
    eventually("the labels of three", lambda: server.labels().get("gpu.replicas") == "3")
    given = study_of(
        namespace,
        strategies=["as-found"],
        replicas=[2],
        baseline="none",
        null_cells=False,
        strategy_catalogue={"exclusive": STATIC, "exclusive-again": STATIC, "as-found": AS_FOUND},
        workloads=["web"],
        workload_catalogue={"web": SERVER},
    )
    Run(tmp_path, server.kubeconfig, given).passed()
    (record,) = (json.loads(path.read_text()) for path in tmp_path.glob("results/cells/*/*/*/*/raw.json"))
    assert record["status"] == "ok", record["reason"]
    assert [tenant["view"]["variables"] for tenant in record["tenants"]] == [{"MY_SHARE": "50"}] * 2
    assert all(item["holds"] for item in record["evidence"])


def test_a_batch_command_until_it_exits(server: Cluster, namespace: str, tmp_path: Path) -> None:
    given = study_of(
        namespace,
        strategies=["time-slicing"],
        replicas=[2],
        baseline="none",
        workloads=["batch", "fails"],
        workload_catalogue={
            "batch": {"kind": "command", "until": "exit", **python(WORKS.format(2))},
            "fails": {"kind": "command", "until": "exit", **python(ENDS)},
        },
    )
    run = Run(tmp_path, server.kubeconfig, given)
    code, out = run.finish()
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/cells/*/*/*/*/raw.json")]
    found = {record["cell"]["workload"]: record for record in records}
    assert code == 0, out
    assert (found["batch"]["status"], found["fails"]["status"]) == ("ok", "crashed"), found["fails"]["reason"]
    assert "exit code 3: no weights at /weights" in found["fails"]["reason"]
    assert all(item["holds"] for item in found["batch"]["evidence"])
    for tenant in found["batch"]["tenants"]:
        assert tenant["measured_by"] == "exit"
        assert 1.9 <= tenant["job"]["completion_seconds"] < found["batch"]["timing"]["total_seconds"]
        assert tenant["job"]["start_delay_seconds"] > 0, "the kubelet starts it"
        assert tenant["cpu"]["cpu_seconds"] > 0
    assert left(server, namespace) == []


def naps(**metrics: Any) -> dict[str, Any]:
    """A program that counts its own latencies."""
    made = python(NAPS)
    return {"kind": "command", **made, "command": [*made["command"], "{port}"], "metrics": metrics}


def test_a_program_that_counts_its_own_latencies(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    given = study_of(
        namespace,
        strategies=["time-slicing"],
        replicas=[2],
        baseline="none",
        workloads=["naps", "late"],
        workload_catalogue={
            "naps": {**naps(histogram="nap_seconds"), "ready": {"log": "up"}},
            "late": naps(histogram="nap"),
        },
        # The histogram that is missing is named only then, and both are to be there by then.
        timeouts={"start_seconds": 45},
    )
    code, out = Run(tmp_path, plugin.kubeconfig, given).finish("--keep-going")
    assert code != 0
    assert "tenant 0: there is no histogram 'nap'; this page has: nap_seconds" in out
    (record,) = (json.loads(path.read_text()) for path in tmp_path.glob("results/cells/*/*/*/*/raw.json"))
    assert (record["cell"]["workload"], record["status"]) == ("naps", "ok"), record["reason"]
    assert all(item["holds"] for item in record["evidence"]), record["evidence"]
    for tenant in record["tenants"]:
        assert tenant["measured_by"] == "scrape"
        assert tenant["count"] == sum(tenant["foreign_histogram"]["count"]) > 0
        assert tenant["sum_seconds"] >= 0.005 * tenant["count"]
        assert 0.9 <= tenant["scrape"]["seconds"] < record["timing"]["total_seconds"]
        assert tenant["cpu"]["affinity"]
        assert tenant["memory_bytes"] > 1 << 20
    assert left(plugin, namespace) == []


def test_preflight_names_what_the_namespaces_pod_security_forbids(
    plugin: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The API server's own verdict, before the node is touched; nothing is made."""
    before = plugin.node().metadata.annotations
    workloads = {"web": {"kind": "http", "manifest": "mine.yaml"}}
    given = study_of(namespace, workloads=["web"], workload_catalogue=workloads)
    run, template = Run(tmp_path, plugin.kubeconfig, given), BY_MANIFEST["spec"]["template"]["spec"]
    for changes, code in (({}, 0), ({"hostPID": True}, 1)):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"kind": "Pod", "spec": template | changes}))
        returned, out = run.finish("preflight")
        assert returned == code, out
        said = " ".join(out.split())
        assert f"Pod Security restricted of namespace {namespace} adds allowPrivilegeEscalation false" in said
        assert ("host namespaces (hostPID=true)" in said and "pod-security.kubernetes.io/enforce" in said) == bool(code)
    assert plugin.node().metadata.annotations == before
    assert left(plugin, namespace) == []


@pytest.fixture
def study(namespace: str) -> Study:
    given = {"workloads": ["web"], "workload_catalogue": {"web": SERVER}}
    limited = {"name": "tenant", "resources": {"limits": {"memory": "128Mi"}}}
    return normalised(study_of(namespace, **given, kubernetes={"pod": {"spec": {"containers": [limited]}}}))


@pytest.fixture
def node(server: Cluster, study: Study, tmp_path: Path) -> Iterator[ClusterNode]:
    with owned(server, study, tmp_path) as made:
        yield made


KILL = """
import os, re
for pid in filter(str.isdecimal, os.listdir("/proc")):
    if re.search(rb"http[._]server", open(f"/proc/{pid}/cmdline", "rb").read()) and int(pid) != os.getpid():
        os.kill(int(pid), 9)
"""
COUNTS = {
    **naps(),
    "metrics": {"path": "/metrics", "histogram": "nap_seconds", "summary": None, "labels": {}, "unit": "seconds"},
    "ready": {"path": None, "count": None, "log": None},
}
# Failures that are reported at once.
BAD = {
    "crash": (python(ENDS), "crashed", ["exit code 3", "no weights at /weights"]),
    "too much memory": (python("bytearray(1 << 30)"), "oom", ["OOMKilled"]),
    "no such program": ({"command": ["/no/such"]}, "refused", ["StartError", "/no/such"]),
    "no such image": ({"image": "testbed.local/no-such:1"}, "refused", ["no-such:1"]),
}
# Failures that only a time-out shows.
LATE = {
    "wrong port": ({"port": 9999}, ["connection refused"]),
    "no metrics there": (
        COUNTS | {"port": 9999, "command": python(NAPS.replace("sys.argv[1]", "9100"))["command"]},
        ["GET /metrics: connection refused"],
    ),
    "never ready": ({"ready": {"path": "/status/503", "count": None, "log": None}}, ["status 503"]),
}


@pytest.mark.parametrize("what", BAD)
def test_a_failing_user_container_is_named_at_once(node: ClusterNode, study: Study, what: str) -> None:
    changes, status, words = BAD[what]
    tenants = tenants_of(node, study, 1, **changes)
    began = time.monotonic()
    try:
        with pytest.raises((NodeError, TenantsFailed)) as caught:
            tenants.start(grants(1))
            tenants.wait_ready()
        assert time.monotonic() - began < NAMED_SECONDS
        (outcome,) = tenants.outcomes()
    finally:
        tenants.stop()
    said = str(caught.value) if status == "refused" else f"{outcome['status']} {outcome['exit']}"
    assert all(word in said for word in [*words, status] if word != "refused"), said


@pytest.mark.parametrize("what", LATE)
def test_a_server_that_never_becomes_ready_gives_the_reason(node: ClusterNode, study: Study, what: str) -> None:
    changes, words = LATE[what]
    # On a busy machine the container may not run yet.
    for seconds in (10, 40, 160):
        tenants = tenants_of(node, study, 1, **changes)
        tenants.start_seconds = seconds
        try:
            with pytest.raises(TenantsFailed):
                tenants.start(grants(1))
                tenants.wait_ready()
            (outcome,) = tenants.outcomes()
        finally:
            tenants.stop()
        assert outcome["status"] == "hung"
        if is_named := all(word in str(outcome["exit"]) for word in words):
            break
    assert is_named, outcome


@pytest.mark.parametrize("kind", ["http", "command"])
def test_a_program_dies_in_the_window(
    node: ClusterNode, study: Study, server: Cluster, namespace: str, kind: str
) -> None:
    changes = {"image": PYTHON_IMAGE, "command": ["python3", "-m", "http.server", "{port}"]}
    changes |= {"request": {**SERVER_REQUEST, "path": "/etc/hostname"}} if kind == "http" else COUNTS
    tenants = tenants_of(node, study, 1, **changes)
    try:
        tenants.start(grants(1))
        tenants.wait_ready()
        server.execute(namespace, tenants.units[0].name, "python3", "-c", KILL, container="tenant")
        with pytest.raises(TenantsFailed, match="ended early"):
            tenants.sleep_until(tenants.now_ns() + int(NAMED_SECONDS * 1e9))
        (outcome,) = tenants.outcomes()
    finally:
        tenants.stop()
    assert outcome["status"] == "killed"
    assert outcome["exit"] and outcome["exit"]["reason"].startswith("ended by SIGKILL")


SERVER_REQUEST = {"method": "GET", "headers": {}, "body": None, "body_file": None, "expect_status": 200}
