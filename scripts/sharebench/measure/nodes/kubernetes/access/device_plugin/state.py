"""A node's states under the device plugin: the expected state, the saved state, and evidence.

No signal is trusted alone. GPU Feature Discovery writes the labels and the kubelet the values, in either order. A
resource that was registered once stays in the node's status with the value 0, and capacity lags behind.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from sharebench.measure.nodes.contract import Evidence, Grant, NodeError, item
from sharebench.measure.nodes.kubernetes.access.base import view_of
from sharebench.measure.nodes.kubernetes.access.device_plugin import keys, mig_instances, mig_manager
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_instances import Partitioning
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_manager import MigState
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import (
    CONFIG_LABEL,
    MPS_LABEL,
    REPLICAS_LABEL,
    SHARING_LABEL,
    InstalledStack,
    allocatable,
    labels_of,
)
from tenant.contract import TenantReport

# First words of problems.
LABEL_PROBLEM, ALLOCATABLE_PROBLEM = "label", "allocatable"
SHOWN_LABELS = (SHARING_LABEL, REPLICAS_LABEL, MPS_LABEL)


@dataclass(frozen=True)
class Expected:
    """The state that a switched node must show."""

    config: str
    sharing: str
    replicas: int
    gpus: int
    instances: Mapping[str, int] | None = None
    """MIG resources that the node must offer; None if its GPU is not partitioned."""
    mig_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def allocatable(self) -> dict[str, int]:
        return {keys.RESOURCE: self.gpus * self.replicas} if self.instances is None else dict(self.instances)

    @property
    def labels(self) -> dict[str, str]:
        return {
            CONFIG_LABEL: self.config,
            SHARING_LABEL: self.sharing,
            REPLICAS_LABEL: str(self.replicas),
            MPS_LABEL: "true" if self.sharing == "mps" else "false",
            **self.mig_labels,
        }


def _label_problems(labels: Mapping[str, str], wanted: Mapping[str, str | None]) -> list[str]:
    return [
        f"{LABEL_PROBLEM} {name} is {labels.get(name) or 'absent'}, not {value or 'absent'}"
        for name, value in wanted.items()
        if labels.get(name) != value
    ]


def state_problems(node: Json, pods: Sequence[Json], installed: InstalledStack, expected: Expected) -> list[str]:
    """One line for each difference from the expected state; `pods` are the node's.

    Plugin and discovery must run in every state, the MPS control daemon only under MPS.
    """
    problems = _label_problems(labels_of(node), expected.labels)
    if (values := allocatable(node)) != expected.allocatable:
        shown, wanted = _format_resources(values) or "nothing", _format_resources(expected.allocatable)
        problems.append(f"{ALLOCATABLE_PROBLEM} is {shown}, not {wanted}")
    daemons: list[str | None] = [*unready_reasons(pods, installed)]
    if expected.sharing == "mps":
        mps = installed.mps
        # The daemon's sidecar may crash repeatedly: in the chart of 0.19 it finds no process to signal.
        missing = "the MPS control daemon has no DaemonSet"
        daemons.append(mps.unready_reason(pods, own_container_only=True) if mps else missing)
    elif installed.mps is not None and installed.mps.pod_of(pods) is not None:
        daemons.append("the MPS control daemon still runs")
    return problems + list(filter(None, daemons))


def unready_reasons(pods: Sequence[Json], installed: InstalledStack) -> list[str]:
    """Why plugin and discovery are not ready on the node of these pods."""
    parts = [each for each in (installed.plugin, installed.discovery) if each is not None]
    return list(filter(None, (each.unready_reason(pods) for each in parts)))


def _format_resources(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))


def is_about_pods(problems: Iterable[str]) -> bool:
    """Whether any of the `state_problems` is about a DaemonSet's pods instead of the node's labels or resources."""
    return any(problem.split()[0] not in (LABEL_PROBLEM, ALLOCATABLE_PROBLEM) for problem in problems)


def evidence(
    expected: Expected,
    partitioning: Partitioning,
    problems: Sequence[str],
    node: Json,
    grants: Sequence[Grant],
    records: Sequence[TenantReport],
) -> Evidence:
    """The record's `evidence`; `problems` are those of the state (`state_problems`) while the tenants still ran.

    Records of the same window from all tenants prove that they ran at the same time.
    """
    labels = labels_of(node)
    found = [item(f"label {name}", wanted, labels.get(name), "node") for name, wanted in expected.labels.items()]
    found.append(item("allocatable", expected.allocatable, allocatable(node), "node"))
    found.append(item("what differs from the state", [], list(problems), "node"))
    views = [view_of(record) for record in records]
    devices = Counter(str(view.get("device")) for view in views)
    groups = Counter(grant.group for grant in grants)
    found.append(item("devices that the tenants were given", len(groups), len(devices), "node"))
    found.append(item("tenants on each device", sorted(groups.values()), sorted(devices.values()), "node"))
    for grant, view in zip(grants, views, strict=False):
        source = f"tenant {grant.index}"
        found.append(item("knows its device", True, view.get("device") is not None, source))
        found.append(item("device is a MIG instance", bool(partitioning.layout), view.get("is_mig"), source))
        under_mps = view.get("mps_pipe") is not None
        found.append(item("has the pipe of an MPS daemon", expected.sharing == "mps", under_mps, source))
        units = labels.get(f"{partitioning.resource_of_group(grant.group)}.multiprocessors")
        if partitioning.layout and units is not None and view.get("sm_count") is not None:
            found.append(item("SMs of its instance", int(units), view["sm_count"], source))
    return found


class PluginState(TypedDict):
    """The device plugin's part of the saved state: the node before our first change."""

    label: str | None
    """Value of the config label; None if it was absent."""
    shown: dict[str, str | None]
    """The labels that depend on the config, by name."""
    allocatable: dict[str, int]
    """GPU resources, by name."""
    configs: dict[str, str]
    """`namespace` and `name` of the plugin's ConfigMap."""
    active: Json
    """Version and flags of the plugin's config (`keys.active_settings`)."""
    memory_mib: int | None
    """Memory of the whole GPU; None if no label has it."""
    mig: MigState
    gpu: NotRequired[str]
    """The GPU that all cells use, of several (`placeholders.parse_gpu`)."""


def _our_label(node: Json) -> list[str]:
    """The node's config label, for messages, if it is ours."""
    label = labels_of(node).get(CONFIG_LABEL, "")
    return [f"label {CONFIG_LABEL}={label}"] if label.startswith(keys.KEY_PREFIX) else []


def _lost_state_message(left: Sequence[str]) -> str:
    return (
        f"someone has removed the node's annotation {saved_state.ANNOTATION}; left of a run: {' and '.join(left)}; "
        "undo it by hand (docs/cluster/security.md, Undo without this tool)"
    )


def lost_state_problem(node: Json) -> str | None:
    """What a run has left on a node without a saved state; None if there is one, or nothing is left."""
    # A run writes the saved state first and removes it last.
    if saved_state.load(node) is not None:
        return None
    taints = [f"taint {each['key']}" for each in node["spec"].get("taints") or [] if each["key"] == reservation.TAINT]
    left = [*_our_label(node), *taints]
    return _lost_state_message(left) if left else None


def capture(node: Json, namespace: str, name: str, active: Json) -> PluginState:
    """The node's present state; `namespace` and `name` are those of the plugin's ConfigMap.

    Raises NodeError if its label is ours, so that the state before our first change is lost.
    """
    if left := _our_label(node):
        raise NodeError(_lost_state_message(left))
    labels = labels_of(node)
    return {
        "label": labels.get(CONFIG_LABEL),
        "shown": {label: labels.get(label) for label in SHOWN_LABELS},
        "allocatable": allocatable(node),
        "configs": {"namespace": namespace, "name": name},
        "active": active,
        "memory_mib": mig_instances.gpu_memory_mib(labels),
        "mig": mig_manager.capture(node),
    }


def label_patch(node: Json, saved: PluginState) -> dict[str, str | None] | None:
    """The config label to restore, with None to remove it; no patch if someone else has set it since.

    A restore that did not end well has set it already.
    """
    current = labels_of(node).get(CONFIG_LABEL)
    is_foreign = current not in (None, saved["label"]) and not _our_label(node)
    return None if is_foreign else {CONFIG_LABEL: saved["label"]}


def restore_problems(node: Json, saved: PluginState) -> list[str]:
    """One line for each difference from the saved state."""
    labels = labels_of(node)
    # MIG instances that someone else has set have other labels and resources.
    if mig_manager.is_set_by_others(node, saved["mig"]):
        return _label_problems(labels, {CONFIG_LABEL: saved["label"]})
    problems = _label_problems(labels, {CONFIG_LABEL: saved["label"], **saved["shown"]})
    # A node without allocatable GPUs was being changed or broken, so there is nothing to restore.
    if saved["allocatable"] and allocatable(node) != saved["allocatable"]:
        problems.append(f"allocatable is {allocatable(node)}, not {saved['allocatable']}")
    now, before = dict(mig_instances.shown_layout(labels)), saved["mig"]["layout"]
    if now != before:
        problems.append(f"label nvidia.com/mig-*.count is {now or 'absent'}, not {before or 'absent'}")
    return problems
