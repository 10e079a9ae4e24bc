"""Rows of preflight on what is installed and on what the GPU can do, with the command that brings what is missing."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sharebench.core.config_nodes import ClusterOptions
from sharebench.core.console import COLUMNS, wrapped
from sharebench.nodes.kubernetes.access.device_plugin import mig_instances
from sharebench.nodes.kubernetes.access.device_plugin.mig_layouts import CAPABLE_LABEL
from sharebench.nodes.kubernetes.access.device_plugin.mig_manager import map_file
from sharebench.nodes.kubernetes.access.dra import nvidia
from sharebench.nodes.kubernetes.access.dra.claims_access import Dra
from sharebench.nodes.kubernetes.cluster import claims_api, nvidia_stack
from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json
from sharebench.nodes.kubernetes.cluster.nvidia_stack import (
    COUNT_LABEL,
    MEMORY_LABEL,
    compute_capability,
    most_mps_clients,
)
from sharebench.nodes.kubernetes.node import ClusterNode
from sharebench.nodes.kubernetes.preflight.rights import OWN_NAMESPACE
from sharebench.study.study import Study

WIDTH = 26
CLOSE = " " * 6
COMMAND = re.compile(r"\bkubectl ")
HIDDEN = "unknown (we may not look)"
ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
# What the tests ran with.
TESTED_PLUGIN_VERSION = "0.19.3"


class Row(NamedTuple):
    """A line of the report; an empty name continues the row before."""

    name: str
    text: str

    def __str__(self) -> str:
        head, hang = f"  {self.name:{WIDTH}}", " " * (WIDTH + 2)
        lines = wrapped(self.text, head, hang)
        command = COMMAND.search(self.text)
        if command and len(lines) > 1:
            # To be copied: in one line, wherever that begins.
            whole = self.text[command.start() :]
            lines = wrapped(self.text[: command.start()], head, hang)
            lines.append((hang if len(hang + whole) <= COLUMNS else CLOSE) + whole)
        return "\n".join(lines)


@dataclass(frozen=True)
class Survey:
    """A cluster, the node to measure in it, and the study."""

    study: Study
    node: ClusterNode

    @property
    def api(self) -> Api:
        return self.node.cluster.api

    @property
    def installed(self) -> nvidia_stack.Installed:
        return self.node.cluster.installed

    @property
    def options(self) -> ClusterOptions:
        return self.node.cluster.options

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return self.node.cluster.labels()

    def look(self, path: str) -> Json | None:
        """What is at the path, {} where there is nothing; None where the API server does not let us look."""
        try:
            return self.api.find(path) or {}
        except ApiRefused:
            return None

    def presence(self, path: str) -> str:
        """`installed` if the API server serves the path, with something in it if that is a list."""
        found = self.look(path)
        if found is None:
            return HIDDEN
        return "installed" if found and found.get("items", True) else "not installed"


Component = Callable[[Survey], Iterable[Row]]
"""What preflight shows of one component."""


def _part(part: nvidia_stack.Part | None) -> str:
    if part is None:
        return "not installed"
    manager = "GPU operator" if part.policy else "standalone"
    return f"{part.version} ({manager}, {part.namespace}/{part.name})"


def operator(survey: Survey) -> Iterator[Row]:
    found = survey.look(nvidia_stack.CLUSTER_POLICIES)
    if found is None:
        yield Row("GPU operator", HIDDEN)
    elif not found.get("items"):
        yield Row("GPU operator", "not installed")
    for policy in (found or {}).get("items", ()):
        version = (policy["metadata"].get("labels") or {}).get("app.kubernetes.io/version", "version unknown")
        state = (policy.get("status") or {}).get("state", "unknown")
        yield Row("GPU operator", f"{version} (ClusterPolicy {policy['metadata']['name']}, state {state})")


def device_plugin(survey: Survey) -> Iterator[Row]:
    plugin, configs = survey.installed.plugin, survey.installed.configs
    yield Row("device plugin", _part(plugin))
    if plugin is None:
        if _uses_plugin(survey):
            yield Row("", "install it, or the GPU operator: docs/cluster/install.md, The device plugin")
        return
    if plugin.version.removeprefix("v") != TESTED_PLUGIN_VERSION:
        yield Row("", f"another version than {TESTED_PLUGIN_VERSION}, with which this was tested")
    if configs is not None:
        yield Row("  its ConfigMap", f"{configs.namespace}/{configs.name}, default {configs.default or 'not set'}")
    else:
        yield Row("  its ConfigMap", "none")
        yield Row("", nvidia_stack.lacks_config_map(plugin))


def config_maps(node: ClusterNode) -> dict[str, str]:
    """Names of the ConfigMaps that a run may change, as `rights.Right.object` calls them."""
    configs, manager = node.cluster.installed.configs, node.cluster.installed.mig_manager
    found = {"configs": configs.name} if configs else {}
    return found | ({"mig-map": map_file(manager, node.cluster.name).name} if manager else {})


def discovery(survey: Survey) -> Iterator[Row]:
    found = survey.installed
    yield Row("GPU Feature Discovery", _part(found.discovery))
    if found.discovery is None and found.plugin is not None:
        yield Row("", "a value of the plugin's chart, gfd.enabled=true, as in config/cluster/plugin-values.yaml")
    yield Row("Node Feature Discovery", survey.presence("/apis/nfd.k8s-sigs.io/v1alpha1"))


def mps(survey: Survey) -> Iterator[Row]:
    yield Row("MPS control daemon", _part(survey.installed.mps))


def mig_manager(survey: Survey) -> Iterator[Row]:
    found, is_allowed = survey.installed.mig_manager, "mig" in survey.options["may_change"]
    yield Row("MIG manager", _part(found))
    if found is None and is_allowed:
        yield Row("", "part of the GPU operator: migManager.enabled=true")
    elif found is not None and not is_allowed:
        yield Row("", "used only if it may be: kubernetes: {may_change: [mig]}")


def dra_driver(survey: Survey) -> Iterator[Row]:
    if "dra" not in survey.options["accesses"]:
        yield Row("DRA driver", survey.presence("/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com"))
        return
    dra = survey.node.access("dra")
    assert isinstance(dra, Dra)
    try:
        why = dra.missing()
    except ApiRefused:
        why = HIDDEN
    if why is not None:
        yield Row("DRA driver", why)
        return
    count, known = len(dra.devices), dra.describe()
    version = known["dra_driver"] or "version unknown"
    yield Row("DRA driver", f"{version} ({nvidia.NAME}, {claims_api.VERSION}, {count} device(s) offered)")
    yield Row("  its gates", f"on: {', '.join(known['dra_gates'] or []) or 'none'}")


def prometheus(survey: Survey) -> Iterator[Row]:
    yield Row("Prometheus operator", survey.presence("/apis/monitoring.coreos.com/v1"))


def _uses_plugin(survey: Survey) -> bool:
    return "device-plugin" in survey.options["accesses"]


def gpu(survey: Survey) -> Iterator[Row]:
    """What the node's GPUs are and can do, by the labels of GPU Feature Discovery."""
    labels, plugin = survey.labels, survey.installed.plugin
    count = labels.get(COUNT_LABEL)
    known = survey.node.access("dra").describe() if "dra" in survey.options["accesses"] else None
    if count is None and known:
        memory = known["memory_bytes"]
        size = f"{memory >> 20} MiB" if memory else "memory unknown"
        what = f"{known['gpus']} x {known['product']}, {size}, driver {known['driver'] or 'unknown'}"
        yield Row("GPU", f"{what}, by the slices of the DRA driver")
        return
    if count is None:
        yield Row("GPU", f"unknown: the node has no label {COUNT_LABEL}, so that nothing is known of its GPUs")
        return
    compute, most = compute_capability(labels), most_mps_clients(labels)
    said = [
        f"{count} x {mig_instances.whole_product(labels) or 'unknown'}",
        f"{labels.get(MEMORY_LABEL, '?')} MiB",
        f"compute capability {'.'.join(map(str, compute)) or 'unknown'}",
        f"driver {labels.get('nvidia.com/cuda.driver-version.full') or 'unknown'}",
    ]
    yield Row("GPU", ", ".join(said))
    if survey.node.gpus > 1 and plugin is not None and _uses_plugin(survey):
        yield Row(
            "", f"device plugin {plugin.version} spreads tenants over the GPUs: placeholder pods hold all but one"
        )
        yield Row("", "claims (config/kubernetes_dra.yaml) need none; no GPU of the node may be in use")
    yield Row("  MPS", f"up to {most or 'an unknown number of'} tenants")
    is_capable = labels.get(CAPABLE_LABEL) == "true"
    use = "in use now" if mig_instances.is_partitioned(labels) else "possible, not in use now"
    yield Row("  MIG", use if is_capable else "not possible")


def namespace(survey: Survey) -> Iterator[Row]:
    """What the tenants' namespace demands of pods; ours satisfy the strictest."""
    name = survey.options["namespace"]
    found = survey.look(f"/api/v1/namespaces/{name}")
    if found is None:
        yield Row(f"namespace {name}", HIDDEN)
    elif not found:
        command = (
            "kubectl apply -k config/cluster/tenants" if name == OWN_NAMESPACE else f"kubectl create namespace {name}"
        )
        yield Row(f"namespace {name}", f"does not exist: {command}")
    else:
        level = (found["metadata"].get("labels") or {}).get(ENFORCE_LABEL, "not set")
        yield Row(f"namespace {name}", f"Pod Security {level}; the tenants satisfy restricted")
