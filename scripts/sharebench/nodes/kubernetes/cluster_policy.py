"""The GPU operator's ClusterPolicy: given a ConfigMap to switch by where it names none, and put back.

Without such a ConfigMap the operator starts no config-manager, and a node's label changes nothing. Setting one rolls
the DaemonSets of the whole cluster, so that it needs `kubernetes.may_change: [clusterpolicy]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharebench.nodes.kubernetes.api import Api, ApiRefused, config_map_path
from sharebench.nodes.kubernetes.installed import Installed

Json = Mapping[str, Any]

PATH = "/apis/nvidia.com/v1/clusterpolicies"
# A name that nobody else would choose: whoever finds it in a ClusterPolicy knows who put it there.
CONFIG_MAP = "sharebench-measuring"
DEFAULT = "default"
UNSHARED = "version: v1\n"
PERMISSION = "clusterpolicy"
PLAN = "a ClusterPolicy that names no ConfigMap names one of ours meanwhile, which rolls the plugin on all nodes"


def find(api: Api) -> Json | None:
    """The cluster's ClusterPolicy, of which the operator heeds one; None where there is none. Raises ApiRefused."""
    items: list[Json] = (api.find(PATH) or {}).get("items", [])
    return items[0] if items else None


def config_of(policy: Json) -> Json | None:
    """What it says of the plugin's ConfigMap: `name` and `default`, either of which may be missing."""
    found: Json | None = ((policy.get("spec") or {}).get("devicePlugin") or {}).get("config")
    return found


def command(policy: Json, namespace: str) -> str:
    """What a person types to have the ClusterPolicy name a ConfigMap in the operator's namespace."""
    return (
        f"kubectl create configmap sharebench-configs --namespace {namespace} --from-literal=default='version: v1' && "
        f"kubectl patch clusterpolicies.nvidia.com/{policy['metadata']['name']} --type merge "
        '-p \'{"spec":{"devicePlugin":{"config":{"name":"sharebench-configs","default":"default"}}}}\''
    )


def refusal(api: Api, options: Json, namespace: str) -> str | None:
    """Why the operator's plugin in that namespace, which has no ConfigMap, cannot be given one; None if it can be."""
    try:
        policy = find(api)
    except ApiRefused:
        return (
            "the operator's device plugin has no ConfigMap to switch by, and we may not look at the ClusterPolicy: "
            f"make cluster-install WITH=clusterpolicy PLUGIN_NAMESPACE={namespace} APPLY=1"
        )
    if policy is None:
        return "the operator's device plugin has no ConfigMap to switch by, and there is no ClusterPolicy to name one"
    name = policy["metadata"]["name"]
    if named := (config_of(policy) or {}).get("name"):
        return f"ClusterPolicy {name} names the ConfigMap {named}, which the device plugin does not read (yet)"
    if PERMISSION not in options["may_change"]:
        return (
            f"ClusterPolicy {name} names no ConfigMap to switch by; allow it for the run "
            f"(kubernetes: {{may_change: [{PERMISSION}]}}), or set it for good: {command(policy, namespace)}"
        )
    return None


def noted(policy: Json) -> dict[str, Any]:
    """What is written down of a ClusterPolicy before it is changed; absence as None."""
    plugin = (policy.get("spec") or {}).get("devicePlugin")
    return {"name": policy["metadata"]["name"], "plugin": plugin is not None, "config": config_of(policy)}


def note_of_others(notes: Sequence[Json | None]) -> Json | None:
    """What another node's run has written down, where the ConfigMap in force is one of ours already."""
    return next((note["policy"] for note in notes if note and note.get("policy")), None)


def change(api: Api, note: Json, namespace: str) -> None:
    """Make a ConfigMap of ours in the operator's namespace, and have the ClusterPolicy name it. Raises ApiRefused."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": namespace},
        "data": {DEFAULT: UNSHARED},
    }
    try:
        api.create(f"/api/v1/namespaces/{namespace}/configmaps", body)
    except ApiRefused as refused:
        # One that a run left that was killed.
        if refused.status != 409:
            raise
    config = {"name": CONFIG_MAP, "default": DEFAULT}
    api.patch(f"{PATH}/{note['name']}", {"spec": {"devicePlugin": {"config": config}}})


def put_back(api: Api, note: Json) -> None:
    """Bring the ClusterPolicy back to what was noted; one that names another ConfigMap by now is somebody else's."""
    policy = api.find(f"{PATH}/{note['name']}")
    if policy is None or (config_of(policy) or {}).get("name") != CONFIG_MAP:
        return
    config = note["config"]
    plugin: dict[str, Any] | None = {"config": None}
    if config is not None:
        # A merge removes what is None, and leaves what is not named.
        plugin = {"config": dict.fromkeys(("name", "default")) | dict(config)}
    elif not note["plugin"]:
        plugin = None
    api.patch(f"{PATH}/{note['name']}", {"spec": {"devicePlugin": plugin}})


def remove_config_map(api: Api, namespace: str) -> None:
    """Remove our ConfigMap; only when no pod reads it any more."""
    api.delete(config_map_path(namespace, CONFIG_MAP))


def awaited(installed: Installed, is_ours: bool) -> list[str]:
    """What of the operator's reaction is still to come, in words: whether the plugin reads our ConfigMap, or not."""
    reads = installed.configs is not None and installed.configs.name == CONFIG_MAP
    if reads == is_ours:
        return []
    return [f"the operator has not {'given the device plugin' if is_ours else 'taken back'} the ConfigMap {CONFIG_MAP}"]
