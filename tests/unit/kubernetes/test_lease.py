"""The Lease of a node: held by another run, or wanted by several runs or jobs at the same time."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import FakeCluster
from unit.kubernetes.objects import Json

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import lease as lease_module
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.measure.nodes.kubernetes.cluster.lease import (
    DURATION_SECONDS,
    LEASE_POLL_SECONDS,
    RENEW_SECONDS,
    TIME_FORMAT,
    NodeLease,
)


class Contested(FakeCluster):
    """Someone else is faster, `times` in all: `does` is called, and our change is refused."""

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
    cluster.store[lease.path] = {"metadata": {"name": lease.name}, "spec": lease._spec(run_id)}


def put_of_clock(cluster: FakeCluster, run_id: str, ahead_seconds: float) -> None:
    """Like `put`, by a holder whose clock is ahead of our clock."""
    put(cluster, run_id)
    theirs = (datetime.now(UTC) + timedelta(seconds=ahead_seconds)).strftime(TIME_FORMAT)
    cluster.store[lease_of(cluster).path]["spec"] |= {"renewTime": theirs, "acquireTime": theirs}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    monkeypatch.setattr(lease_module, "time", made)
    return made


def test_who_holds_the_node_is_named(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "login-1")
    for _ in ("created", "taken again"):
        lease_of(cluster).acquire("theirs")
        assert (lease_of(cluster).holder() or "").startswith("run theirs (of ada@login-1, since ")


def holder(cluster: FakeCluster) -> Any:
    return cluster.store[lease_of(cluster).path]["spec"]["holderIdentity"]


def test_the_run_that_took_the_node_first_is_named() -> None:
    cluster = Contested(lambda it: put(it, "another"))
    with pytest.raises(NodeError, match="the node is in use by run another"):
        lease_of(cluster).acquire("mine")


@pytest.mark.parametrize("call", ["acquire", "renew"])
def test_a_job_of_the_same_run_does_not_conflict(call: str) -> None:
    cluster = Contested(lambda it: put(it, "mine"))
    put(cluster, "mine")
    lease = lease_of(cluster)
    lease.acquire("mine") if call == "acquire" else lease.renew("mine")
    assert holder(cluster) == "mine"


def test_a_lease_that_its_owner_released_is_free() -> None:
    cluster = Contested(lambda it: it.store.pop(lease_of(it).path), status=404)
    put(cluster, "mine")
    lease_of(cluster).acquire("mine")
    assert holder(cluster) == "mine"


SKEWS_SECONDS = [-3600.0, 0.0, 3600.0]


@pytest.mark.parametrize("skew_seconds", SKEWS_SECONDS)
def test_a_run_that_renews_keeps_the_lease_whatever_its_clock(cluster: FakeCluster, skew_seconds: float) -> None:
    put_of_clock(cluster, "another", skew_seconds)
    renewed = cluster.now

    def renew() -> None:
        nonlocal renewed
        if cluster.now - renewed >= RENEW_SECONDS:
            renewed = cluster.now
            put_of_clock(cluster, "another", skew_seconds)

    began, cluster.meanwhile = cluster.now, renew
    with pytest.raises(NodeError, match=r"the node is in use by run another \(since .* UTC\); wait for it to end"):
        lease_of(cluster).acquire("mine")
    assert cluster.now - began <= RENEW_SECONDS + LEASE_POLL_SECONDS
    assert holder(cluster) == "another"


@pytest.mark.parametrize("skew_seconds", SKEWS_SECONDS)
def test_a_lease_that_nobody_renews_is_taken_after_its_duration(
    cluster: FakeCluster, skew_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    put_of_clock(cluster, "dead", skew_seconds)
    began = cluster.now
    lease_of(cluster).acquire("mine")
    assert DURATION_SECONDS <= cluster.now - began <= DURATION_SECONDS + LEASE_POLL_SECONDS
    assert holder(cluster) == "mine"
    said = capsys.readouterr().err
    assert "the node's Lease is held by run dead (since " in said
    assert "waiting 60 s for a sign of life" in said


@pytest.mark.parametrize("how", ["removed", "given up"])
def test_a_lease_released_while_waiting_is_taken_at_once(cluster: FakeCluster, how: str) -> None:
    put(cluster, "another")
    path, began = lease_of(cluster).path, cluster.now

    def let_go() -> None:
        if how == "removed":
            cluster.store.pop(path, None)
        else:
            cluster.store[path]["spec"]["holderIdentity"] = ""

    cluster.meanwhile = let_go
    lease_of(cluster).acquire("mine")
    assert cluster.now - began == LEASE_POLL_SECONDS
    assert holder(cluster) == "mine"


def test_a_lease_does_not_expire_during_an_api_outage(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns for both runs at the same time."""
    put(cluster, "another")
    began, find = cluster.now, cluster.find

    def slow(path: str) -> Json | None:
        if cluster.now - began == 2 * LEASE_POLL_SECONDS:
            cluster.now += DURATION_SECONDS
            cluster.meanwhile = lambda: put(cluster, "another")
        return find(path)

    monkeypatch.setattr(cluster, "find", slow)
    with pytest.raises(NodeError, match="in use by run another"):
        lease_of(cluster).acquire("mine")
