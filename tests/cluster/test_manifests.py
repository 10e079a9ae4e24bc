"""The manifests of every strategy, as the API server takes them: dry runs with strict fields and Pod Security."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster.harness import Cluster
from unit.kubernetes.manifests import made
from unit.kubernetes.objects import instance, offered, strategy

from sharebench.nodes.kubernetes.access.dra import claims
from sharebench.nodes.kubernetes.cluster import claims_api

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


@pytest.mark.testbed
@pytest.mark.parametrize("version", claims_api.VERSIONS)
def test_claims_of_every_version_pass(cluster: Cluster, namespace: str, version: str) -> None:
    """Each server knows its own shape only, and drops nothing: MPS on two instances has all that a claim can have."""
    shared = strategy("mig", "mps", profile="3g", instances=2, thread_percent=50.0, memory_percent=50.0)
    found = claims.parts(BIG, shared, 6)
    assert not isinstance(found, str)
    for body in claims.claims(version, shared, found):
        status, said = dry_run(cluster, namespace, body)
        assert status == 201, said
        made = json.loads(said)
        assert (made["apiVersion"], made["spec"]["devices"]["config"]) == (
            f"resource.k8s.io/{version}",
            body["spec"]["devices"]["config"],
        )
        other = "v1" if version in claims_api.FLAT_REQUEST_VERSIONS else "v1beta1"
        (wrong,) = claims.claims(other, shared, found)
        assert dry_run(cluster, namespace, wrong | {"apiVersion": body["apiVersion"]})[0] in (400, 422)


def test_a_dry_run_would_find_faults(cluster: Cluster, namespace: str) -> None:
    pod = next(each for each in made()["exclusive"] if each["kind"] == "Pod")
    status, said = dry_run(cluster, namespace, {**pod, "spec": {**pod["spec"], "schedulr": "x"}})
    assert (status, "schedulr" in said) == (400, True)
    status, said = dry_run(cluster, namespace, {**pod, "spec": {**pod["spec"], "hostIPC": True}})
    assert (status, "PodSecurity" in said) == (403, True)
