"""Our configs in the plugin's ConfigMap, which no run removes while another one needs them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from unit.kubernetes.fake_cluster import merged

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import keys
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import (
    PluginConfig,
    active_settings,
    patch_to_add,
    patch_to_remove,
)
from sharebench.measure.nodes.kubernetes.cluster import api
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, patch_with_retry
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import PluginConfigMap
from sharebench.model.strategy import Strategy

THREE_G, ONE_G = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me"


@pytest.mark.parametrize(
    ("mechanism", "replicas", "most", "config"),
    [
        ("exclusive", 1, 1, PluginConfig("none")),
        # the largest number serves all, and the plugin accepts no fewer than two
        ("time-slicing", 3, 7, PluginConfig("time-slicing", 7)),
        ("time-slicing", 1, 1, PluginConfig("time-slicing", 2)),
        # one for each number
        ("mps", 3, 7, PluginConfig("mps", 3)),
    ],
)
def test_the_config_of_a_strategy(mechanism: str, replicas: int, most: int, config: PluginConfig) -> None:
    strategy = Strategy.model_construct(name=mechanism, mechanism=(mechanism,))
    assert keys.config_for_strategy(strategy, replicas, most) == config


@pytest.mark.parametrize(
    ("config", "key", "strategy", "section", "resources"),
    [
        (PluginConfig("none"), "sharebench-exclusive-", "none", None, []),
        (PluginConfig("time-slicing", 4), "sharebench-ts-4-", "none", "timeSlicing", ["nvidia.com/gpu"]),
        (PluginConfig("mps", 4), "sharebench-mps-4-", "none", "mps", ["nvidia.com/gpu"]),
        (PluginConfig("none", 1, "mixed", (ONE_G,)), "sharebench-mig-mixed-", "mixed", None, []),
        (
            PluginConfig("time-slicing", 4, "mixed", (THREE_G, ONE_G)),
            "sharebench-mig-mixed-ts-4-",
            "mixed",
            "timeSlicing",
            [THREE_G, ONE_G],
        ),
    ],
)
def test_keys_and_texts(
    config: PluginConfig, key: str, strategy: str, section: str | None, resources: list[str]
) -> None:
    active = active_settings("flags: {migStrategy: none, failOnInitError: false}")
    assert config.key(active)[:-8] == key
    text = yaml.safe_load(config.text(active))
    assert text["flags"] == {"migStrategy": strategy, "failOnInitError": False}
    shared = [{"name": name, "replicas": 4} for name in resources]
    assert text.get("sharing") == (section and {section: {"renameByDefault": False, "resources": shared}})


def test_nodes_with_other_flags_have_other_keys() -> None:
    config, other = PluginConfig("mps", 3), active_settings("flags: {failOnInitError: true}")
    assert config.key({}) == config.key(active_settings("version: v1")) != config.key(other)


def test_mps_does_not_keep_the_mixed_mig_strategy() -> None:
    # the plugin would refuse to start, even if no GPU is partitioned
    text = PluginConfig("mps", 3).text(active_settings("flags: {migStrategy: mixed}"))
    assert yaml.safe_load(text)["flags"] == {"migStrategy": "none"}


def test_active_flags_are_kept_and_active_sharing_is_not() -> None:
    flags = {"migStrategy": "single", "plugin": {"deviceListStrategy": ["cdi-cri"]}}
    base = yaml.safe_dump({"version": "v1", "flags": flags, "sharing": {"mps": {"resources": []}}})
    assert active_settings(base) == {"version": "v1", "flags": flags}
    assert active_settings("") == {}


NODES = {"aaaa", "bbbb"}
SOURCE = PluginConfigMap("nvidia", "sharing", "", ("named", "single"))
TEXTS = {"sharebench-ts-7": "seven", "sharebench-exclusive": "one"}
FOUND = {"default": "theirs"}


class OneMap:
    """A fake of `Api` with one versioned ConfigMap; `meanwhile` has calls that run between a get and a patch."""

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
        return patch_with_retry(self, "x", lambda found: patch_to_add(found, node, texts, SOURCE, 100.0))  # type: ignore[arg-type]

    def remove(self, node: str, nodes: set[str] = NODES) -> dict[str, Any]:
        return patch_with_retry(self, "x", lambda found: patch_to_remove(found, node, nodes))  # type: ignore[arg-type]

    @property
    def keys(self) -> dict[str, str]:
        found: dict[str, str] = self.content["data"]
        return found

    def is_as_found(self) -> bool:
        return self.keys == FOUND and self.content["metadata"]["annotations"] == {}


def test_the_last_user_removes_the_keys() -> None:
    shared = OneMap(FOUND)
    shared.add("aaaa")
    shared.add("bbbb")
    for node in ("aaaa", "bbbb"):
        assert shared.keys == {**FOUND, **TEXTS}
        shared.remove(node)
    assert shared.is_as_found()


def test_a_run_that_starts_while_another_ends_keeps_its_keys() -> None:
    """The second run reads, or has just written, when the first one removes its keys."""
    first, second = "aaaa", "bbbb"
    shared = OneMap(FOUND)
    shared.add(first)
    assert shared.remove(second) == {}, "a node that added nothing removes nothing"
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


def test_keys_that_exist_are_still_noted_as_needed() -> None:
    shared = OneMap(FOUND)
    assert "data" in shared.add("aaaa")
    assert set(shared.add("bbbb")) == {"metadata"}
    assert shared.add("bbbb") == {}


def test_a_node_that_left_the_cluster_needs_no_keys() -> None:
    shared = OneMap(FOUND)
    shared.add("aaaa")
    shared.add("bbbb")
    shared.remove("bbbb", {"bbbb"})
    assert shared.is_as_found()


def test_a_config_map_that_keeps_changing_fails() -> None:
    shared = OneMap(FOUND)

    def disturb() -> None:
        shared.patch("x", {"metadata": {"resourceVersion": shared.content["metadata"]["resourceVersion"]}})

    shared.meanwhile = [disturb] * api.PATCH_ATTEMPTS
    with pytest.raises(NodeError, match="someone keeps changing"):
        shared.add("aaaa")
    shared.add("aaaa")


def test_a_patch_whose_answer_was_lost_counts_as_applied() -> None:
    """The repeated call finds a newer version, which the first call made."""
    shared = OneMap(dict(FOUND))
    patch = shared.patch

    def lost(path: str, body: dict[str, Any]) -> dict[str, Any]:
        patch(path, body)
        return patch(path, body)

    shared.patch = lost  # type: ignore[method-assign]
    assert shared.add("aaaa")["data"] == TEXTS


@pytest.mark.parametrize(
    ("configs", "default", "fallbacks", "without_label", "copied"),
    [
        (["config"], "", ["named", "single"], "config", True),
        (["config"], "config", ["named", "single"], "config", False),
        (["default"], "", ["named", "single"], "default", False),
        (["a", "b"], "", ["named", "single"], None, False),
        # The operator's.
        (["a", "b"], "", ["empty"], "", False),
        (["config"], "", ["single", "named", "empty"], "config", True),
    ],
)
def test_nodes_without_the_label_keep_their_config(
    configs: list[str], default: str, fallbacks: list[str], without_label: str | None, copied: bool
) -> None:
    source = PluginConfigMap("nvidia", "sharing", default, tuple(fallbacks))
    shared = OneMap({key: f"text of {key}" for key in configs})
    before = copy.deepcopy(shared.content)
    assert keys.fallback_problem(shared.content, source) is None
    assert keys.key_without_label(configs, source) == without_label
    for _ in range(2):
        patch_with_retry(shared, "x", lambda found: patch_to_add(found, "aaaa", TEXTS, source, 100.0))  # type: ignore[arg-type]
    assert (keys.copied_at(shared.content) == 100.0) == copied
    found = keys.key_without_label(shared.keys, source)
    assert shared.keys.get(found or "") == before["data"].get(without_label or "")
    shared.remove("aaaa")
    assert shared.keys == before["data"] and shared.content["metadata"]["annotations"] == {}


def test_a_default_key_that_others_have_set_meanwhile_stays() -> None:
    shared = OneMap({"config": "theirs"})
    shared.add("aaaa")
    assert shared.keys["default"] == "theirs"
    shared.keys["default"] = "newer"
    shared.remove("aaaa")
    assert shared.keys == {"config": "theirs", "default": "newer"}


@pytest.mark.parametrize("fallbacks", [["single"], ["single", "empty"], ["single", "empty", "named"]])
def test_a_fallback_that_cannot_be_kept_is_a_problem(fallbacks: list[str]) -> None:
    source = PluginConfigMap("nvidia", "sharing", "", tuple(fallbacks))
    problem = keys.fallback_problem({"metadata": {}, "data": {"config": "theirs"}}, source)
    assert problem and "install the plugin with config.default: config" in problem
