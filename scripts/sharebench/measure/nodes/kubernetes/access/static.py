"""A GPU that another scheduler shares, or that is shared already: pods by a template, and nothing is switched.

HAMi, Volcano and KAI are entries of the catalogue, and so is any other stack whose pods request a share.
"""

import time
from collections.abc import Sequence

from sharebench.measure.nodes.contract import Evidence, Grant, NodeError, State, item
from sharebench.measure.nodes.kubernetes.access.base import Access, PodNeeds, view_of
from sharebench.measure.nodes.kubernetes.cluster import saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import conditions_of
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import ENDED_PHASES, OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import (
    MEMORY_LABEL,
    labeled_memory_mib,
    labels_of,
    parse_quantity,
)
from sharebench.measure.nodes.limits import PROBE_BEYOND_BYTES, probe_variables
from sharebench.model.pod_template import PodTemplate
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy, TenantLimits
from tenant.contract import SHOWN_VARIABLE, DeviceView, TenantReport

RELEASE_SECONDS = 60.0
POLL_SECONDS = 1.0


def _parse_count(quantity: str) -> int | None:
    """A quantity of an extended resource; None where it has a placeholder."""
    try:
        return parse_quantity(quantity)
    except ValueError:
        return None


class StaticAccess(Access):
    """Pods made by the template of the strategy's entry."""

    name = "static"
    _companion_namespace: str | None = None

    # What the cluster has.

    def _memory_mib(self) -> int | None:
        return labeled_memory_mib(self.cluster.labels())

    def _memory_bytes(self) -> int | None:
        memory_mib = self._memory_mib()
        return None if memory_mib is None else memory_mib << 20

    def _is_deployment_ready(self, deployment: str) -> bool:
        """Whether a ready pod belongs to a Deployment of that name, in any namespace.

        It is found by its ReplicaSet's name, so the right to list pods is enough.
        """
        pods = self.cluster.api.get(
            "/api/v1/pods", labelSelector="pod-template-hash", fieldSelector="status.phase=Running"
        )["items"]
        for pod in pods:
            replica_set = f"{deployment}-{labels_of(pod).get('pod-template-hash')}"
            owners = [owner["name"] for owner in pod["metadata"].get("ownerReferences") or []]
            if replica_set in owners and conditions_of(pod).get("Ready", {}).get("status") == "True":
                return True
        return False

    def _missing(self, template: PodTemplate) -> str | None:
        deployment = template.deployment
        if deployment is not None and not self._is_deployment_ready(deployment):
            return (
                f"no Deployment {deployment} with a ready pod is in the cluster; install its scheduler, "
                "or name its Deployment (pod.deployment)"
            )
        if template.needs_memory() and self._memory_mib() is None:
            return f"the node has no label {MEMORY_LABEL}, by which MiB are computed; use $memory_percent"
        return None

    def _shortage(self, template: PodTemplate, replicas: int) -> str | None:
        """Which resource the node offers too little of; None if it has enough.

        A stack need not register all its resources: only its scheduler knows HAMi's memory and cores.
        """
        requested = template.resources
        allocatable = self.cluster.read_node()["status"]["allocatable"]
        offered = {name: _parse_count(allocatable[name]) for name in requested if name in allocatable}
        if requested and not any(offered.values()):
            return f"the node offers no {' or '.join(requested)}; its device plugin is not there, or not ready"
        for name, room in offered.items():
            wanted = _parse_count(requested[name])
            if room is not None and wanted is not None and room < wanted * replicas:
                return f"the node offers {room} of {name}, and {replicas} tenants ask for {wanted * replicas}"
        return None

    # For a cell.

    def missing(self) -> str | None:
        """Always None, since each strategy requires its own scheduler (`infeasible`)."""
        return None

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """What the scheduler's stack lacks; its resources are not judged while another access is active."""
        assert strategy.pod is not None
        if (problem := self._missing(strategy.pod)) is not None:
            return problem
        other_accesses = set(saved_state.load(self.cluster.read_node()) or {}) - {self.name}
        return None if other_accesses else self._shortage(strategy.pod, replicas)

    def _unmet(self, state: State) -> str | None:
        assert state.strategy.pod is not None
        return self._missing(state.strategy.pod) or self._shortage(state.strategy.pod, state.replicas or 1)

    def is_in_state(self, state: State) -> bool:
        return self._unmet(state) is None

    def ensure(self, state: State) -> None:
        """Only check that the scheduler's stack is complete, since nothing is set. Raises NodeError."""
        if (problem := self._unmet(state)) is not None:
            raise NodeError(problem)

    def restart_mps(self) -> None:
        """Always raise NodeError, since the daemon is not ours."""
        raise NodeError(
            "tenants of an earlier cell ended badly under an MPS daemon that is not ours to restart, so that it may "
            "serve the next ones badly; have it restarted, then run again"
        )

    def pod_needs(self, spec: Spec, grant: Grant) -> PodNeeds:
        """The template, filled in for this number of tenants."""
        strategy, replicas = spec.strategy, spec.replicas
        limits = strategy.tenant_limits(replicas, grant.index)
        assert strategy.pod is not None
        template = strategy.pod.filled_in(replicas, limits, self._memory_mib())
        self._companion_namespace = template.companions
        environment = dict(template.environment)
        if template.shows:
            environment[SHOWN_VARIABLE] = ",".join(template.shows)
        environment |= probe_variables(limits.memory_bytes(self._memory_bytes()))
        return PodNeeds(
            limits=template.resources,
            annotations=template.annotations,
            labels=template.labels,
            environment=environment,
            scheduler=template.scheduler,
        )

    def clean_up(self, is_run_over: bool = False) -> None:
        """Wait until the scheduler has released the GPU, if it holds it by pods of its own."""
        if self._companion_namespace is None:
            return
        deadline = time.monotonic() + RELEASE_SECONDS
        # Pods that stay belong to foreign pods, which are refused anyway.
        while time.monotonic() < deadline and any(
            pod["metadata"]["namespace"] == self._companion_namespace and pod["status"].get("phase") not in ENDED_PHASES
            for pod in self.cluster.pods()
        ):
            time.sleep(POLL_SECONDS)

    def plan(self, strategy: Strategy) -> str:
        scheduler = strategy.pod and strategy.pod.scheduler
        by = f"the scheduler {scheduler} shares the GPU" if scheduler else "the GPU is shared as the node was found"
        return f"{by}; only a taint is set while it measures, and removed when all cells are measured"

    # Evidence.

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        """Evidence of the pods' scheduler and share, and of what the tenants see, such as a refused allocation.

        Without CUDA in the tenants there is no evidence of memory.
        """
        assert strategy.pod is not None
        limits = strategy.tenant_limits(len(grants), 0)
        template = strategy.pod.filled_in(len(grants), limits, self._memory_mib())
        evidence = self._pod_evidence(template, len(grants))
        views = [view_of(record) for record in records]
        devices = {str(view.get("device")) for view in views}
        parts = strategy.group_count(len(grants))
        evidence.append(item("devices that the tenants were given", parts, len(devices), "node"))
        for index, view in enumerate(views):
            source = f"tenant {index}"
            evidence.append(item("knows its device", True, view.get("device") is not None, source))
            variables = view.get("variables") or {}
            for name, wanted in template.shows.items():
                evidence.append(item(f"variable {name}", wanted, variables.get(name), source))
            evidence += self._memory_evidence(limits, view, source)
        return evidence

    def _pod_evidence(self, template: PodTemplate, replicas: int) -> Evidence:
        ours = [pod for pod in self.cluster.pods() if labels_of(pod).get(OWNER_LABEL) == self.cluster.digest]
        evidence = []
        if template.scheduler is not None:
            placed = [pod["spec"].get("schedulerName") == template.scheduler for pod in ours]
            evidence.append(item(f"pods of the scheduler {template.scheduler}", replicas, sum(placed), "pods"))
        if template.allocated is not None:
            name, _, wanted = template.allocated.partition("=")
            values = [(pod["metadata"].get("annotations") or {}).get(name) for pod in ours]
            count = sum(value == wanted if wanted else bool(value) for value in values)
            evidence.append(item(f"pods with the annotation {template.allocated}", replicas, count, "pods"))
        return evidence

    def _memory_evidence(self, limits: TenantLimits, view: DeviceView, source: str) -> Evidence:
        limit_bytes, total = limits.memory_bytes(self._memory_bytes()), view.get("memory_total_bytes")
        if limit_bytes is None or total is None:
            return []
        maximum = limit_bytes + PROBE_BEYOND_BYTES
        return [
            item("memory that CUDA shows, in bytes", f"at most {maximum}", total, source, total <= maximum),
            item("allocation beyond the limit refused", True, view.get("over_limit_refused"), source),
        ]
