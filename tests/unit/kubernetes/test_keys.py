"""Our keys in the plugin's ConfigMap: what they are, and that no run removes them from under another."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from unit.kubernetes.fake_cluster import merged

from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.access.device_plugin import keys
from sharebench.nodes.kubernetes.access.device_plugin.keys import added, removed
from sharebench.nodes.kubernetes.cluster import api
from sharebench.nodes.kubernetes.cluster.api import ApiRefused, change

PLAIN = "version: v1\n"


@pytest.mark.parametrize(
    ("mechanism", "replicas", "most", "key", "count"),
    [
        ("exclusive", 1, 1, "sharebench-exclusive", 1),
        # the largest serves all, and the plugin takes no fewer than two
        ("time-slicing", 3, 7, "sharebench-ts-7", 7),
        ("time-slicing", 1, 1, "sharebench-ts-2", 2),
        # one for each number
        ("mps", 3, 7, "sharebench-mps-3", 3),
    ],
)
def test_key(mechanism: str, replicas: int, most: int, key: str, count: int) -> None:
    strategy = Strategy(mechanism, (mechanism,), None, None, None, None, None)
    assert keys.key_of(strategy, replicas, most) == (key, count)


@pytest.mark.parametrize(
    ("is_single", "replicas", "key", "resources"),
    [
        (False, 1, "sharebench-mig-mixed", None),
        (True, 1, "sharebench-mig-single", None),
        (
            False,
            4,
            "sharebench-mig-mixed-ts-4-3g.20gb-1g.5gb.me",
            ["nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me"],
        ),
        (True, 4, "sharebench-mig-single-ts-4", ["nvidia.com/gpu"]),
    ],
)
def test_instances(is_single: bool, replicas: int, key: str, resources: list[str] | None) -> None:
    assert keys.mig_key(is_single, replicas, ["3g.20gb", "1g.5gb+me", "3g.20gb"]) == key
    config = yaml.safe_load(keys.render(key, "flags: {migStrategy: none, failOnInitError: false}"))
    assert config["flags"] == {"migStrategy": "single" if is_single else "mixed", "failOnInitError": False}
    assert keys.mechanism_of(key) == ("time-slicing" if resources else "none")
    shared = config.get("sharing", {}).get("timeSlicing", {}).get("resources")
    assert shared == (resources and [{"name": name, "replicas": replicas} for name in resources])


def test_mps_is_not_asked_for_beside_instances_of_many_profiles() -> None:
    # the plugin refuses to start, also where no GPU is cut
    config = yaml.safe_load(keys.render("sharebench-mps-3", "flags: {migStrategy: mixed}"))
    assert config["flags"] == {"migStrategy": "none"}


def test_the_flags_in_force_are_kept_and_their_sharing_is_not() -> None:
    flags = {"migStrategy": "single", "plugin": {"deviceListStrategy": ["cdi-cri"]}}
    base = yaml.safe_dump({"version": "v1", "flags": flags, "sharing": {"mps": {"resources": []}}})
    config = yaml.safe_load(keys.render("sharebench-ts-3", base))
    assert config["flags"] == flags
    assert list(config["sharing"]) == ["timeSlicing"]


NODES = {"aaaa", "bbbb"}
TEXTS = {"sharebench-ts-7": "seven", "sharebench-exclusive": "one"}
FOUND = {"default": "theirs"}


class OneMap:
    """Stands in for `Api`, with one ConfigMap that is versioned; `meanwhile` runs once between a get and a patch."""

    def __init__(self, data: dict[str, str]) -> None:
        self.content: dict[str, Any] = {"metadata": {"resourceVersion": "1", "annotations": {}}, "data": data}
        self.meanwhile: list[Callable[[], object]] = []

    def get(self, path: str) -> dict[str, Any]:
        found = copy.deepcopy(self.content)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return found

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        version = self.content["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise ApiRefused(409, "changed")
        self.content = merged(self.content, body)
        self.content["metadata"]["resourceVersion"] = str(int(version) + 1)
        return self.content

    def add(self, node: str, texts: dict[str, str] = TEXTS) -> dict[str, Any]:
        return change(self, "x", lambda found: added(found, node, NODES, texts))  # type: ignore[arg-type]

    def remove(self, node: str, nodes: set[str] = NODES) -> dict[str, Any]:
        return change(self, "x", lambda found: removed(found, node, nodes))  # type: ignore[arg-type]

    @property
    def keys(self) -> dict[str, str]:
        found: dict[str, str] = self.content["data"]
        return found

    def is_as_found(self, data: dict[str, str] = FOUND) -> bool:
        return self.keys == data and self.content["metadata"]["annotations"] == {}


def test_the_last_one_restores_what_was_there_before_any() -> None:
    found = {**FOUND, "sharebench-ts-7": "somebody's", "sharebench-own": "kept"}
    shared = OneMap(found)
    shared.add("aaaa")
    shared.add("bbbb")
    assert shared.keys == {**found, **TEXTS}
    shared.remove("aaaa")
    assert shared.keys == {**found, **TEXTS}
    shared.remove("bbbb")
    assert shared.is_as_found(found)


@pytest.mark.parametrize("first, second", [("aaaa", "bbbb"), ("bbbb", "aaaa")])
def test_the_keys_of_a_run_that_comes_while_another_one_leaves(first: str, second: str) -> None:
    """The second one looks, or has just written, when the first one takes its keys away."""
    shared = OneMap(FOUND)
    shared.add(first)
    shared.meanwhile = [lambda: shared.add(second)]
    shared.remove(first)
    assert TEXTS.items() <= shared.keys.items()
    shared.remove(second)
    assert shared.is_as_found()

    shared.add(first)
    shared.meanwhile = [lambda: shared.remove(first)]
    shared.add(second)
    assert TEXTS.items() <= shared.keys.items()
    shared.remove(second)
    assert shared.is_as_found()


def test_what_is_there_already_is_still_noted_as_needed() -> None:
    shared = OneMap(FOUND)
    assert "data" in shared.add("aaaa")
    assert set(shared.add("bbbb")) == {"metadata"}
    assert shared.add("bbbb") == {}


def test_another_text_under_a_key_that_another_node_needs_is_refused() -> None:
    shared = OneMap(FOUND)
    shared.add("aaaa")
    with pytest.raises(NodeError, match="a run on another node has another config under the key sharebench-ts-7"):
        shared.add("bbbb", {"sharebench-ts-7": "with other flags"})
    shared.add("bbbb", {"sharebench-mps-3": "a key of its own"})
    shared.remove("aaaa")
    shared.add("bbbb", {"sharebench-ts-7": "with other flags"})
    shared.remove("bbbb")
    assert shared.is_as_found()


def test_a_node_that_is_gone_from_the_cluster_needs_nothing() -> None:
    shared = OneMap(FOUND)
    shared.add("aaaa")
    shared.add("bbbb")
    shared.remove("bbbb", {"bbbb"})
    assert shared.is_as_found()


def test_who_never_came_takes_nothing_away() -> None:
    shared = OneMap(FOUND)
    shared.add("aaaa")
    assert shared.remove("bbbb") == {}
    assert TEXTS.items() <= shared.keys.items()


def test_somebody_who_never_stops_changing_it_is_named() -> None:
    shared = OneMap(FOUND)

    def disturb() -> None:
        shared.patch("x", {"metadata": {"resourceVersion": shared.content["metadata"]["resourceVersion"]}})

    shared.meanwhile = [disturb] * api.ATTEMPTS
    with pytest.raises(NodeError, match="somebody keeps changing"):
        shared.add("aaaa")
    shared.add("aaaa")


def test_a_change_whose_answer_was_lost_counts_as_one() -> None:
    """The second call finds another version than the one that it read, which the first one made."""
    shared = OneMap(dict(FOUND))
    patch = shared.patch

    def lost(path: str, body: dict[str, Any]) -> dict[str, Any]:
        patch(path, body)
        return patch(path, body)

    shared.patch = lost  # type: ignore[method-assign]
    assert shared.add("aaaa")["data"] == TEXTS
