"""Preflight tries a pod with a GPU, as policies see it, and as many GPUs as the largest cell has, as quotas do."""

from typing import Any

import pytest
from unit.kubernetes.test_preflight import Cluster, inspected

from sharebench.measure.nodes.kubernetes.cluster import cluster as node_cluster
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused

QUOTA = "the namespace's quota is used up: exceeded quota: gpus"


class Refusing(Cluster):
    """It refuses pods that ask for more GPUs than the limit, with these words."""

    limit, words = 0, QUOTA

    def create(self, path: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
        made = super().create(path, body, **query)
        if query and int(body["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0)) > self.limit:
            raise ApiRefused(403, self.words)
        return made


@pytest.mark.parametrize(
    ("limit", "words", "is_fit"),
    [(0, QUOTA, False), (1, QUOTA, False), (3, QUOTA, True), (0, "a policy", False), (1, "a policy", True)],
)
def test_what_quotas_and_policies_say_of_gpus_is_said(
    monkeypatch: pytest.MonkeyPatch, limit: int, words: str, is_fit: bool
) -> None:
    """One pod asks for all GPUs of a cell there, which no policy need allow."""
    made = Refusing()
    made.limit, made.words = limit, words
    monkeypatch.setattr(node_cluster, "Api", lambda context: made)
    text, found = inspected()
    assert found == is_fit and (words in text) != is_fit


def test_instances_and_claims_are_tried_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Refusing()
    monkeypatch.setattr(node_cluster, "Api", lambda context: made)
    inspected(access="dra")
    assert made.tried and QUOTA not in inspected(access="dra")[0]
