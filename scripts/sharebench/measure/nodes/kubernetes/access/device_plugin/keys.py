"""Our configs in the device plugin's ConfigMap: their keys and texts, and when they are removed.

All nodes of the cluster read the ConfigMap. Annotations name the nodes whose runs need our keys; the last run removes
them. One patch changes keys and annotations and fails on a concurrent change, so no run removes keys that another node
has just begun to need. A key ends in the digest of its text, so nodes with other flags have other keys.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import yaml

from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.model.strategy import Strategy

KEY_PREFIX = "sharebench-"
RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
# The plugin refuses `replicas: 1` as a parse error.
MIN_REPLICAS = 2
# Followed by the digest of a node on which a run needs the keys.
USER_ANNOTATION_PREFIX = "sharebench/used-by-"
SECTIONS = {"time-slicing": "timeSlicing", "mps": "mps"}


@dataclass(frozen=True)
class PluginConfig:
    """A config of the plugin, without the flags that are already active on a node (`active_settings`)."""

    sharing: str
    """Value of the sharing label: none, time-slicing or mps."""
    replicas: int = 1
    """How many tenants share each resource."""
    mig_strategy: str | None = None
    """None if no GPU is partitioned."""
    resources: tuple[str, ...] = (RESOURCE,)

    def text(self, active: Json) -> str:
        flags = dict(active.get("flags") or {})
        if self.mig_strategy is not None:
            flags["migStrategy"] = self.mig_strategy
        elif self.sharing == "mps" and flags.get("migStrategy") == "mixed":
            # The plugin refuses mixed together with MPS, even if no GPU is partitioned.
            flags["migStrategy"] = "none"
        config: Json = {"version": active.get("version", "v1")} | ({"flags": flags} if flags else {})
        if self.sharing != "none":
            resources = [{"name": name, "replicas": self.replicas} for name in self.resources]
            config["sharing"] = {SECTIONS[self.sharing]: {"renameByDefault": False, "resources": resources}}
        return yaml.safe_dump(config, sort_keys=False)

    def key(self, active: Json) -> str:
        words = [] if self.mig_strategy is None else ["mig", self.mig_strategy]
        if self.sharing != "none":
            words += ["ts" if self.sharing == "time-slicing" else "mps", str(self.replicas)]
        digest = hashlib.sha256(self.text(active).encode()).hexdigest()[:8]
        return KEY_PREFIX + "-".join([*(words or ["exclusive"]), digest])


def config_for_strategy(strategy: Strategy, replicas: int, max_tenants: int) -> PluginConfig:
    """The config under which `replicas` tenants share a whole GPU.

    Time-slicing for the study's largest number of tenants, `max_tenants`, also serves smaller ones, which saves
    switches. MPS limits each client to an even share, so it needs a config for each number.
    """
    mechanism = strategy.mechanism[-1]
    if mechanism == "exclusive":
        return PluginConfig("none")
    return PluginConfig(mechanism, max(MIN_REPLICAS, replicas, max_tenants if mechanism == "time-slicing" else 0))


def active_settings(text: str) -> Json:
    """The version and flags in the text of a plugin's config, which our configs keep."""
    config: Json = yaml.safe_load(text) or {}
    return {key: config[key] for key in ("version", "flags") if config.get(key)}


def _annotations(config_map: Json) -> Mapping[str, str]:
    return config_map["metadata"].get("annotations") or {}


def _patch(data: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> Json:
    return ({"data": data} if data else {}) | ({"metadata": {"annotations": annotations}} if annotations else {})


def patch_to_add(config_map: Json, digest: str, texts: Mapping[str, str]) -> Json:
    """The patch that adds keys and notes that the node of this digest needs them; empty if nothing is missing."""
    data, user = config_map.get("data") or {}, USER_ANNOTATION_PREFIX + digest
    changed = {key: text for key, text in texts.items() if data.get(key) != text}
    return _patch(changed, {} if user in _annotations(config_map) else {user: "true"})


def patch_to_remove(config_map: Json, digest: str, nodes: Collection[str]) -> Json:
    """The patch that notes that a node does not need the keys any more; the last node removes them.

    `nodes` are the digests of the cluster's nodes, since a node that has left the cluster needs no keys.
    """
    data, annotations = config_map.get("data") or {}, _annotations(config_map)
    users = [name for name in annotations if name.startswith(USER_ANNOTATION_PREFIX)]
    if any(USER_ANNOTATION_PREFIX + node in users for node in nodes if node != digest):
        return _patch({}, {user: None for user in users if user == USER_ANNOTATION_PREFIX + digest})
    return _patch({key: None for key in data if key.startswith(KEY_PREFIX)}, dict.fromkeys(users))
