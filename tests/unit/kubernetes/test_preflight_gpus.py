"""Preflight tries a pod with a GPU, as policies see it, and as many GPUs as the largest cell has, as quotas do."""

from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE
from unit.kubernetes.test_preflight import STUDY, Cluster, inspected

from sharebench.measure.nodes.kubernetes.cluster import cluster as node_cluster
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.measure.nodes.kubernetes.preflight import pods

QUOTA = "the namespace's quota is used up: exceeded quota: gpus"


class Refusing(Cluster):
    """It refuses pods that ask for more GPUs than the limit, with these words."""

    limit, words = 0, QUOTA

    def create(self, path: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
        made = super().create(path, body, **query)
        if query and int(body["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0)) > self.limit:
            raise ApiRefused(403, self.words)
        return made


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    made = Refusing()
    monkeypatch.setattr(node_cluster, "Api", lambda context: made)
    return made


@pytest.mark.parametrize(
    ("limit", "words", "is_fit"),
    [(0, QUOTA, False), (1, QUOTA, False), (3, QUOTA, True), (0, "a policy", False), (1, "a LimitRange", True)],
)
def test_what_quotas_and_policies_say_of_gpus_is_said(cluster: Refusing, limit: int, words: str, is_fit: bool) -> None:
    """One pod asks for all GPUs of a cell there, which no policy need allow; it hides the quota."""
    cluster.limit, cluster.words = limit, words
    text, found = inspected()
    assert found == is_fit and (words in text) != (limit == 3)
    assert ("make sure that a quota of the namespace has 3 GPUs" in text) == (words == "a LimitRange")


@pytest.mark.parametrize(("strategies", "needed"), [(["exclusive", "time-slicing"], 12), (["exclusive"], 4)])
def test_placeholders_of_several_gpus_count(
    cluster: Refusing, monkeypatch: pytest.MonkeyPatch, strategies: list[str], needed: int
) -> None:
    """They take every replica of every GPU before the tenants start."""
    cluster.store[NODE]["metadata"]["labels"]["nvidia.com/gpu.count"] = "4"
    monkeypatch.setitem(STUDY, "strategies", strategies)
    for limit in (needed - 1, needed):
        cluster.limit = limit
        text, is_fit = inspected()
        assert is_fit == (limit == needed)
    assert QUOTA not in text


def test_claims_are_tried_without_a_gpu(cluster: Refusing) -> None:
    text, _ = inspected(access="dra")
    assert cluster.tried and QUOTA not in text


def test_instances_are_tried_without_a_gpu(cluster: Refusing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tenant of `exclusive`, with which each study begins, has one."""
    monkeypatch.setitem(STUDY, "strategies", ["mig"])
    monkeypatch.setattr(pods, "infeasible_reason", lambda *_: None)
    cluster.limit = 1
    assert QUOTA not in inspected(may_change=["mig"])[0]
    cluster.limit = 0
    assert QUOTA in inspected(may_change=["mig"])[0]
