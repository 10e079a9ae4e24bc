"""Our configs in the device plugin's ConfigMap: their keys and texts, who needs them, and the last one removes them.

All nodes of the cluster read the ConfigMap. Who needs the keys is noted on it, in the same change as the keys, and only
if it is as it was read. So no run takes away what another one, on another node, has just come to rely on. A key ends in
the digest of its text, so that runs on nodes with other flags have keys of their own.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import yaml

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.cluster.api import Json

KEY_PREFIX = "sharebench-"
RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
# The plugin takes no fewer: `replicas: 1` is a parse error.
MIN_REPLICAS = 2
# With the digest of a node behind it: a run there needs the keys.
USER_ANNOTATION_PREFIX = "sharebench/used-by-"
SECTIONS = {"time-slicing": "timeSlicing", "mps": "mps"}


@dataclass(frozen=True)
class PluginConfig:
    """A config of the plugin, without the flags that are active on a node anyway (`active_of`)."""

    sharing: str
    """As the labels say it: none, time-slicing or mps."""
    replicas: int = 1
    """Tenants that one of the resources is offered to."""
    mig_strategy: str | None = None
    """None where no GPU is partitioned."""
    resources: tuple[str, ...] = (RESOURCE,)

    def text(self, active: Json) -> str:
        flags = dict(active.get("flags") or {})
        if self.mig_strategy is not None:
            flags["migStrategy"] = self.mig_strategy
        elif self.sharing == "mps" and flags.get("migStrategy") == "mixed":
            # The plugin refuses the two together, also where no GPU is partitioned.
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


def config_for_strategy(strategy: Strategy, replicas: int, most: int) -> PluginConfig:
    """The config under which `replicas` tenants share a whole GPU.

    `most` is the study's largest number of tenants under the strategy: time-slicing configured for it serves every
    smaller number too, which saves switches; MPS caps each client at an even share, and so needs a config per number.
    """
    mechanism = strategy.mechanisms[-1]
    if mechanism == "exclusive":
        return PluginConfig("none")
    return PluginConfig(mechanism, max(MIN_REPLICAS, replicas, most if mechanism == "time-slicing" else 0))


def active_settings(text: str) -> Json:
    """The version and the flags of a config of the plugin, which ours keep."""
    found: Json = yaml.safe_load(text) or {}
    return {key: found[key] for key in ("version", "flags") if found.get(key)}


def _annotations(config_map: Json) -> Mapping[str, str]:
    return config_map["metadata"].get("annotations") or {}


def _patch(data: Mapping[str, str | None], notes: Mapping[str, str | None]) -> Json:
    return ({"data": data} if data else {}) | ({"metadata": {"annotations": notes}} if notes else {})


def patch_to_add(config_map: Json, mine: str, texts: Mapping[str, str]) -> Json:
    """The patch that brings the keys and notes who needs them; empty where nothing is missing."""
    data, note = config_map.get("data") or {}, USER_ANNOTATION_PREFIX + mine
    changed = {key: text for key, text in texts.items() if data.get(key) != text}
    return _patch(changed, {} if note in _annotations(config_map) else {note: "true"})


def patch_to_remove(config_map: Json, mine: str, nodes: Collection[str]) -> Json:
    """The patch after which a node needs the keys no more; the last node removes them.

    `nodes` are those that the cluster has, by digest: one that is gone needs nothing.
    """
    data, notes = config_map.get("data") or {}, _annotations(config_map)
    users = [note for note in notes if note.startswith(USER_ANNOTATION_PREFIX)]
    if any(USER_ANNOTATION_PREFIX + node in users for node in nodes if node != mine):
        return _patch({}, {note: None for note in users if note == USER_ANNOTATION_PREFIX + mine})
    return _patch({key: None for key in data if key.startswith(KEY_PREFIX)}, dict.fromkeys(users))
