"""Our keys in a ConfigMap that all nodes of the cluster read: who needs them, and the last one removes them.

Who needs them is noted on the ConfigMap itself, in the same change as the keys, and only if nobody else has changed it
since it was read. So no run takes away what another one, on another node, has just come to rely on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.access.device_plugin.keys import PREFIX
from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json

# With the digest of a node behind it: a run there needs the keys.
USER_ANNOTATION_PREFIX = "sharebench/used-by-"
# Keys of our names that somebody had made before the first of us came.
PRIOR_KEYS_ANNOTATION = "sharebench/keys-before"
ATTEMPTS = 10


def _notes(config_map: Json) -> dict[str, str]:
    return dict(config_map["metadata"].get("annotations") or {})


def others(config_map: Json, mine: str, nodes: Collection[str]) -> set[str]:
    """Digests of the other nodes whose runs need the keys; `nodes` are those that the cluster has, by digest.

    A node that is gone from the cluster needs nothing, and nobody is going to restore it.
    """
    users = {
        note.removeprefix(USER_ANNOTATION_PREFIX)
        for note in _notes(config_map)
        if note.startswith(USER_ANNOTATION_PREFIX)
    }
    return users & set(nodes) - {mine}


def added(config_map: Json, mine: str, nodes: Collection[str], texts: Mapping[str, str]) -> Json:
    """The patch that brings the keys and notes who needs them; empty where nothing is missing.

    Raises NodeError when a run on another node has other texts under them.
    """
    data, notes = config_map.get("data") or {}, _notes(config_map)
    changed = {key: text for key, text in texts.items() if data.get(key) != text}
    clashing = [key for key in changed if key in data]
    if clashing and others(config_map, mine, nodes):
        raise NodeError(
            f"a run on another node has another config under the key {clashing[0]} of the plugin's ConfigMap; "
            "wait for it to end"
        )
    wanted = {USER_ANNOTATION_PREFIX + mine: "true"}
    if PRIOR_KEYS_ANNOTATION not in notes:
        wanted[PRIOR_KEYS_ANNOTATION] = json.dumps({key: text for key, text in data.items() if key.startswith(PREFIX)})
    missing = {note: text for note, text in wanted.items() if note not in notes}
    patch: Json = {"data": changed} if changed else {}
    return patch | ({"metadata": {"annotations": missing}} if missing else {})


def removed(config_map: Json, mine: str, nodes: Collection[str]) -> Json:
    """The patch after which a node needs the keys no more; the last node restores the ConfigMap of before."""
    data, notes = config_map.get("data") or {}, _notes(config_map)
    if others(config_map, mine, nodes):
        gone = [USER_ANNOTATION_PREFIX + mine] if USER_ANNOTATION_PREFIX + mine in notes else []
        return {"metadata": {"annotations": dict.fromkeys(gone)}} if gone else {}
    before: dict[str, str] = json.loads(notes.get(PRIOR_KEYS_ANNOTATION, "{}"))
    ours = {key for key in data if key.startswith(PREFIX)} | set(before)
    changed = {key: before.get(key) for key in sorted(ours) if data.get(key) != before.get(key)}
    gone = [note for note in notes if note.startswith(USER_ANNOTATION_PREFIX) or note == PRIOR_KEYS_ANNOTATION]
    patch: Json = {"data": changed} if changed else {}
    return patch | ({"metadata": {"annotations": dict.fromkeys(gone)}} if gone else {})


def change(api: Api, path: str, wanted: Callable[[Json], Json]) -> Json:
    """Apply the patch that `wanted` makes of the ConfigMap as it is; again when somebody changed it meanwhile.

    Returns the patch that was applied, empty where nothing was to be changed. Raises NodeError.
    """
    tried: Json = {}
    for _ in range(ATTEMPTS):
        found = api.get(path)
        patch = wanted(found)
        if not patch:
            # After a conflict: the patch before had been applied, and its answer was lost.
            return tried
        metadata = patch.get("metadata", {}) | {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            api.patch(path, patch | {"metadata": metadata})
        except ApiRefused as refused:
            if refused.status == 409:
                tried = patch
                continue
            raise
        return patch
    raise NodeError(f"somebody keeps changing the ConfigMap at {path}: {ATTEMPTS} attempts to change it failed")
