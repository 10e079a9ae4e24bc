"""Pods by a template: on a node that is shared already, and with a minimal scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.driving import Run, study_of
from cluster.harness import RESTRICTED, Cluster, eventually, pod
from cluster.test_switching import shown, watched
from kubernetes import client
from tables import rows

STATIC = {"access": "static"}
AS_FOUND = {
    "mechanism": "time-slicing",
    "access": "static",
    "thread_percent": "100/N",
    "pod": {
        "resources": {"nvidia.com/gpu": 1},
        "annotations": {"example.com/share": "$fraction"},
        "environment": {"MY_SHARE": "$thread_percent"},
        "shows": {"MY_SHARE": "$thread_percent"},
    },
}


def test_a_static_study_changes_only_the_taint(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    """The path of other schedulers from end to end; the real ones are infeasible here, as the tables say."""
    plugin.switch("ts3", 3)
    # Labels and the number of GPUs arrive in either order.
    eventually("the labels of three", lambda: plugin.labels().get("gpu.replicas") == "3")
    before = shown(plugin)
    given = study_of(
        namespace,
        strategies=["exclusive", "as-found", "hami", "kai-fraction"],
        replicas=[3, 7],
        null_cells=False,
        strategy_catalogue={"exclusive": STATIC, "exclusive-again": STATIC, "as-found": AS_FOUND},
    )
    run = Run(tmp_path, plugin.kubeconfig, given)
    out = run.passed("preflight")
    out = " ".join(out.split())
    assert "no Deployment hami-scheduler with a ready pod is in the cluster" in out
    assert "the node offers 3 of nvidia.com/gpu, and 7 tenants ask for 7" in out
    with watched(plugin) as seen:
        run.passed()
    assert seen == {("", False), ("NoSchedule", False)}, "nothing is restarted, so it need not be cordoned"
    cells = {(row["strategy"], row["replicas"]): row for row in rows(tmp_path / "results/tables/summary.csv")}
    found = {key: row["status"] for key, row in cells.items()}
    assert found == {
        ("exclusive", "1"): "ok",
        ("as-found", "3"): "ok",
        **{(name, n): "infeasible" for name in ("hami", "kai-fraction") for n in ("3", "7")},
        ("as-found", "7"): "infeasible",
    }
    assert "no Deployment kai-scheduler-default" in cells["kai-fraction", "3"]["reason"]
    record = json.loads(next(tmp_path.glob("results/cells/as-found/*/n3/r1/raw.json")).read_text())
    assert record["limits"]["thread_percent"] == 33
    assert [tenant["view"]["variables"] for tenant in record["tenants"]] == [{"MY_SHARE": "33"}] * 3
    assert all(item["holds"] for item in record["evidence"])
    assert {item["name"] for item in record["evidence"]} >= {"devices that the tenants were given", "variable MY_SHARE"}
    assert shown(plugin) == before


GIVEN = "tickets.example.com/given"
# Binds every pod that names it to the node, and annotates the pod.
SCHEDULER = """
import json, os, ssl, time, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=account + "ca.crt")
server = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
def call(method, path, body=None, kind="application/json"):
    headers = {"Authorization": "Bearer " + open(account + "token").read(), "Content-Type": kind}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, headers, method=method)
    return json.load(urllib.request.urlopen(request, context=context))
waiting = "/api/v1/pods?fieldSelector=spec.schedulerName%3D" + os.environ["NAME"] + "%2Cspec.nodeName%3D"
while True:
    for pod in call("GET", waiting)["items"]:
        name = pod["metadata"]["name"]
        path = "/api/v1/namespaces/" + pod["metadata"]["namespace"] + "/pods/" + name
        note = {"metadata": {"annotations": {os.environ["GIVEN"]: "yes"}}}
        call("PATCH", path, note, "application/merge-patch+json")
        node = {"apiVersion": "v1", "kind": "Node", "name": os.environ["NODE"]}
        call("POST", path + "/binding", {"metadata": {"name": name}, "target": node})
    time.sleep(0.2)
"""
BY_TICKETS: dict[str, Any] = {
    "mechanism": "time-slicing",
    "access": "static",
    "pod": {
        "scheduler": "tickets",
        "deployment": "tickets-scheduler",
        "allocated": GIVEN,
        "resources": {"nvidia.com/gpu": 1},
    },
}


@contextmanager
def scheduling(cluster: Cluster, template: Mapping[str, Any]) -> Iterator[None]:
    """A ready Deployment of a minimal scheduler, with the names of a strategy's `pod`."""
    rbac = client.RbacAuthorizationV1Api(cluster.api)
    deployment = template["deployment"]
    with cluster.namespace(RESTRICTED) as name:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        account = {"kind": "ServiceAccount", "name": "default", "namespace": name}
        rbac.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": role, "subjects": [account]})
        variables = {"NODE": cluster.node_name, "NAME": template["scheduler"], "GIVEN": template["allocated"]}
        made = pod("unused", SCHEDULER, env=[{"name": key, "value": value} for key, value in variables.items()])
        spec = {key: value for key, value in made["spec"].items() if key != "automountServiceAccountToken"}
        spec["restartPolicy"] = "Always"
        labels = {"app": deployment}
        body = {
            "metadata": {"name": deployment},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
        }
        cluster.apps.create_namespaced_deployment(name, body)
        try:
            ready = lambda: cluster.apps.read_namespaced_deployment(deployment, name).status.ready_replicas  # noqa: E731
            eventually("the scheduler", ready)
            yield
        finally:
            cluster.apps.delete_namespaced_deployment(deployment, name)
            rbac.delete_cluster_role_binding(name)
            eventually("the end of the scheduler", lambda: not cluster.core.list_namespaced_pod(name).items)


def test_another_scheduler_places_the_tenants(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    plugin.switch("ts3", 3)
    given = study_of(
        namespace,
        strategies=["by-tickets"],
        replicas=[2],
        null_cells=False,
        baseline="none",
        strategy_catalogue={"exclusive": STATIC, "exclusive-again": STATIC, "by-tickets": BY_TICKETS},
    )
    with scheduling(plugin, BY_TICKETS["pod"]):
        Run(tmp_path, plugin.kubeconfig, given).passed()
    record = json.loads(next(tmp_path.glob("results/cells/by-tickets/*/n2/r1/raw.json")).read_text())
    held = {item["name"]: item["holds"] for item in record["evidence"]}
    assert held["pods of the scheduler tickets"]
    assert held[f"pods with the annotation {GIVEN}"]
    assert all(held.values())
