"""The node of a Kubernetes cluster: its facts, its owner, its states, and pods as tenants."""

import hashlib
import sys
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sharebench.core.console import format_count
from sharebench.measure.nodes.contract import (
    DeviceOptions,
    Evidence,
    Grant,
    NodeError,
    Settings,
    State,
    Tenants,
    item,
)
from sharebench.measure.nodes.kubernetes.access.base import Access, GpuDescription, reserved_by, view_of
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_instances
from sharebench.measure.nodes.kubernetes.access.device_plugin.plugin import DevicePluginAccess
from sharebench.measure.nodes.kubernetes.access.device_plugin.state import lost_state_problem
from sharebench.measure.nodes.kubernetes.access.dra.claims_access import DraAccess
from sharebench.measure.nodes.kubernetes.access.static import StaticAccess
from sharebench.measure.nodes.kubernetes.cluster import foreign_pods, pod_monitor, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Api, Json, is_in_cluster
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster, node_pool
from sharebench.measure.nodes.kubernetes.cluster.lease import NodeLease
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import (
    MEMORY_LABEL,
    labeled_memory_mib,
    labels_of,
    parse_quantity,
)
from sharebench.measure.nodes.kubernetes.cluster.observed_gpu import ObservedGpu
from sharebench.measure.nodes.kubernetes.pods import program
from sharebench.measure.nodes.kubernetes.pods.tenants import PodTenants
from sharebench.measure.nodes.kubernetes.pods.watch import sweep
from sharebench.measure.nodes.limits import limits_evidence
from sharebench.measure.nodes.node import Node
from sharebench.model.records.references import device_identity
from sharebench.model.records.types import Host, NodeFacts
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Workload
from tenant.contract import TenantReport, device_digest

if TYPE_CHECKING:
    from sharebench.model.config_nodes import ClusterOptions, NodeOptions, PrometheusOptions

ACCESSES: dict[str, type[Access]] = {"device-plugin": DevicePluginAccess, "static": StaticAccess, "dra": DraAccess}
"""How tenants reach the GPU, by the `access` of their strategy."""


def ended_well(record: TenantReport) -> bool:
    """Whether the tenant of this record has finished its work, instead of being stuck."""
    load, job = record.get("load") or {}, record.get("job")
    is_stuck = load.get("arrival") == "closed" and bool(load.get("censored"))
    return not is_stuck and not (job and job["completion_seconds"] is None)


def _checks_limits(strategy: Strategy) -> bool:
    """Whether evidence compares the strategy's limits with what its tenants see of the GPU."""
    return strategy.mechanism[0] != "mig" and strategy.pod is None


class ClusterNode(Node):
    """One node of a cluster. The access of a strategy does what differs between strategies.

    `options` is the config's `kubernetes` section with what `Study.node_options` adds.
    """

    kind = "kubernetes"
    options: "ClusterOptions"
    state_outlives_run = False
    _current_strategy: Strategy | None = None
    _known_pods: Collection[str] = ()
    """UIDs of the foreign GPU pods that had ended before the cell."""

    @classmethod
    def devices(cls, options: "NodeOptions") -> list[DeviceOptions]:
        section = cast("ClusterOptions", options)
        nodes = node_pool(Api(section["context"]), section["node"])
        products = {mig_instances.whole_product(labels_of(node)) for node in nodes} - {""}
        if len(products) > 1:
            raise NodeError(
                f"the nodes have different GPUs: {', '.join(sorted(products))}; name those of one product, and compare "
                "a study of each"
            )
        return [DeviceOptions({**section, "node": node["metadata"]["name"]}, None) for node in nodes]

    @property
    def identity(self) -> str:
        return device_identity(self.facts())

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster with the node; all accesses share this object."""
        return Cluster(self.options, self.note_phase)

    @cached_property
    def _observed_gpu(self) -> ObservedGpu:
        return ObservedGpu(self.folder)

    @property
    def host(self) -> str:
        return self.cluster.name

    @cached_property
    def gpus(self) -> int:
        return mig_instances.gpu_count(self.cluster.labels()) or int(self._gpu_description.get("gpus", 0))

    @cached_property
    def _gpu_description(self) -> GpuDescription:
        """Facts of the GPU by the study's accesses, for those that the node's labels lack."""
        description: GpuDescription = {}
        for name in reversed(self.cluster.options["accesses"]):
            description.update(self.access(name).describe())
        return description

    # For a cell.

    @property
    def is_mock(self) -> bool:
        """Whether the tenants do not use the GPU, as on a test bed without one."""
        return bool(self.cluster.options["device"] == "cpu")

    def _memory_bytes(self, node: Json) -> int | None:
        memory_mib = mig_instances.gpu_memory_mib(labels_of(node)) or saved_state.memory_mib(node)
        return memory_mib << 20 if memory_mib else self._gpu_description.get("memory_bytes")

    def facts(self) -> NodeFacts:
        """The record's `node` object.

        `device` is the digest of the GPU's UUID, as on a host. Until a slice or a tenant has shown it, and for a GPU
        that tenants do not use, it is `machine`, the digest of the machine's id and the product.
        """
        node = self.cluster.read_node()
        labels, info = labels_of(node), node["status"]["nodeInfo"]
        described = self._gpu_description
        product = (mig_instances.whole_product(labels) or described.get("product", "unknown GPU")).replace("-", " ")
        machine_id = f"{info.get('systemUUID') or info.get('machineID')}/{product}"
        machine = hashlib.sha256(machine_id.encode()).hexdigest()[:16]
        uuid, label = described.get("uuid"), ""
        seen_device = device_digest(uuid) if uuid else self._observed_gpu.device
        if self.is_mock:
            label = f"{'mock GPU' if 'mock' in product.lower() else 'GPU idle'}, CPU work in pods"
        driver = [labels.get(f"nvidia.com/cuda.driver.{part}") for part in ("major", "minor", "rev")]
        plugin = self.cluster.installed.plugin
        return {
            "kind": self.kind,
            "device": machine if self.is_mock else seen_device or machine,
            "product": product,
            "units": parse_quantity(node["status"]["capacity"]["cpu"]) if self.is_mock else None,
            "units_name": "cores" if self.is_mock else "SMs",
            "memory_bytes": self._memory_bytes(node),
            "is_gpu": not self.is_mock,
            "label": label,
            "details": {
                "node": f"node-{self.number or 0}",
                "machine": machine,
                "gpus": self.gpus,
                "driver": ".".join(filter(None, driver)) or described.get("driver"),
                "device_plugin": plugin.version if plugin else None,
                "dra_driver": described.get("dra_driver"),
                "dra_gates": described.get("dra_gates"),
                "kubernetes": info["kubeletVersion"],
                "container_runtime": info["containerRuntimeVersion"],
                "kernel": info["kernelVersion"],
            },
        }

    def host_facts(self) -> Host:
        """The record's `host`, by what the node's kubelet and the labels of node-feature-discovery tell."""
        node = self.cluster.read_node()
        labels, info = labels_of(node), node["status"]["nodeInfo"]
        cpu = [labels.get(f"feature.node.kubernetes.io/cpu-model.{key}") for key in ("vendor_id", "family", "id")]
        return {
            "machine": device_digest(info.get("systemUUID") or info["machineID"]),
            "boot": device_digest(boot) if (boot := info.get("bootID")) else None,
            "cpu": "{} family {} model {}".format(*cpu) if all(cpu) else None,
            "topology": f"{node['status']['capacity']['cpu']} threads, {format_count(self.gpus, 'GPU', 'GPUs')}",
        }

    @cached_property
    def _accesses(self) -> dict[str, Access]:
        return {name: access(self.cluster) for name, access in ACCESSES.items()}

    def access(self, name: str) -> Access:
        return self._accesses[name]

    def access_of(self, strategy: Strategy) -> Access:
        return self._accesses[str(strategy.access)]

    def infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Workload] = ()) -> str | None:
        if (reason := self.access_of(strategy).infeasible(strategy, replicas)) is not None:
            return reason
        if self.is_mock or not _checks_limits(strategy) or strategy.memory_percent is None:
            return None
        if labeled_memory_mib(self.cluster.labels()) is not None or "memory_bytes" in self._gpu_description:
            return None
        return f"the node has no label {MEMORY_LABEL}, without which no memory limit on its GPU can be checked"

    def additions(self, workload: Workload) -> str | None:
        if not workload.is_program:
            return None
        level, said = self.cluster.pod_security, [*program.choices(workload)]
        if (added := program.additions(workload, level)) is not None:
            said.append(f"Pod Security {level} of namespace {self.options['namespace']} adds {added}")
        return "; ".join(said) or None

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        return self.access_of(strategy).grants(strategy, replicas)

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        access = self.access_of(strategy)
        evidence = access.evidence(strategy, grants, records)
        evidence.append(item("foreign GPU pods", [], self._joined_pods(strategy), "node"))
        if not self.is_mock:
            views = [view_of(record) for record in records]
            limits = strategy.tenant_limits(len(grants), 0)
            if _checks_limits(strategy):
                memory_bytes = self._memory_bytes(self.cluster.read_node())
                for grant, view, record in zip(grants, views, records, strict=True):
                    # The SMs and memory of a user's container are not visible from outside.
                    if "measured_by" not in record:
                        source = f"tenant {grant.index}"
                        evidence += limits_evidence(limits, self._observed_gpu.sm_count, memory_bytes, view, source)
            self._observed_gpu.observe(views, limits)
        is_well = all(map(ended_well, records)) and all(each["holds"] for each in evidence)
        if access.runs_mps and "mps" in strategy.mechanism and is_well:
            self.mps_suspect_file(access.name).unlink(missing_ok=True)
        return evidence

    def _joined_pods(self, strategy: Strategy) -> list[str]:
        """Names of the foreign GPU pods since `ensure`, without those by which a scheduler reserves a GPU."""
        companions = strategy.pod.companions if strategy.pod else None
        joined = [
            pod
            for pod in self.cluster.foreign_pods(ended_too=True)
            if pod["metadata"]["uid"] not in self._known_pods and pod["metadata"]["namespace"] != companions
        ]
        return foreign_pods.names(joined)

    def plan(self, strategy: Strategy) -> str:
        return self.access_of(strategy).plan(strategy)

    def tenants(self, spec: Spec, settings: Settings) -> Tenants:
        # A calibration runs on all nodes of a study at once, in one folder.
        name = f"{self.cluster.run_id}/{self.cluster.digest}/{settings['cell_folder']}"
        cell = hashlib.sha256(name.encode()).hexdigest()[:12]
        reach = self.cluster.options["reach"]
        if reach == "auto":
            reach = "pod-ip" if is_in_cluster() else "port-forward"
        access = self.access_of(spec.strategy)
        if access.runs_mps:
            # The daemon is suspect until the tenants' records show that they ended well.
            self.mark_dirty()
        return PodTenants(access, cell, spec, settings, reach)

    # Owning the node.

    @cached_property
    def _lease(self) -> NodeLease:
        plugin = self.cluster.installed.plugin
        # Without a plugin, the saved state keeps out runs in other namespaces.
        namespace = plugin.namespace if plugin else self.cluster.options["namespace"]
        return NodeLease(self.cluster.api, namespace, self.cluster.name)

    def claim(self, run_id: str) -> None:
        """Take the node's Lease and keep it renewed.

        Raises NodeError with the holder's name if another run holds it, or if no access of the study is installed.
        """
        # A node that a dead run has left changed is restored first (`sweep`).
        if saved_state.load(self.cluster.read_own_node()) is None:
            self._refuse_without_access()
        self._lease.acquire(run_id)
        self._lease.keep_renewing(run_id)

    def holder(self) -> str | None:
        """The run that holds the node, for messages; None if no run does. Raises NodeError."""
        return self._lease.holder()

    def _refuse_without_access(self) -> None:
        lacking = [self.access(name).missing() for name in self.cluster.options["accesses"]]
        if all(lacking):
            raise NodeError(str(lacking[0]))

    def release(self) -> None:
        self._lease.release(self.cluster.run_id)

    def add_pod_monitor(self, options: "PrometheusOptions") -> None:
        """Have the Prometheus of an operator scrape the node's tenants until `restore`. Raises NodeError."""
        monitor = pod_monitor.pod_monitor(self.cluster.digest, foreign_pods.OWNER_LABEL, self.cluster.run_id, options)
        pod_monitor.ensure(self.cluster.api, self.cluster.options["namespace"], monitor)

    def _remove_pod_monitor(self, before: Json) -> None:
        run: saved_state.RunFacts = {**self.cluster.run_facts, **saved_state.run_facts(before)}
        if run["pod_monitor"]:
            pod_monitor.remove(self.cluster.api, run["namespace"], self.cluster.digest)

    # States.

    def sweep(self) -> None:
        """Remove a dead run's objects from our namespace, and restore the node if that run left it changed."""
        if self.cluster.saved_state() is not None:
            print("restoring the node, which a run that did not end well has left changed", file=sys.stderr)
        self.restore(is_beginning=True)
        self._refuse_without_access()
        self.cluster.refuse_foreign_pods()

    def _sweep_tenants(self) -> None:
        sweep(self.cluster.api, self.cluster.options["namespace"], self.cluster.owner_selector)
        for name in self.cluster.options["accesses"]:
            self.access(name).clean_up(is_run_over=True)

    def mps_suspect_file(self, access: str) -> Path:
        """The file that marks, for all jobs of a run, that a crashed tenant may have broken the access's MPS daemon.

        A server whose client died may serve the next ones badly (NVIDIA, Multi-Process Service). That is not visible
        outside of the node, so it depends on how the tenants ended. The daemon is restarted before the next cell.
        """
        return self.folder / f"mps_suspect_{access}"

    def mark_dirty(self) -> None:
        """Under MPS, mark the daemon as suspect, so that it is restarted before the next cell that needs it."""
        if self._current_strategy is not None and "mps" in self._current_strategy.mechanism:
            self.mps_suspect_file(self.access_of(self._current_strategy).name).touch()

    def ensure(self, state: State) -> None:
        """Bring the node into the state, after restarting a suspect MPS daemon.

        Raises NodeError, also if someone else has changed or taken the node.
        """
        self._lease.renew(self.cluster.run_id)
        if (problem := lost_state_problem(self.cluster.read_own_node())) is not None:
            raise NodeError(problem)
        self.cluster.refuse_foreign_pods()
        self._known_pods = {pod["metadata"]["uid"] for pod in self.cluster.foreign_pods(ended_too=True)}
        access = self.access_of(state.strategy)
        is_suspect = "mps" in state.strategy.mechanism and self.mps_suspect_file(access.name).exists()
        if is_suspect:
            access.restart_mps()
        if is_suspect or self.current() != state.key or not access.is_in_state(state):
            self._change_state(state)
        if is_suspect:
            self.mps_suspect_file(access.name).unlink(missing_ok=True)
        self._current_strategy = state.strategy

    def restore(self, is_beginning: bool = False) -> bool:
        """Restore the node's saved state; False if nothing of the node was changed.

        Raises NodeError, also if another run holds the node by now, to which the state then belongs.
        """
        self._lease.acquire(self.cluster.run_id)
        before = self.cluster.read_own_node()
        # A job that was stopped while it removed its pods leaves some.
        self._sweep_tenants()
        is_changed = saved_state.load(before) is not None
        if is_changed:
            self._change_state(None)
        else:
            self._write_state(None)
        # A run that was killed has not reported that an MPS daemon, not ours to restart, is suspect.
        for name in () if is_beginning else ACCESSES:
            self.mps_suspect_file(name).unlink(missing_ok=True)
        # Last, so that the node is restored even without the right to remove PodMonitors.
        self._remove_pod_monitor(before)
        return is_changed

    def switch(self, state: State | None) -> None:
        """Save the node's state and set the strategy's; with None restore the saved state. Raises NodeError."""
        saved = self.cluster.saved_state()
        if state is None:
            if saved is not None:
                with self.cluster.reserved(reserved_by(map(self.access, saved))):
                    self._restore_accesses(list(saved))
                self.cluster.write_saved_state(None)
            return
        if saved is None:
            self.cluster.write_saved_state({})
        access = self.access_of(state.strategy)
        self.cluster.reserve(reserved_by(map(self.access, [*(saved or ()), access.name])))
        others = [name for name in saved or {} if name != access.name]
        self._restore_accesses(others)
        if others:
            self.mark_old_state_left()
        access.ensure(state)
        self.cluster.reserve("taint")
        self.cluster.refuse_foreign_pods()

    def _restore_accesses(self, names: Sequence[str]) -> None:
        for name in names:
            saved = self.cluster.saved_state() or {}
            self.access(name).restore(saved[name])
            self.mps_suspect_file(name).unlink(missing_ok=True)
            self.cluster.write_saved_state({other: state for other, state in saved.items() if other != name})
