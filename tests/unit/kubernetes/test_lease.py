"""The Lease of a node, when several runs and jobs of one run want it at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import FakeCluster
from unit.kubernetes.objects import Json

from sharebench.nodes.base import NodeError
from sharebench.nodes.kubernetes.api import ApiRefused
from sharebench.nodes.kubernetes.lease import NodeLease


class Contested(FakeCluster):
    """Somebody else is a moment faster, `times` in all: `does` it, and our change is refused."""

    def __init__(self, does: Callable[[Contested], None], status: int = 409, times: int = 1) -> None:
        super().__init__()
        self._does, self._status, self._times = does, status, times

    def _contest(self) -> None:
        if self._times:
            self._times -= 1
            self._does(self)
            raise ApiRefused(self._status, "refused")

    def create(self, path: str, body: Json) -> Json:
        self._contest()
        return super().create(path, body)

    def replace(self, path: str, body: Json) -> Json:
        self._contest()
        return super().replace(path, body)


def lease_of(cluster: FakeCluster) -> NodeLease:
    return NodeLease(cluster, "nvidia", "gpu-node")  # type: ignore[arg-type]


def put(cluster: FakeCluster, run_id: str) -> None:
    lease = lease_of(cluster)
    cluster.store[lease.path] = {"metadata": {"name": lease.name}, "spec": lease._held_by(run_id)}


def holder(cluster: FakeCluster) -> Any:
    return cluster.store[lease_of(cluster).path]["spec"]["holderIdentity"]


def test_the_faster_run_is_named() -> None:
    cluster = Contested(lambda it: put(it, "another"))
    with pytest.raises(NodeError, match="the node is in use by run another"):
        lease_of(cluster).acquire("mine", None)


@pytest.mark.parametrize("call", ["acquire", "renew"])
def test_a_job_of_the_same_run_is_no_rival(call: str) -> None:
    cluster = Contested(lambda it: put(it, "mine"))
    put(cluster, "mine")
    lease = lease_of(cluster)
    lease.acquire("mine", None) if call == "acquire" else lease.renew("mine")
    assert holder(cluster) == "mine"


def test_a_create_whose_answer_was_lost_has_taken_it() -> None:
    """So it looks when the API server ends after the deed: the second try is told that the Lease is there."""
    cluster = Contested(lambda it: put(it, "mine"))
    lease_of(cluster).acquire("mine", None)
    assert holder(cluster) == "mine"


def test_a_lease_that_its_owner_let_go_meanwhile_is_free() -> None:
    cluster = Contested(lambda it: it.store.pop(lease_of(it).path), status=404)
    put(cluster, "dead")
    lease_of(cluster).acquire("mine", "dead")
    assert holder(cluster) == "mine"


def test_a_namespace_that_is_not_there_is_said() -> None:
    cluster = Contested(lambda it: None, status=404)
    with pytest.raises(ApiRefused, match="refused"):
        lease_of(cluster).acquire("mine", None)


def test_it_is_not_tried_for_ever() -> None:
    cluster = Contested(lambda it: None, times=99)
    with pytest.raises(NodeError, match="other runs keep taking the node"):
        lease_of(cluster).acquire("mine", None)
