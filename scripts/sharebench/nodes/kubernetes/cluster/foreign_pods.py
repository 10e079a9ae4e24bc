"""Foreign GPU pods on the node: they would share the GPU with the tenants, and block a switch of the plugin."""

import time
from collections.abc import Iterable

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json, pod_path

# All our objects carry it, with the digest of the node as its value.
OWNER_LABEL = "sharebench/node"
# Objects that a state of the node keeps have it too; they outlast its cells.
HELD_LABEL = "sharebench/held"
ENDED_PHASES = ("Succeeded", "Failed")
MOST_LISTED = 5
POLL_SECONDS = 1.0


# Resources of GPUs by the beginning of their names, and annotations by which KAI's pods ask for a part of one.
GPU_RESOURCE_PREFIXES = ("nvidia.com/", "volcano.sh/vgpu")
SHARE_ANNOTATIONS = ("gpu-fraction", "gpu-memory")


def _asks_for_gpu(container: Json) -> bool:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(name.startswith(GPU_RESOURCE_PREFIXES) for name in asked)


def gpu_pods(pods: Iterable[Json], namespace: str) -> list[Json]:
    """The foreign pods that hold a GPU resource or a resource claim and have not ended.

    Tenants in another namespace than ours are foreign, too: this run does not sweep them.
    """
    found = []
    for pod in pods:
        spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
        containers = [*spec["containers"], *(spec.get("initContainers") or [])]
        has_share = any(name in SHARE_ANNOTATIONS for name in pod["metadata"].get("annotations") or {})
        holds = any(map(_asks_for_gpu, containers)) or bool(spec.get("resourceClaims")) or has_share
        is_ours = OWNER_LABEL in labels and pod["metadata"]["namespace"] == namespace
        if holds and not is_ours and pod.get("status", {}).get("phase") not in ENDED_PHASES:
            found.append(pod)
    return found


def listed(pods: Iterable[Json]) -> str:
    """Namespace and name of each, at most MOST_LISTED of them."""
    names = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def refusal(pods: Iterable[Json]) -> str:
    """The message that refuses a node which these pods use."""
    return (
        f"foreign GPU pods run on the node: {listed(pods)}; "
        "wait for them, move them, or let them be evicted (kubernetes.drain: true)"
    )


def drain(api: Api, pods: list[Json], deadline_seconds: float) -> None:
    """Evict the pods and wait until they are gone; budgets are respected. Raises NodeError for what does not go."""
    belong = [
        pod
        for pod in pods
        if any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or [])
    ]
    if belong:
        raise NodeError(f"DaemonSets recreate evicted GPU pods, remove them first: {listed(belong)}")
    deadline = time.monotonic() + deadline_seconds
    left = list(pods)
    while left:
        for pod in left:
            _evict(api, pod)
        left = [pod for pod in left if _is_there(api, pod)]
        if left and time.monotonic() > deadline:
            raise NodeError(f"GPU pods did not go within {deadline_seconds:g} s after their eviction: {listed(left)}")
        if left:
            time.sleep(POLL_SECONDS)


def _is_there(api: Api, pod: Json) -> bool:
    found = api.find(pod_path(pod))
    return found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]


def _evict(api: Api, pod: Json) -> None:
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    body["deleteOptions"] = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    try:
        api.create(f"{pod_path(pod)}/eviction", body)
    except ApiRefused as refused:
        # Gone already, or another pod under its name; a budget that forbids it now may allow it later.
        if refused.status not in (404, 409, 429):
            raise
