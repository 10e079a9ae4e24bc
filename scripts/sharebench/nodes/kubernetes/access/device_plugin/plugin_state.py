"""The device plugin's part of the saved state: capture it, and compare the node with it."""

from __future__ import annotations

from typing import TypedDict

from sharebench.nodes.kubernetes.access.device_plugin import keys, mig_instances, mig_manager
from sharebench.nodes.kubernetes.access.device_plugin.mig_manager import MigState
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.labels import (
    CONFIG_LABEL,
    MPS_LABEL,
    REPLICAS_LABEL,
    SHARING_LABEL,
    allocatable,
)

SHOWN_LABELS = (SHARING_LABEL, REPLICAS_LABEL, MPS_LABEL)


class ConfigMapName(TypedDict):
    """A ConfigMap of the cluster."""

    namespace: str
    name: str


class PluginState(TypedDict):
    """What the device plugin's node was like before the first change."""

    label: str | None
    """Value of the config label; None where it was absent."""
    shown: dict[str, str | None]
    """The labels that follow from the config, by name."""
    allocatable: dict[str, int]
    """GPU resources, by name."""
    configs: ConfigMapName
    """The plugin's ConfigMap."""
    memory_mib: int | None
    """Memory of the whole GPU, where a label told it."""
    mig: MigState


def capture(node: Json, namespace: str, name: str) -> PluginState:
    """The node's state now; `namespace` and `name` are those of the plugin's ConfigMap."""
    labels = node["metadata"].get("labels", {})
    return {
        "label": labels.get(CONFIG_LABEL),
        "shown": {label: labels.get(label) for label in SHOWN_LABELS},
        "allocatable": allocatable(node),
        "configs": {"namespace": namespace, "name": name},
        "memory_mib": mig_instances.memory_mib(labels),
        "mig": capture_mig(node),
    }


def capture_mig(node: Json) -> MigState:
    """The part of the state that is about MIG, with the instances that the node shows."""
    return mig_manager.capture(node, mig_instances.shown(mig_manager.labels_of(node)))


def label_patch(node: Json, saved: PluginState) -> Json | None:
    """The patch that restores the config label, absence as absence.

    None where somebody else has set it since: that is theirs.
    """
    current = node["metadata"].get("labels", {}).get(CONFIG_LABEL)
    if current is not None and not current.startswith(keys.PREFIX):
        return None
    return {"metadata": {"labels": {CONFIG_LABEL: saved["label"]}}}


def differences(node: Json, saved: PluginState) -> list[str]:
    """How the node still differs from its saved state, a line each."""
    labels = node["metadata"].get("labels", {})
    # Instances of somebody else's have labels and resources of their own.
    is_theirs = mig_manager.is_theirs(node, saved["mig"])
    wanted = {CONFIG_LABEL: saved["label"], **({} if is_theirs else saved["shown"])}
    found = [
        f"label {name} is {labels.get(name) or 'absent'}, not {value or 'absent'}"
        for name, value in wanted.items()
        if labels.get(name) != value
    ]
    # A node without any was being changed, or broken: there is nothing to restore.
    if not is_theirs and saved["allocatable"] and allocatable(node) != saved["allocatable"]:
        found.append(f"allocatable is {allocatable(node)}, not {saved['allocatable']}")
    instances_now, instances_then = dict(mig_instances.shown(labels)), saved["mig"]["layout"]
    if not is_theirs and instances_now != instances_then:
        found.append(f"label nvidia.com/mig-*.count is {instances_now or 'absent'}, not {instances_then or 'absent'}")
    return found
