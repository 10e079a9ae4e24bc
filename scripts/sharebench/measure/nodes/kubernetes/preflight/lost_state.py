"""What a run leaves on the node of a cluster that no run restores, and which of NVIDIA's pods do not run."""

from sharebench.measure.nodes.kubernetes.access.device_plugin.state import lost_state_problem, unready_reasons
from sharebench.measure.nodes.kubernetes.node import ClusterNode


def state_lines(node: ClusterNode) -> tuple[str | None, str | None]:
    """What a run has left without its saved state, and else which of NVIDIA's pods do not run; None for nothing.

    The pods may have been so before. Raises NodeError.
    """
    lost = lost_state_problem(node.cluster.read_node())
    return lost, None if lost else _unready(node)


def _unready(node: ClusterNode) -> str | None:
    # With another access the node may be without them.
    if "device-plugin" not in node.cluster.options["accesses"]:
        return None
    found = unready_reasons(node.cluster.pods(), node.cluster.installed)
    return f"the node's labels and GPUs are as they were, but {'; '.join(found)}: see the logs" if found else None
