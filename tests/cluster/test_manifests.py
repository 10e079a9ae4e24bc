"""The manifests of every strategy, as the API server takes them: dry runs with strict fields and Pod Security."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster.harness import Cluster
from unit.kubernetes.manifests import made
from unit.kubernetes.objects import instance, offered, strategy

from sharebench.nodes.kubernetes.access.dra import claims

BIG = offered(*(instance("3g.20gb", number, memory="20Gi") for number in (1, 2)))


def dry_run(cluster: Cluster, namespace: str, body: dict[str, Any]) -> tuple[int, str]:
    """The server's answer to an object that would be made, or for a Node to its change."""
    method, path = "POST", f"/apis/{body['apiVersion']}/namespaces/{namespace}/{body['kind'].lower()}s"
    if body["apiVersion"] == "v1":
        path = f"/api/v1/namespaces/{namespace}/{body['kind'].lower()}s"
    content = "application/json"
    if body["kind"] == "Node":
        method, path, content = "PATCH", f"/api/v1/nodes/{cluster.node_name}", "application/merge-patch+json"
        body = {"metadata": {"labels": body["metadata"]["labels"]}}
    else:
        # Of the plugin's ConfigMap it is another; here only the server's verdict counts.
        body = {**body, "metadata": {key: value for key, value in body["metadata"].items() if key != "namespace"}}
    request = cluster.api.param_serialize(
        method,
        path,
        query_params=[("dryRun", "All"), ("fieldValidation", "Strict")],
        header_params={"Accept": "application/json", "Content-Type": content},
        body=body,
        auth_settings=["BearerToken"],
    )
    answer = cluster.api.call_api(*request)
    return answer.status, answer.read().decode()


@pytest.mark.parametrize("name", made())
def test_every_manifest_passes(cluster: Cluster, namespace: str, name: str) -> None:
    for body in made()[name]:
        status, said = dry_run(cluster, namespace, body)
        assert status in (200, 201), f"{body['kind']}: {said}"


def test_claims_pass_whole(cluster: Cluster, namespace: str) -> None:
    """The server drops nothing: MPS on two instances has all that a claim can have."""
    shared = strategy("mig", "mps", profile="3g", instances=2, thread_percent=50.0, memory_percent=50.0)
    found = claims.parts(BIG, shared, 6)
    assert not isinstance(found, str)
    for body in claims.claims(shared, found):
        status, said = dry_run(cluster, namespace, body)
        assert status == 201, said
        assert json.loads(said)["spec"]["devices"]["config"] == body["spec"]["devices"]["config"]


def test_a_dry_run_would_find_faults(cluster: Cluster, namespace: str) -> None:
    pod = next(each for each in made()["exclusive"] if each["kind"] == "Pod")
    status, said = dry_run(cluster, namespace, {**pod, "spec": {**pod["spec"], "schedulr": "x"}})
    assert (status, "schedulr" in said) == (400, True)
    status, said = dry_run(cluster, namespace, {**pod, "spec": {**pod["spec"], "hostIPC": True}})
    assert (status, "PodSecurity" in said) == (403, True)
