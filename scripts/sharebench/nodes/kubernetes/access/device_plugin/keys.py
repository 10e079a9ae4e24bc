"""Our keys in the device plugin's ConfigMap: their names and texts, who needs them, and the last one removes them.

All nodes of the cluster read the ConfigMap. Who needs the keys is noted on it, in the same change as the keys, and only
if it is as it was read. So no run takes away what another one, on another node, has just come to rely on.
"""

import json
from collections.abc import Collection, Iterable, Mapping

import yaml

from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster.api import Json

PREFIX = "sharebench-"
RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
# The plugin takes no fewer: `replicas: 1` is a parse error.
FEWEST_REPLICAS = 2
# With the digest of a node behind it: a run there needs the keys.
USER_ANNOTATION_PREFIX = "sharebench/used-by-"
# Keys of our names that somebody had made before the first of us came.
PRIOR_KEYS_ANNOTATION = "sharebench/keys-before"


def key_of(strategy: Strategy, replicas: int, most: int) -> tuple[str, int]:
    """Key of the config under which `replicas` tenants run, and how many replicas of each GPU it makes.

    `most` is the study's largest number of tenants under the strategy: time-slicing configured for it serves every
    smaller number too, which saves switches; MPS caps each client at an even share, and so needs a config per number.
    """
    mechanism = strategy.mechanisms[-1]
    if strategy.mechanisms[0] == "mig":
        raise ValueError("its key depends on the instances: mig_key")
    if mechanism == "exclusive":
        return f"{PREFIX}exclusive", 1
    count = max(FEWEST_REPLICAS, replicas, most if mechanism == "time-slicing" else 0)
    return f"{PREFIX}{'ts' if mechanism == 'time-slicing' else 'mps'}-{count}", count


def mig_key(is_single: bool, replicas: int, profiles: Iterable[str]) -> str:
    """Key of the config that offers MIG instances: as GPUs if `is_single`, else by profile.

    Each of those of `profiles` is offered to `replicas` tenants.
    """
    key = f"{PREFIX}mig-{'single' if is_single else 'mixed'}"
    if replicas == 1:
        return key
    names = () if is_single else (name.replace("+", ".") for name in dict.fromkeys(profiles))
    return "-".join((key, "ts", str(replicas), *names))


def mechanism_of(key: str) -> str:
    """What the plugin and its labels call the sharing under one of our keys: none, time-slicing or mps."""
    words = key.removeprefix(PREFIX).split("-")
    if words[0] == "mig":
        return "time-slicing" if "ts" in words else "none"
    return {"exclusive": "none", "ts": "time-slicing", "mps": "mps"}[words[0]]


def render(key: str, base: str) -> str:
    """Text of the config under one of our keys, with the version and the flags of the active config (`base`)."""
    found: Json = yaml.safe_load(base) or {}
    flags: Json = dict(found.get("flags") or {})
    mechanism, words = mechanism_of(key), key.removeprefix(PREFIX).split("-")
    if words[0] == "mig":
        flags["migStrategy"] = words[1]
    elif mechanism == "mps" and flags.get("migStrategy") == "mixed":
        # The plugin refuses the two together, also where no GPU is partitioned.
        flags["migStrategy"] = "none"
    config: Json = {"version": found.get("version", "v1")} | ({"flags": flags} if flags else {})
    if mechanism != "none":
        at = words.index("ts") if "ts" in words else 0
        names = [f"{MIG_RESOURCE_PREFIX}{each}" for each in words[at + 2 :]] or [RESOURCE]
        resources = [{"name": name, "replicas": int(words[at + 1])} for name in names]
        section: Json = {"renameByDefault": False, "resources": resources}
        config["sharing"] = {"timeSlicing" if mechanism == "time-slicing" else "mps": section}
    return yaml.safe_dump(config, sort_keys=False)


def _notes(config_map: Json) -> dict[str, str]:
    return dict(config_map["metadata"].get("annotations") or {})


def _is_needed_elsewhere(notes: Mapping[str, str], mine: str, nodes: Collection[str]) -> bool:
    """Whether runs of other nodes need the keys; `nodes` are those that the cluster has, by digest.

    A node that is gone from the cluster needs nothing, and no run is going to restore it.
    """
    return any(USER_ANNOTATION_PREFIX + node in notes for node in nodes if node != mine)


def _patch(data: Mapping[str, str | None], notes: Mapping[str, str | None]) -> Json:
    return ({"data": data} if data else {}) | ({"metadata": {"annotations": notes}} if notes else {})


def added(config_map: Json, mine: str, nodes: Collection[str], texts: Mapping[str, str]) -> Json:
    """The patch that brings the keys and notes who needs them; empty where nothing is missing.

    Raises NodeError when a run on another node has other texts under them.
    """
    data, notes = config_map.get("data") or {}, _notes(config_map)
    changed = {key: text for key, text in texts.items() if data.get(key) != text}
    clashing = [key for key in changed if key in data]
    if clashing and _is_needed_elsewhere(notes, mine, nodes):
        raise NodeError(
            f"a run on another node has another config under the key {clashing[0]} of the plugin's ConfigMap; "
            "wait for it to end"
        )
    wanted = {USER_ANNOTATION_PREFIX + mine: "true"}
    if PRIOR_KEYS_ANNOTATION not in notes:
        wanted[PRIOR_KEYS_ANNOTATION] = json.dumps({key: text for key, text in data.items() if key.startswith(PREFIX)})
    return _patch(changed, {note: text for note, text in wanted.items() if note not in notes})


def removed(config_map: Json, mine: str, nodes: Collection[str]) -> Json:
    """The patch after which a node needs the keys no more; the last node restores the ConfigMap of before."""
    data, notes = config_map.get("data") or {}, _notes(config_map)
    if _is_needed_elsewhere(notes, mine, nodes):
        return _patch({}, {note: None for note in notes if note == USER_ANNOTATION_PREFIX + mine})
    before: dict[str, str] = json.loads(notes.get(PRIOR_KEYS_ANNOTATION, "{}"))
    ours = {key for key in data if key.startswith(PREFIX)} | set(before)
    changed = {key: before.get(key) for key in sorted(ours) if data.get(key) != before.get(key)}
    gone = [note for note in notes if note.startswith(USER_ANNOTATION_PREFIX) or note == PRIOR_KEYS_ANNOTATION]
    return _patch(changed, dict.fromkeys(gone))
