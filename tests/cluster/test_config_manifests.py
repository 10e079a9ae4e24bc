"""The API server accepts every manifest of config/cluster in a dry run that refuses unknown fields.

The values of charts are not objects: test_chart.py installs with those of the device plugin. Charts of the GPU operator
and of kube-prometheus-stack cannot be had here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from cluster.driving import REPOSITORY
from cluster.harness import RESTRICTED, Cluster, eventually
from cluster.testbed import sources
from kubernetes import client, utils

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import pod_monitor
from sharebench.measure.nodes.kubernetes.cluster.api import Api, ApiRefused

FOLDER = REPOSITORY / "config" / "cluster"
DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}
# Custom resources of the manifests' objects.
DEFINITIONS = {"karpenter.yaml": (sources.NODE_POOL, sources.NODE_CLASS)}


def manifests() -> list[str]:
    """Files with objects, without those with Helm values."""
    return sorted(path.name for path in FOLDER.glob("*.yaml") if all("metadata" in each for each in objects(path.name)))


def objects(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


@pytest.fixture
def api(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    return Api(None)


@contextmanager
def defining(cluster: Cluster, api: Api, *definitions: tuple[str, str]) -> Iterator[None]:
    """The cluster with these custom resources for a while."""
    extensions = client.ApiextensionsV1Api(cluster.api)
    made: dict[str, str] = {}
    try:
        for source in definitions:
            path = sources.file(*source)
            utils.create_from_yaml(cluster.api, str(path))
            (definition,) = [each for each in yaml.safe_load_all(path.read_text()) if each]
            names, spec = definition["metadata"]["name"], definition["spec"]
            made[names] = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            eventually(names, lambda path=made[names]: api.find(path))  # type: ignore[misc]
        yield
    finally:
        for name, path in made.items():
            extensions.delete_custom_resource_definition(name)
            eventually(f"the end of {name}", lambda path=path: api.find(path) is None)  # type: ignore[misc]


def path_of(api: Api, made: dict[str, Any], namespace: str) -> str:
    """Path of the collection of an object's kind."""
    group = made["apiVersion"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    kinds = {each["kind"]: each for each in api.get(root)["resources"] if "/" not in each["name"]}
    kind = kinds[made["kind"]]
    return f"{root}/namespaces/{namespace}/{kind['name']}" if kind["namespaced"] else f"{root}/{kind['name']}"


def try_to_make(api: Api, made: dict[str, Any], namespace: str) -> bytes:
    """The object that a dry run returns. Raises ApiRefused with the server's message."""
    body = {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "namespace"}}
    return api._call("POST", path_of(api, made, namespace), body, DRY_RUN)


@pytest.mark.parametrize("name", manifests())
def test_the_server_accepts_each_manifest(cluster: Cluster, api: Api, namespace: str, name: str) -> None:
    with defining(cluster, api, *DEFINITIONS.get(name, ())):
        for each in objects(name):
            try_to_make(api, each, namespace)
            if each["kind"] == "Job":
                # Pod Security is enforced on pods only.
                spec = each["spec"]["template"]["spec"] | {"serviceAccountName": "default"}
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-the-job"}, "spec": spec}
                try_to_make(api, pod, namespace)


def test_the_prometheus_operator_accepts_a_runs_pod_monitor(cluster: Cluster, api: Api, namespace: str) -> None:
    made = pod_monitor.pod_monitor(
        "0123abcd", "sharebench/node", "a run", {"scrape_seconds": 0.5, "labels": {"a": "b"}}
    )
    with pytest.raises(NodeError, match="the cluster has no PodMonitor"):
        pod_monitor.ensure(api, namespace, made)
    pod_monitor.remove(api, namespace, "0123abcd")
    with defining(cluster, api, sources.POD_MONITOR):
        try_to_make(api, made, namespace)
        made["spec"]["podMetricsEndpoints"][0]["interval"] = "half a second"
        with pytest.raises(ApiRefused, match="interval"):
            try_to_make(api, made, namespace)


def test_the_server_refuses_what_pod_security_forbids(api: Api, namespace: str) -> None:
    (made,) = objects("verify.yaml")
    del made["spec"]["securityContext"]
    with pytest.raises(ApiRefused, match="Pod Security refuses the pod"):
        try_to_make(api, made, namespace)


def test_the_server_refuses_an_unknown_field(api: Api, namespace: str) -> None:
    (made,) = objects("verify.yaml")
    made["spec"]["restartPolcy"] = "Never"
    with pytest.raises(ApiRefused, match=r'unknown field "spec\.restartPolcy"'):
        try_to_make(api, made, namespace)


def test_the_namespace_enforces_restricted_pod_security() -> None:
    (made,) = objects("namespace.yaml")
    assert made["metadata"]["labels"] == RESTRICTED


def test_there_is_no_other_kind_of_file() -> None:
    values = {path.name for path in FOLDER.glob("*-values.yaml")} | {"grafana.json"}
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == {*manifests(), *values}
