"""A user's manifest (`manifest` of a workload): the pod in it, without what a strategy gives or another one would.

It is read when the config is checked, so that what cannot run is refused before a cluster is touched.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

# What Kubernetes demands of a container's fields, as far as pods are made of them.
TEXT_LISTS = ("command", "args")
NAMED_LISTS = {"env": ("name", str), "ports": ("containerPort", int), "volumeMounts": ("name", str)}
MAPPINGS = ("resources", "securityContext")

TENANT_CONTAINER = "tenant"
"""Name that the measured container gets."""
CLIENT_CONTAINER = "client"
"""Name of our container next to it."""
CLIENT_PORT = 18765
"""Port of our client. Servers may use any of the common ports."""
CODE_VOLUME = "sharebench-code"
"""Volume with our code; no user's has this name."""
GPU_RESOURCES = re.compile(r"(nvidia\.com|volcano\.sh)/.*")
COUNTED_RESOURCES = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.*)")
# Variables by which strategies choose and limit a device.
STRATEGY_VARIABLES = re.compile(
    r"CUDA_MPS_.*|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|CUDA_DEVICE_(MEMORY|SM)_LIMIT.*|GPU_CORE_UTILIZATION_POLICY"
)
# Labels and annotations by which KAI, Run:ai, HAMi and Volcano place a pod.
SCHEDULER_NAMES = re.compile(
    r"gpu-(fraction|memory).*|(kai\.scheduler|runai|hami\.io|volcano\.sh|scheduling\.volcano\.sh|nvidia\.com)/.*"
    r"|scheduling\.k8s\.io/group-name"
)


class ManifestError(Exception):
    """The manifest cannot be measured; one line."""


def split_pod(path: str) -> tuple[Json, Json]:
    """The pod without its measured container, and that container, both without their share of the GPU.

    Raises ManifestError.
    """
    template = _template(path)
    containers, inits = _containers(template, "containers"), _containers(template, "initContainers")
    for where, fields in (
        ("the pod", template["spec"]),
        *((str(each.get("name")), each) for each in containers + inits),
    ):
        if problem := next(_type_problems(fields), None):
            raise ManifestError(f"{path}: {where}: {problem}")
    measured = next(filter(_takes_gpu, containers), containers[0])
    others = [each for each in containers if each is not measured]
    if also := [str(each.get("name")) for each in others if _takes_gpu(each)]:
        raise ManifestError(
            f"{path}: one container is measured, and {', '.join(also)} takes a GPU, too; have it take none"
        )
    for name, amount in _gpus(measured).items():
        if COUNTED_RESOURCES.fullmatch(name) and str(amount) not in ("0", "1"):
            raise ManifestError(f"{path}: the container asks for {amount} of {name}, and a tenant has one; ask for 1")
    for each in (*others, *inits):
        if each.get("name") in (TENANT_CONTAINER, CLIENT_CONTAINER):
            raise ManifestError(f"{path}: a second container has our name {each['name']!r}; give it another")
    spec: Json = dict(template["spec"])
    if spec.get("hostNetwork"):
        raise ManifestError(f"{path}: with hostNetwork all tenants would have the same port; remove it")
    for port in (port for each in (*containers, *inits) for port in each.get("ports") or ()):
        if port.get("hostPort"):
            raise ManifestError(f"{path}: with hostPort only one tenant would start on a node; remove it")
        if port["containerPort"] == CLIENT_PORT:
            raise ManifestError(f"{path}: containerPort {CLIENT_PORT} is our client's; give it another")
    volumes = {str(each.get("name")) for each in _mappings(spec.get("volumes"))}
    if CODE_VOLUME in volumes:
        raise ManifestError(f"{path}: a volume has our name {CODE_VOLUME!r}; give it another")
    for each in (*containers, *inits):
        mounted = {str(mount.get("name")) for mount in _mappings(each.get("volumeMounts"))}
        if lost := ", ".join(sorted(mounted - volumes)):
            raise ManifestError(
                f"{path}: {each.get('name')} mounts {lost}, and the pod has no such volume (no claim is made of "
                "volumeClaimTemplates); add one to its volumes, such as an emptyDir"
            )
    # A pod that was read from a cluster has the name of its node.
    for key in ("resourceClaims", "schedulerName", "topologySpreadConstraints", "nodeName"):
        spec.pop(key, None)
    if isinstance(affinity := spec.get("affinity"), Mapping):
        # One pod per node is what sharing a GPU is not.
        spec["affinity"] = {key: value for key, value in affinity.items() if key != "podAntiAffinity"}
    spec["containers"] = list(map(_without_share, others))
    if inits:
        spec["initContainers"] = list(map(_without_share, inits))
    metadata = {
        key: {name: value for name, value in given.items() if not SCHEDULER_NAMES.fullmatch(str(name))}
        for key in ("labels", "annotations")
        if (given := _mapping(_mapping(template.get("metadata")).get(key)))
    }
    return {"metadata": metadata, "spec": spec}, _without_share(measured)


def _type_problems(fields: Json) -> Iterator[str]:
    """What Kubernetes would refuse of the fields of a container or a pod. Values of variables may be secret."""
    for key in (key for key in TEXT_LISTS if fields.get(key) is not None):
        if not isinstance(fields[key], list):
            yield f"{key} is not a list; write one, such as [--port, '8000']"
            return
        for word in (json.dumps(each, default=str) for each in fields[key] if not isinstance(each, str)):
            yield f"{key} has {word}, which is not text; write '{word}'"
    for key, (name, kind) in NAMED_LISTS.items():
        given = fields.get(key) or []
        if not isinstance(given, list) or not all(isinstance(_mapping(each).get(name), kind) for each in given):
            example = "- name: …" if kind is str else f"- {name}: 8000"
            yield f"{key} is not a list whose items have a {name}; write {example}"
        elif unquoted := [each for each in given if key == "env" and not isinstance(each.get("value"), str | None)]:
            yield f"env: the value of {unquoted[0]['name']} is not text; put it between quotes"
    for key in MAPPINGS:
        if not isinstance(fields.get(key) or {}, dict):
            yield f"{key} is not a mapping; write its keys below it"


def strategy_variables(pod: object) -> Iterator[str]:
    """Names of the variables of strategies that an overlay of pods sets."""
    if isinstance(pod, dict) and STRATEGY_VARIABLES.fullmatch(str(pod.get("name", ""))):
        yield str(pod["name"])
    for value in pod.values() if isinstance(pod, dict) else pod if isinstance(pod, list) else ():
        yield from strategy_variables(value)


def _template(path: str) -> Json:
    """The one pod template whose container takes a GPU, else the only one."""
    try:
        documents = list(yaml.safe_load_all(Path(path).read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ManifestError(f"{path} is not YAML; render a chart first (helm template), and give its output") from None
    found = [pair for document in documents for pair in _pod_templates(document)]
    taking = [pair for pair in found if any(map(_takes_gpu, _containers(pair[1], "containers")))]
    if len(chosen := taking or found) == 1:
        return chosen[0][1]
    if not found:
        raise ManifestError(f"{path} has neither a Pod nor an object with a pod template, such as a Deployment")
    what = "take a GPU" if taking else "could be measured"
    raise ManifestError(f"{path}: {', '.join(name for name, _ in chosen)} {what}; leave one in the file")


def _pod_templates(document: object) -> Iterator[tuple[str, Json]]:
    """Name and pod template of each object; lists, as `kubectl get` prints them, are followed."""
    thing = _mapping(document)
    spec = _mapping(thing.get("spec"))
    for item in thing.get("items") or () if str(thing.get("kind", "")).endswith("List") else ():
        yield from _pod_templates(item)
    if thing.get("kind") == "CronJob":
        spec = _mapping(_mapping(spec.get("jobTemplate")).get("spec"))
    template = thing if thing.get("kind") == "Pod" else _mapping(thing.get("template") or spec.get("template"))
    if _containers(template, "containers"):
        yield f"{thing.get('kind')} {_mapping(thing.get('metadata')).get('name', 'without a name')}", template


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _containers(template: Json, key: str) -> list[Json]:
    return _mappings(_mapping(template.get("spec")).get(key))


def _gpus(container: Json) -> Json:
    """The GPU resources of a container and their amounts."""
    resources = _mapping(container.get("resources"))
    amounts = {**_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}
    return {name: amount for name, amount in amounts.items() if GPU_RESOURCES.fullmatch(name)}


def _takes_gpu(container: Json) -> bool:
    return bool(_gpus(container) or _mapping(container.get("resources")).get("claims"))


def _without_share(container: Json) -> Json:
    """The container without GPUs, claims, and the variables of strategies."""
    kept = dict(container)
    if "resources" in kept:
        resources = _mapping(kept["resources"])
        kept["resources"] = {
            part: {name: amount for name, amount in given.items() if not GPU_RESOURCES.fullmatch(name)}
            for part in ("limits", "requests")
            if (given := _mapping(resources.get(part)))
        }
    if isinstance(kept.get("env"), list):
        kept["env"] = [
            each for each in kept["env"] if not STRATEGY_VARIABLES.fullmatch(str(_mapping(each).get("name", "")))
        ]
    return kept
