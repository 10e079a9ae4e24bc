"""Our configs in the device plugin's ConfigMap: their keys and texts, and when they are removed.

All nodes of the cluster read the ConfigMap. Annotations name the nodes whose runs need our keys; the last run removes
them. One patch changes keys and annotations and fails on a concurrent change, so no run removes keys that another node
has just begun to need. A key ends in the digest of its text, so nodes with other flags have other keys.

A plugin without a default falls back to the only key of its ConfigMap. With ours there are several, so its text is also
put under the name of the next fallback, `default`, while our keys are there.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import yaml

from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import PluginConfigMap
from sharebench.model.strategy import Strategy

KEY_PREFIX = "sharebench-"
RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
# The plugin refuses `replicas: 1` as a parse error.
MIN_REPLICAS = 2
# Followed by the digest of a node on which a run needs the keys.
USER_ANNOTATION_PREFIX = "sharebench/used-by-"
# The key by which the config-manager's fallback `named` finds a config; the annotation has when we added ours, in
# seconds since 1970, and the digest of its text.
NAMED_KEY = "default"
COPY_ANNOTATION = "sharebench/default-added"
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
        return KEY_PREFIX + "-".join([*(words or ["exclusive"]), _digest(self.text(active))])


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def copied_at(config_map: Json) -> float | None:
    """When we copied the only config to the key `default`, in seconds since 1970; None if that key is not ours."""
    seconds, _, digest = _annotations(config_map).get(COPY_ANNOTATION, "").partition(" ")
    is_ours = digest == _digest((config_map.get("data") or {}).get(NAMED_KEY, ""))
    return float(seconds) if is_ours else None


def foreign_configs(config_map: Json) -> dict[str, str]:
    """The texts of the ConfigMap without ours, by key."""
    ours = {NAMED_KEY} if copied_at(config_map) is not None else set()
    data = config_map.get("data") or {}
    return {key: text for key, text in data.items() if key not in ours and not key.startswith(KEY_PREFIX)}


def key_without_label(configs: Collection[str], source: PluginConfigMap) -> str | None:
    """The key of a node without the label, as the config-manager finds it; "" is an empty config, None an error."""
    if source.default:
        return source.default
    for fallback in source.fallbacks:
        if fallback == "named" and NAMED_KEY in configs:
            return NAMED_KEY
        if fallback == "single" and len(configs) == 1:
            return next(iter(configs))
        if fallback == "empty":
            return ""
    return None


def hidden_key(config_map: Json, source: PluginConfigMap) -> str | None:
    """The key that nodes without the label lose while ours are there; None if they keep it."""
    configs = foreign_configs(config_map)
    key = key_without_label(configs, source)
    return key if key and key != key_without_label({*configs, KEY_PREFIX}, source) else None


def fallback_problem(config_map: Json, source: PluginConfigMap) -> str | None:
    """Why our keys would leave nodes without a config, even with a key `default`; None if they would not."""
    key = hidden_key(config_map, source)
    if key is None or key_without_label([key, KEY_PREFIX, NAMED_KEY], source) == NAMED_KEY:
        return None
    return (
        f"nodes without the label take {key}, the only key of {source.namespace}/{source.name}, and would take another "
        f"config once it has ours; install the plugin with config.default: {key}"
    )


def _patch(data: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> Json:
    return ({"data": data} if data else {}) | ({"metadata": {"annotations": annotations}} if annotations else {})


def patch_to_add(
    config_map: Json, digest: str, texts: Mapping[str, str], source: PluginConfigMap, now_seconds: float
) -> Json:
    """The patch that adds keys and notes that the node of this digest needs them; empty if nothing is missing."""
    data, user = config_map.get("data") or {}, USER_ANNOTATION_PREFIX + digest
    changed = {key: text for key, text in texts.items() if data.get(key) != text}
    notes = {} if user in _annotations(config_map) else {user: "true"}
    if copied_at(config_map) is None and (key := hidden_key(config_map, source)) is not None:
        changed[NAMED_KEY] = data[key]
        notes[COPY_ANNOTATION] = f"{now_seconds:.0f} {_digest(data[key])}"
    return _patch(changed, notes)


def patch_to_remove(config_map: Json, digest: str, nodes: Collection[str]) -> Json:
    """The patch that notes that a node does not need the keys any more; the last node removes them.

    `nodes` are the digests of the cluster's nodes, since a node that has left the cluster needs no keys.
    """
    annotations = _annotations(config_map)
    users = [name for name in annotations if name.startswith(USER_ANNOTATION_PREFIX)]
    if any(USER_ANNOTATION_PREFIX + node in users for node in nodes if node != digest):
        return _patch({}, {user: None for user in users if user == USER_ANNOTATION_PREFIX + digest})
    ours = (config_map.get("data") or {}).keys() - foreign_configs(config_map).keys()
    return _patch(dict.fromkeys(ours), dict.fromkeys([*users, *({COPY_ANNOTATION} & annotations.keys())]))
