"""Waiting for pods to be gone, by a watch that may break."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import api
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.pods.watch import wait_until_gone


def event(kind: str, name: str) -> Json:
    return {"type": kind, "object": {"metadata": {"name": name}}}


class Cluster:
    """Answers each list with the next of `lists`, each watch with the next of `watches`; an exception is raised."""

    def __init__(self, lists: list[list[str]], watches: list[list[Json | Exception]]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[str] = []

    def get(self, path: str, **query: Any) -> Json:
        assert query["labelSelector"] == "a=b"
        self.asked.append("list")
        names = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return {"items": [{"metadata": {"name": name}} for name in names], "metadata": {"resourceVersion": "7"}}

    def watch(self, path: str, version: str, **query: Any) -> Iterator[Json]:
        assert (version, query["labelSelector"]) == ("7", "a=b")
        self.asked.append("watch")
        for each in self.watches.pop(0) if self.watches else []:
            if isinstance(each, Exception):
                raise each
            yield each


def wait(cluster: Any, seconds: float = 60.0) -> None:
    wait_until_gone(cluster, "/pods", "a=b", seconds)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "FIRST_PAUSE_SECONDS", 0.0)


def test_where_nothing_is_left_nothing_is_watched() -> None:
    cluster = Cluster([[]], [])
    wait(cluster)
    assert cluster.asked == ["list"]


def test_the_last_one_that_goes_ends_it() -> None:
    went = [event("MODIFIED", "x"), event("DELETED", "x"), event("DELETED", "y"), AssertionError("watched on")]
    cluster = Cluster([["x", "y"]], [went])
    wait(cluster)
    assert cluster.asked == ["list", "watch"]


@pytest.mark.parametrize("broken", [ConnectionResetError(), event("ERROR", "")])
def test_a_watch_that_breaks_is_followed_by_a_list(broken: Any) -> None:
    cluster = Cluster([["x", "y"], ["y"], []], [[event("DELETED", "x"), broken], [broken]])
    wait(cluster)
    assert cluster.asked == ["list", "watch", "list", "watch", "list"]


def test_what_does_not_go_is_named() -> None:
    with pytest.raises(NodeError, match="2 of our pods did not go within 0 s"):
        wait(Cluster([["x", "y"]], []), 0.0)
