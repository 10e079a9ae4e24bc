"""What a run finds or leaves on the node of a cluster that no run restores, and what keeps it from the node."""

from typing import Literal

from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import KEY_PREFIX
from sharebench.measure.nodes.kubernetes.access.device_plugin.state import unready_reasons
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import CONFIG_LABEL, labels_of
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.node import Node

Moment = Literal["begin", "back", "end"]


def lost_state_line(node: Node, moment: Moment = "back") -> str | None:
    """What a run has left without its saved state; None if nothing. Raises NodeError.

    At the beginning also another run that no Lease shows, and at the end which of NVIDIA's pods do not run.
    """
    if not isinstance(node, ClusterNode):
        return None
    other = _other_run(node) if moment == "begin" else None
    lost = other or _lost_state(node.cluster.read_node())
    return lost or (_unready(node) if moment == "end" else None)


def _other_run(node: ClusterNode) -> str | None:
    if node.cluster.installed.plugin is not None:
        return None
    pods = (pod for pod in node.cluster.pods() if labels_of(pod).get(OWNER_LABEL) == node.cluster.digest)
    others = {str(pod["metadata"]["namespace"]) for pod in pods} - {node.options["namespace"]}
    if not others:
        return None
    return (
        f"a run in namespace {min(others)} has pods on the node, and without a device plugin the Lease of a node is in "
        "the tenants' namespace; wait for it to end, or set kubernetes.namespace to that"
    )


def _unready(node: ClusterNode) -> str | None:
    found = unready_reasons(node.cluster.pods(), node.cluster.installed)
    return f"the node's labels and GPUs are as they were, but {'; '.join(found)}: see the logs" if found else None


def _lost_state(node: Json) -> str | None:
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
