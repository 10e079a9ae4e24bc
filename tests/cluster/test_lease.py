"""The Lease of a node on a real API server, between drivers whose clocks differ."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cluster.harness import Cluster

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import lease
from sharebench.nodes.kubernetes.cluster.api import Api
from sharebench.nodes.kubernetes.cluster.lease import NodeLease

SKEW = timedelta(hours=1)
# Shorter than usual, and far longer than between two renewals here.
DURATION_SECONDS = 20


class Late(NodeLease):
    """Of a driver whose clock is behind."""

    def _held_by(self, run_id: str, since: str | None = None) -> dict[str, Any]:
        theirs = (datetime.now(UTC) - SKEW).strftime(lease.TIME_FORMAT)
        return super()._held_by(run_id, since) | {"renewTime": theirs}


@pytest.fixture
def api(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setattr(lease, "DURATION_SECONDS", DURATION_SECONDS)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 5.0)
    return Api(None)


def end(holder: NodeLease) -> None:
    """It renews no more, as when its driver was killed."""
    holder._ended.set()
    for thread in threading.enumerate():
        if thread.name == "lease":
            thread.join()


@pytest.mark.existing
def test_a_driver_with_another_clock_keeps_its_node_as_long_as_it_renews(api: Api, namespace: str) -> None:
    holder, other = Late(api, namespace, "some-node"), NodeLease(api, namespace, "some-node")
    holder.acquire("first", None)
    holder.keep("first")
    try:
        with pytest.raises(NodeError, match="the node is in use by run first"):
            other.acquire("second", None)
        end(holder)
        died = time.monotonic()
        other.acquire("second", None)
        assert time.monotonic() - died >= DURATION_SECONDS
        with pytest.raises(NodeError, match="the node is not ours any more: its Lease is held by second"):
            holder.renew("first")
    finally:
        end(holder)
        other.release("second")
    assert api.find(other.path) is None
