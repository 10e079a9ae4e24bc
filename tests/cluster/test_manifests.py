"""The API server accepts the objects of every strategy in dry runs with strict fields and Pod Security."""

from __future__ import annotations

import json

import pytest
from cluster.harness import Cluster
from cluster.test_config_manifests import DRY_RUN, api, try_to_make
from unit.kubernetes.manifests import made
from unit.kubernetes.objects import instance, offered, strategy

from sharebench.measure.nodes.kubernetes.access.dra import claims
from sharebench.measure.nodes.kubernetes.cluster.api import Api

__all__ = ["api"]
BIG = offered(*(instance("3g.20gb", number, memory="20Gi") for number in (1, 2)))


@pytest.mark.parametrize("name", made())
def test_the_server_accepts_every_cell_object(cluster: Cluster, api: Api, namespace: str, name: str) -> None:
    for body in made()[name]:
        if body["kind"] == "Node":
            change = {"metadata": {"labels": body["metadata"]["labels"]}}
            api._call("PATCH", f"/api/v1/nodes/{cluster.node_name}", change, DRY_RUN)
        else:
            # Of the plugin's ConfigMap it is another; here only the server's verdict counts.
            try_to_make(api, body, namespace)


def test_the_server_accepts_claims_unchanged(api: Api, namespace: str) -> None:
    """The server drops no field; MPS on two instances uses all fields of a claim."""
    shared = strategy("mig", "mps", profile="3g", instances=2, thread_percent=50.0, memory_percent=50.0)
    found = claims.select_devices(BIG, shared, 6)
    assert not isinstance(found, str)
    for body in claims.build_claims(shared, found):
        said = json.loads(try_to_make(api, body, namespace))
        assert said["spec"]["devices"]["config"] == body["spec"]["devices"]["config"]
