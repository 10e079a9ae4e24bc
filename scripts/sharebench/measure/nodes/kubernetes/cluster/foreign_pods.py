"""Foreign GPU pods on the node. They would share the GPU with the tenants, and block a switch of the plugin."""

from collections.abc import Iterable, Sequence

from sharebench.measure.nodes.kubernetes.cluster.api import Json

# All our objects have this label, with the digest of the node as its value.
OWNER_LABEL = "sharebench/node"
# Objects of the node's state also have this label. They outlast its cells.
HELD_LABEL = "sharebench/held"
# Has the tenant's index on the pod of a server that its client reaches through a Service; the client has the metrics.
SERVER_LABEL = "sharebench/server"
ENDED_PHASES = ("Succeeded", "Failed")
MAX_LISTED = 5
GPU_RESOURCE_PREFIXES = ("nvidia.com/", "volcano.sh/vgpu")
# Pods of KAI request a part of a GPU by these.
SHARE_ANNOTATIONS = ("gpu-fraction", "gpu-memory")


def _requests_gpu(container: Json) -> bool:
    resources = container.get("resources") or {}
    requested = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(name.startswith(GPU_RESOURCE_PREFIXES) for name in requested)


def gpu_pods(pods: Iterable[Json], namespace: str, ended_too: bool = False) -> list[Json]:
    """The foreign pods that hold a GPU resource or a resource claim and have not ended, or have held one.

    Tenants in a namespace other than `namespace` are foreign too, since this run does not sweep them.
    """
    found = []
    for pod in pods:
        spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
        containers = [*spec["containers"], *(spec.get("initContainers") or [])]
        has_share = any(name in SHARE_ANNOTATIONS for name in pod["metadata"].get("annotations") or {})
        has_gpu = any(map(_requests_gpu, containers)) or bool(spec.get("resourceClaims")) or has_share
        is_ours = OWNER_LABEL in labels and pod["metadata"]["namespace"] == namespace
        has_ended = pod.get("status", {}).get("phase") in ENDED_PHASES
        if has_gpu and not is_ours and (ended_too or not has_ended):
            found.append(pod)
    return found


def names(pods: Iterable[Json]) -> list[str]:
    return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in pods]


def refusal_message(pods: Sequence[Json]) -> str:
    """The message that refuses a node with these foreign pods; it names at most MAX_LISTED of them."""
    listed = ", ".join(names(pods[:MAX_LISTED]))
    more = f" and {len(pods) - MAX_LISTED} more" if len(pods) > MAX_LISTED else ""
    return f"foreign GPU pods run on the node: {listed}{more}; wait for them, or have their owners end them"
