"""The node as it was found: noted on the node itself before the first change, and brought back from there.

A note on the node outlives the driver, so that any later run can undo what a dead one left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sharebench.nodes.kubernetes import instances, keys, mig_manager
from sharebench.nodes.kubernetes.readiness import (
    CONFIG_LABEL,
    MPS_LABEL,
    REPLICAS_LABEL,
    SHARING_LABEL,
    allocatable,
)

Json = Mapping[str, Any]

ANNOTATION = "sharebench/original-state"
TAINT = "sharebench/measuring"
SHOWN_LABELS = (SHARING_LABEL, REPLICAS_LABEL, MPS_LABEL)


def noted(node: Json, namespace: str, name: str) -> dict[str, Any]:
    """The device plugin's note: the config label, what the node shows with it, and where the plugin's ConfigMap is."""
    labels = node["metadata"].get("labels", {})
    return {
        "label": labels.get(CONFIG_LABEL),
        "shown": {label: labels.get(label) for label in SHOWN_LABELS},
        "allocatable": allocatable(node),
        "configs": {"namespace": namespace, "name": name},
        "memory_mib": instances.memory_mib(labels),
        "mig": mig_note(node),
    }


def mig_note(node: Json) -> dict[str, Any]:
    """The part of the device plugin's note that is about MIG, with the instances that the node shows."""
    return mig_manager.noted(node) | {"layout": dict(instances.shown(mig_manager.labels_of(node)))}


def text(noted: Json | None) -> str | None:
    """The annotation with the notes of all accesses, by their names; None removes it."""
    return None if noted is None else json.dumps(noted, sort_keys=True)


def of(node: Json) -> dict[str, Any] | None:
    """The notes on the node, by access; None where nothing of it was changed."""
    written = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    found: dict[str, Any] | None = json.loads(written) if written else None
    return found


def of_access(node: Json, access: str) -> dict[str, Any] | None:
    """The note of one access; None where it has changed nothing."""
    found: dict[str, Any] | None = (of(node) or {}).get(access)
    return found


def memory_mib(node: Json) -> int | None:
    """Memory of the whole GPU as it was shown before MIG cut it; None where nothing was noted."""
    return next((each["memory_mib"] for each in (of(node) or {}).values() if "memory_mib" in each), None)


def label_patch(node: Json, original: Json) -> dict[str, Any] | None:
    """The patch that brings the config label back, absence as absence.

    None where somebody else has set it since: that is theirs.
    """
    current = node["metadata"].get("labels", {}).get(CONFIG_LABEL)
    if current is not None and not current.startswith(keys.PREFIX):
        return None
    return {"metadata": {"labels": {CONFIG_LABEL: original["label"]}}}


def unrestored(node: Json, original: Json) -> list[str]:
    """What still differs from the node as it was found, in words."""
    labels = node["metadata"].get("labels", {})
    # Instances of somebody else's have labels and resources of their own.
    is_theirs = mig_manager.is_theirs(node, original["mig"])
    wanted = {CONFIG_LABEL: original["label"], **({} if is_theirs else original["shown"])}
    found = [
        f"label {name} is {labels.get(name) or 'absent'}, not {value or 'absent'}"
        for name, value in wanted.items()
        if labels.get(name) != value
    ]
    # A node that was found without any was on its way somewhere, or broken: there is nothing to get back to.
    if not is_theirs and original["allocatable"] and allocatable(node) != original["allocatable"]:
        found.append(f"allocatable is {allocatable(node)}, not {original['allocatable']}")
    instances_now, instances_then = dict(instances.shown(labels)), original["mig"]["layout"]
    if not is_theirs and instances_now != instances_then:
        found.append(f"label nvidia.com/mig-*.count is {instances_now or 'absent'}, not {instances_then or 'absent'}")
    return found


def taints_without_ours(node: Json) -> list[Json]:
    """The node's taints but ours."""
    return [taint for taint in node["spec"].get("taints") or [] if taint["key"] != TAINT]


def others_in_use(nodes: Sequence[Json], name: str) -> bool:
    """Whether another node is being measured too, whose runs may need what all nodes share."""
    return any(of(node) is not None for node in nodes if node["metadata"]["name"] != name)
