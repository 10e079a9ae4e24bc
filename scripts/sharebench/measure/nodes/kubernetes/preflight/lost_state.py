"""What a run finds or leaves on the node of a cluster that no run restores, and what keeps it from the node."""

from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import KEY_PREFIX
from sharebench.measure.nodes.kubernetes.access.device_plugin.state import unready_reasons
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import CONFIG_LABEL, labels_of
from sharebench.measure.nodes.kubernetes.node import ClusterNode


def state_lines(node: ClusterNode, is_beginning: bool = False) -> tuple[str | None, str | None]:
    """What a run has left without its saved state, and else which of NVIDIA's pods do not run; None for nothing.

    At the beginning also another run that no Lease shows. The pods may have been so before. Raises NodeError.
    """
    other = _other_run(node) if is_beginning else None
    lost = other or _lost_state(node.cluster.read_node())
    return lost, None if lost else _unready(node)


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
    # With another access the node may be without them.
    if "device-plugin" not in node.cluster.options["accesses"]:
        return None
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
