"""NVIDIA's mig-manager, which partitions the node's GPUs as a label of the node requests.

Its state label proves nothing. An old `success` stays until the manager writes `pending`, which it skips for a layout
that exists already. It ignores a label value that it has seen last. `success` comes before the plugin is back. A pod
that does not end keeps it `pending`, finally forever. After a failure, plugin and labels may stay away.
"""

import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple, NotRequired, TypedDict

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_instances, mig_layouts
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_layouts import (
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    Layout,
    LayoutMap,
)
from sharebench.measure.nodes.kubernetes.cluster.api import Json, config_map_path, pod_path
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import StackComponent, labels_of, variables_of

CHANGING_STATES = ("pending", "rebooting")
PAUSED_VALUE = "paused-for-mig-change"
# Node labels of the components that it stops during a change. DaemonSets of the operator select nodes by them.
DEPLOY_LABELS = tuple(
    f"nvidia.com/gpu.deploy.{component}"
    for component in ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm")
)
CLIENT_APPS = ("nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-dcgm")
FILE_VARIABLE = "CONFIG_FILE"
POLL_SECONDS = 0.25


class MapFile(NamedTuple):
    namespace: str
    name: str
    key: str


def map_file(manager: StackComponent, node_name: str) -> MapFile:
    """The ConfigMap and key of the manager's map: the mounted one, else the one that it generates for the node."""
    file = PurePosixPath(variables_of(manager.own_container).get(FILE_VARIABLE, ""))
    for mount in manager.own_container.get("volumeMounts") or []:
        for volume in manager.pod_spec.get("volumes") or []:
            folder = PurePosixPath(mount["mountPath"])
            if volume["name"] == mount["name"] and volume.get("configMap") and folder in file.parents:
                return MapFile(manager.namespace, volume["configMap"]["name"], str(file.relative_to(folder)))
    return MapFile(manager.namespace, f"{node_name}-mig-config", "config.yaml")


class MigState(TypedDict):
    """The part of the saved state that a change of the layout changes."""

    set: str | None
    """Entry that we set last; None before our first change."""
    set_before: NotRequired[list[str]]
    """Entries that we set before it: until the label follows `set`, it has the last of these."""
    labels: dict[str, str | None]
    """The manager's labels before our first change, None for one that was absent."""
    layout: Layout
    """The instances before our first change."""


def capture(node: Json) -> MigState:
    labels = labels_of(node)
    saved = {name: labels.get(name) for name in (MIG_CONFIG_LABEL, MIG_STATE_LABEL, *DEPLOY_LABELS)}
    return {"set": None, "labels": saved, "layout": dict(mig_instances.shown_layout(labels))}


def _paused_labels(labels: Mapping[str, str]) -> list[str]:
    return [name for name in DEPLOY_LABELS if labels.get(name) == PAUSED_VALUE]


def refuse_unsettled(node: Json) -> None:
    """Raise NodeError if the present layout could not be restored."""
    labels = labels_of(node)
    state = labels.get(MIG_STATE_LABEL, "absent")
    if state in CHANGING_STATES:
        raise NodeError(f"the MIG manager is changing the node: {MIG_STATE_LABEL} is {state}; wait for it")
    if paused := _paused_labels(labels):
        raise NodeError(
            f"a MIG change has left parts of NVIDIA's stack away: {paused[0]} is {PAUSED_VALUE}; "
            f"kubectl label node --overwrite {node['metadata']['name']} {paused[0]}=true"
        )
    if MIG_CONFIG_LABEL in labels and state != "success":
        raise NodeError(
            f"the node's MIG layout is not what its label says: {MIG_STATE_LABEL} is {state}; "
            f"set {MIG_CONFIG_LABEL} to a layout that succeeds first"
        )


def is_set_by_others(node: Json, saved: MigState) -> bool:
    """Whether someone else has set the layout since we did."""
    if saved["set"] is None:
        return False
    ours = {saved["set"], *saved.get("set_before", [])}
    return labels_of(node).get(MIG_CONFIG_LABEL) not in (None, *ours, saved["labels"][MIG_CONFIG_LABEL])


class MigManager:
    def __init__(self, cluster: Cluster, component: StackComponent) -> None:
        self._cluster = cluster
        self._component = component
        self._file = map_file(component, cluster.name)

    def layout_map(self, gpus: int, memory_mib: int | None) -> LayoutMap:
        """The manager's map, for a node with this number of GPUs of this memory. Raises NodeError."""
        namespace, name, key = self._file
        location = f"key {key} of ConfigMap {namespace}/{name}"
        data = (self._cluster.api.find(config_map_path(namespace, name)) or {}).get("data") or {}
        return LayoutMap(location, mig_layouts.parse_entries(data.get(key, ""), location), gpus, memory_mib)

    def set_layout(self, config: str, other_labels: Mapping[str, str | None]) -> None:
        """Set the layout of an entry, and other labels in the same patch, and wait for the manager's success.

        Raises NodeError after the paused components are resumed and the label is removed.
        """
        self._await_earlier_change()
        if self._cluster.labels().get(MIG_CONFIG_LABEL) == config:
            # The manager ignores a value that does not change.
            self._cluster.set_labels({MIG_CONFIG_LABEL: None})
            time.sleep(POLL_SECONDS)
        began = time.monotonic()
        # The old state is removed, so any state seen later is new.
        self._cluster.set_labels({MIG_STATE_LABEL: None, **other_labels, MIG_CONFIG_LABEL: config})
        pending: float | None = None
        while (state := self._cluster.labels().get(MIG_STATE_LABEL)) != "success":
            seconds = time.monotonic() - began
            if state == "pending" and pending is None:
                pending = seconds
            if state == "failed":
                self._recover()
                raise NodeError(f"the MIG manager failed to set {config} (is something using the GPU?); see its log")
            if seconds > self._cluster.options["switch_seconds"]:
                raise NodeError(self._abandon(config, state, seconds))
            time.sleep(POLL_SECONDS)
        # After an earlier failure, components stay paused if the layout exists already.
        self._resume()
        if pending is not None:
            self._cluster.note_phase("pending", pending)
        self._cluster.note_phase("cut", time.monotonic() - began - (pending or 0.0))

    def _await_earlier_change(self) -> None:
        """Wait for the end of an earlier change, and abort one that hangs. Raises NodeError for a reboot."""
        deadline = time.monotonic() + self._cluster.options["switch_seconds"]
        while (state := self._cluster.labels().get(MIG_STATE_LABEL)) in CHANGING_STATES:
            if time.monotonic() > deadline:
                if state == "rebooting":
                    raise NodeError(f"the MIG manager does not end an earlier change: {MIG_STATE_LABEL} is {state}")
                self._abort()
                return
            time.sleep(POLL_SECONDS)

    def _abandon(self, config: str, state: str | None, seconds: float) -> str:
        """Abort the change unless the node reboots; the message for it."""
        if state == "rebooting":
            return f"the MIG manager reboots the node to set {config}; {MIG_STATE_LABEL} is rebooting"
        staying = [
            pod["metadata"]["name"]
            for pod in self._cluster.pods()
            if (pod["metadata"].get("labels") or {}).get("app") in CLIENT_APPS
        ]
        self._abort()
        if state is None:
            return f"the MIG manager did nothing about {config} within {seconds:.0f} s; see its log"
        why = f"; it waits for pods to end: {', '.join(staying)}" if staying else ""
        return f"the MIG manager was {state} for {seconds:.0f} s with {config}{why}"

    def _abort(self) -> None:
        # The label is removed first, so that the restarted manager finds no layout to set.
        self._cluster.set_labels({MIG_CONFIG_LABEL: None})
        if (pod := self._component.pod_of(self._cluster.pods())) is not None:
            self._cluster.api.delete(pod_path(pod), 0)
        self._recover()

    def _recover(self) -> None:
        """Remove the manager's labels, and resume the components that it paused."""
        self._cluster.set_labels({MIG_CONFIG_LABEL: None, MIG_STATE_LABEL: None})
        self._resume()

    def _resume(self) -> None:
        if paused := _paused_labels(self._cluster.labels()):
            self._cluster.set_labels(dict.fromkeys(paused, "true"))
