"""Strategic merge of a pod's manifest with an overlay, as `kubectl patch` does it."""

from typing import cast

from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.pods import manifest

# Lists whose elements are merged if they have the same value of this key (patchMergeKey of PodSpec).
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
DELETE_DIRECTIVE = {"$patch": "delete"}


def strategic_merge(base: object, patch: object, field: str = "") -> object:
    """Merge a patch into a base: null removes a key, and `$patch: delete` an element of a list."""
    if isinstance(base, dict) and isinstance(patch, dict):
        both = base | {key: strategic_merge(base.get(key), value, key) for key, value in patch.items()}
        return {key: value for key, value in both.items() if value is not None}
    if isinstance(base, list) and isinstance(patch, list) and field in MERGE_KEYS:
        return _merge_by_key(base, patch, MERGE_KEYS[field])
    return strategic_merge({}, patch) if isinstance(patch, dict) else patch


def _merge_by_key(base: list[Json], patch: list[Json], key: str) -> list[object]:
    patches = {each.get(key): each for each in patch}
    kept = [each for each in base if not patches.get(each.get(key), {}).items() >= DELETE_DIRECTIVE.items()]
    known = {each.get(key) for each in base}
    new = [each for each in patch if each.get(key) not in known]
    return [strategic_merge(each, patches.get(each.get(key), {})) for each in kept] + new


def apply_overlay(pod: Json, overlay: Json) -> Json:
    """The pod with the overlay merged in; an overlay for the client also applies to a sidecar, or to nothing."""
    spec = overlay.get("spec") or {}
    clients = [each for each in spec.get("containers") or () if each.get("name") == manifest.CLIENT_CONTAINER]
    if clients and manifest.CLIENT_CONTAINER not in _names(pod, "containers"):
        spec = {**spec, "containers": [each for each in spec["containers"] if each not in clients]}
        if manifest.CLIENT_CONTAINER in _names(pod, "initContainers"):
            spec["initContainers"] = [*(spec.get("initContainers") or ()), *clients]
        overlay = {**overlay, "spec": spec}
    return cast(Json, strategic_merge(pod, overlay))


def client_part(overlay: Json) -> Json:
    """The overlay for the pod of a client alone: without other containers, and what only these mount or claim."""
    spec = {key: value for key, value in (overlay.get("spec") or {}).items() if key != "initContainers"}
    own = [each for each in spec.get("containers") or () if each.get("name") == manifest.CLIENT_CONTAINER]
    mounts = [mount for each in own for kind in ("volumeMounts", "volumeDevices") for mount in each.get(kind) or ()]
    claims = [claim for each in own for claim in (each.get("resources") or {}).get("claims") or ()]
    for key, elements in (("containers", own), ("volumes", mounts), ("resourceClaims", claims)):
        if spec.get(key):
            names = {each.get("name") for each in elements}
            spec[key] = [each for each in spec[key] if each.get("name") in names]
    return {**overlay, "spec": spec}


def _names(pod: Json, kind: str) -> list[str]:
    return [each["name"] for each in pod["spec"].get(kind) or ()]
