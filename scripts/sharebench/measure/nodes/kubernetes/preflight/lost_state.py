"""A node that a run has changed and whose saved state someone has removed: no run can restore it."""

from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import KEY_PREFIX
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import CONFIG_LABEL, labels_of
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.node import Node


def lost_state_line(node: Node) -> str | None:
    """What a run has left on the node of a cluster without its saved state; None if nothing. Raises NodeError."""
    return _line(node.cluster.read_node()) if isinstance(node, ClusterNode) else None


def _line(node: Json) -> str | None:
    # A run writes the saved state first and removes it last.
    if saved_state.load(node) is not None:
        return None
    label = labels_of(node).get(CONFIG_LABEL, "")
    left = [f"label {CONFIG_LABEL}={label}"] if label.startswith(KEY_PREFIX) else []
    left += [f"taint {taint['key']}" for taint in node["spec"].get("taints") or [] if taint["key"] == reservation.TAINT]
    if not left:
        return None
    return (
        f"someone has removed the node's annotation {saved_state.ANNOTATION}; left of a run: {' and '.join(left)}; "
        "undo it by hand (docs/cluster/security.md, Undo without this tool)"
    )
