"""Which node of the cluster is measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster.api import Json

GPU_LABEL = "nvidia.com/gpu.present"


def chosen(nodes: Sequence[Json], wanted: str, offering: Collection[str] = ()) -> Json:
    """The node by its name, or the only one with a GPU for `auto`; DRA drivers offer theirs on nodes `offering`.

    Raises NodeError.
    """
    if wanted != "auto":
        found = [node for node in nodes if node["metadata"]["name"] == wanted]
        if not found:
            raise NodeError(f"the cluster has no node {wanted!r}; set kubernetes.node to one that it has")
        return found[0]
    found = [
        node
        for node in nodes
        if node["metadata"]["name"] in offering
        or node["metadata"].get("labels", {}).get(GPU_LABEL) == "true"
        or any(name.startswith("nvidia.com/") for name in node.get("status", {}).get("capacity", {}))
    ]
    if len(found) != 1:
        names = ", ".join(sorted(node["metadata"]["name"] for node in found))
        what = f"{len(found)} nodes have GPUs ({names})" if found else "no node has a GPU"
        raise NodeError(f"{what}; name the one to measure: kubernetes.node")
    return found[0]
