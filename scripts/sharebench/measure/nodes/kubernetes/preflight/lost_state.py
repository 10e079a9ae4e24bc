"""What forbids a run to touch a node: another run's pods, or changes whose saved state someone has removed."""

from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import KEY_PREFIX
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import CONFIG_LABEL, labels_of
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.node import Node


def lost_state_line(node: Node) -> str | None:
    """What a run has left on the node of a cluster without its saved state; None if nothing. Raises NodeError."""
    return _line(node.cluster.read_node()) if isinstance(node, ClusterNode) else None


def other_run_line(node: Node) -> str | None:
    """Another namespace's run on the node of a cluster, whose Lease is not ours; None if none. Raises NodeError."""
    if not isinstance(node, ClusterNode) or node.cluster.installed.plugin is not None:
        return None
    pods = (pod for pod in node.cluster.pods() if labels_of(pod).get(OWNER_LABEL) == node.cluster.digest)
    others = {str(pod["metadata"]["namespace"]) for pod in pods} - {node.options["namespace"]}
    if not others:
        return None
    return (
        f"a run in namespace {min(others)} has pods on the node, and without a device plugin the Lease of a node is in "
        "the tenants' namespace; wait for it to end, or set kubernetes.namespace to that"
    )


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
