"""What the device plugin's node was like before the first change, and what of it is not restored yet."""

from __future__ import annotations

from typing import Any

from sharebench.nodes.kubernetes.access.device_plugin import keys, mig_instances, mig_manager
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.labels import (
    CONFIG_LABEL,
    MPS_LABEL,
    REPLICAS_LABEL,
    SHARING_LABEL,
    allocatable,
)

SHOWN_LABELS = (SHARING_LABEL, REPLICAS_LABEL, MPS_LABEL)


def noted(node: Json, namespace: str, name: str) -> dict[str, Any]:
    """The device plugin's note: the config label, what the node shows with it, and where the plugin's ConfigMap is."""
    labels = node["metadata"].get("labels", {})
    return {
        "label": labels.get(CONFIG_LABEL),
        "shown": {label: labels.get(label) for label in SHOWN_LABELS},
        "allocatable": allocatable(node),
        "configs": {"namespace": namespace, "name": name},
        "memory_mib": mig_instances.memory_mib(labels),
        "mig": mig_note(node),
    }


def mig_note(node: Json) -> dict[str, Any]:
    """The part of the device plugin's note that is about MIG, with the instances that the node shows."""
    return mig_manager.noted(node) | {"layout": dict(mig_instances.shown(mig_manager.labels_of(node)))}


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
    instances_now, instances_then = dict(mig_instances.shown(labels)), original["mig"]["layout"]
    if not is_theirs and instances_now != instances_then:
        found.append(f"label nvidia.com/mig-*.count is {instances_now or 'absent'}, not {instances_then or 'absent'}")
    return found
