"""How other pods are kept away from a node: by our taint while cells are measured, by a cordon during a switch.

A switch restarts pods of DaemonSets, which do not tolerate our taint. The DaemonSet controller has them tolerate every
cordon. Our taint with the effect PreferNoSchedule, which keeps none of them away, marks a cordon as ours, until someone
else lifts it and sets one. To cordon a node that is cordoned already writes nothing, so that cannot be seen.
"""

from typing import Literal

from sharebench.measure.nodes.kubernetes.cluster.api import CLIENT_NAME, Json

TAINT = "sharebench/measuring"
CORDON_TAINT = "node.kubernetes.io/unschedulable"
"""The taint that Kubernetes sets on a cordoned node."""
Reserved = Literal["cordon", "taint"]
EFFECTS = {"cordon": "PreferNoSchedule", "taint": "NoSchedule"}


def our_taint(by: Reserved) -> Json:
    return {"key": TAINT, "value": "true", "effect": EFFECTS[by]}


def _taints(node: Json) -> list[Json]:
    return list(node["spec"].get("taints") or [])


def is_our_cordon(node: Json) -> bool:
    """Whether a cordon of the node, if there is one, is ours."""
    is_marked = any((each["key"], each["effect"]) == (TAINT, EFFECTS["cordon"]) for each in _taints(node))
    return is_marked and not any(
        each.get("manager") != CLIENT_NAME and "f:unschedulable" in each.get("fieldsV1", {}).get("f:spec", {})
        for each in node["metadata"].get("managedFields") or ()
    )


def is_cordoned_by_others(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable")) and not is_our_cordon(node)


def foreign_taints(node: Json) -> list[Json]:
    """The node's taints without ours, and without that of our cordon."""
    ours = {TAINT, CORDON_TAINT} if is_our_cordon(node) else {TAINT}
    return [each for each in _taints(node) if each["key"] not in ours]


def patch(node: Json, by: Reserved | None) -> Json:
    """The patch that reserves the node, or with None gives it back; empty if nothing changes.

    A cordon by someone else stays, and serves as ours.
    """
    by_others, is_ours = is_cordoned_by_others(node), is_our_cordon(node)
    wanted = None if by == "cordon" and by_others else by
    if wanted == "cordon" and is_ours and node["spec"].get("unschedulable"):
        return {}
    taints = [*foreign_taints(node), *([our_taint(wanted)] if wanted else [])]
    spec: Json = {} if taints == _taints(node) else {"taints": taints or None}
    if wanted == "cordon":
        spec["unschedulable"] = True
    elif is_ours:
        spec["unschedulable"] = None
    return {"spec": spec} if spec else {}
