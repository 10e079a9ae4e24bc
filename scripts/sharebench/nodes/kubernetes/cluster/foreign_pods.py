"""Foreign GPU pods on the node: they would share the GPU with the tenants, and block a switch of the plugin."""

from collections.abc import Iterable, Sequence

from sharebench.nodes.kubernetes.cluster.api import Json

# All our objects carry it, with the digest of the node as its value.
OWNER_LABEL = "sharebench/node"
# Objects that a state of the node keeps have it too; they outlast its cells.
HELD_LABEL = "sharebench/held"
ENDED_PHASES = ("Succeeded", "Failed")
MOST_LISTED = 5
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


def refusal(pods: Sequence[Json]) -> str:
    """The message that refuses a node which these pods use: namespace and name of each, at most MOST_LISTED of them."""
    metadata = [pod["metadata"] for pod in pods]
    names = ", ".join(f"{each['namespace']}/{each['name']}" for each in metadata[:MOST_LISTED])
    more = f" and {len(pods) - MOST_LISTED} more" if len(pods) > MOST_LISTED else ""
    command = f"kubectl --namespace {metadata[0]['namespace']} delete pod {metadata[0]['name']}"
    return f"foreign GPU pods run on the node: {names}{more}; wait for them, or have their owners end them: {command}"
