"""A GPU that another scheduler shares, or that has been shared already: pods by a template, and nothing is switched.

HAMi, Volcano and KAI are entries of the catalogue, and so is any other stack whose pods ask for a share.
"""

import time
from collections.abc import Sequence

from sharebench.core import pod_template
from sharebench.core.config_catalogues import PodTemplate
from sharebench.core.spec import Spec, TenantLimits, tenant_limits
from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import Evidence, Grant, NodeError, State, item
from sharebench.nodes.kubernetes.access.base import Access, PodNeeds, view_of
from sharebench.nodes.kubernetes.cluster import saved_state
from sharebench.nodes.kubernetes.cluster.api import conditions_of
from sharebench.nodes.kubernetes.cluster.foreign_pods import ENDED_PHASES, OWNER_LABEL
from sharebench.nodes.kubernetes.cluster.nvidia_stack import MEMORY_LABEL, labels_of
from sharebench.nodes.limits import PROBE_BEYOND_BYTES, memory_limit_bytes, probe_variables
from tenant.contract import SHOWN_VARIABLE, DeviceView, TenantReport

GONE_SECONDS = 60.0
POLL_SECONDS = 1.0


def _count(quantity: str) -> int | None:
    """A quantity of an extended resource, which may be written as 1k; None where it is not a whole number."""
    return int(quantity) if quantity.isdecimal() else None


class Static(Access):
    """Pods made by the template of the strategy's entry."""

    name = "static"
    _companions: str | None = None

    # What there is.

    def _memory_mib(self) -> int | None:
        label = self.cluster.labels().get(MEMORY_LABEL)
        return int(label) if label else None

    def _memory_bytes(self) -> int | None:
        memory_mib = self._memory_mib()
        return None if memory_mib is None else memory_mib << 20

    def _is_there(self, deployment: str) -> bool:
        """Whether a ready pod belongs to a Deployment of that name, in whatever namespace.

        Known by its ReplicaSet's name, so that no right is needed but to list pods.
        """
        found = self.cluster.api.get(
            "/api/v1/pods", labelSelector="pod-template-hash", fieldSelector="status.phase=Running"
        )["items"]
        for pod in found:
            replica_set = f"{deployment}-{labels_of(pod).get('pod-template-hash')}"
            owners = [owner["name"] for owner in pod["metadata"].get("ownerReferences") or []]
            if replica_set in owners and conditions_of(pod).get("Ready", {}).get("status") == "True":
                return True
        return False

    def _missing(self, template: PodTemplate) -> str | None:
        deployment = template["deployment"]
        if deployment is not None and not self._is_there(deployment):
            return (
                f"no Deployment {deployment} with a ready pod is in the cluster; install its scheduler, "
                "or name its Deployment (pod.deployment)"
            )
        if pod_template.needs_memory(template) and self._memory_mib() is None:
            return f"the node has no label {MEMORY_LABEL}, by which MiB are computed; use $memory_percent"
        return None

    def _too_few(self, template: PodTemplate, replicas: int) -> str | None:
        """Whether the node offers too little of what the pods ask for.

        A stack need not register all its resources: HAMi's memory and cores are its scheduler's alone.
        """
        asked = template["resources"]
        offered = self.cluster.read()["status"]["allocatable"]
        known = {name: _count(offered[name]) for name in asked if name in offered}
        if asked and not any(known.values()):
            return f"the node offers no {' or '.join(asked)}; its device plugin is not there, or not ready"
        for name, room in known.items():
            wanted = _count(asked[name])
            if room is not None and wanted is not None and room < wanted * replicas:
                return f"the node offers {room} of {name}, and {replicas} tenants ask for {wanted * replicas}"
        return None

    # What a cell asks.

    def missing(self) -> str | None:
        """Nothing that all need: each strategy's scheduler is looked for by itself."""
        return None

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """What the scheduler's stack lacks. What another way has set is left before these pods come, so not counted."""
        assert strategy.pod is not None
        if (why := self._missing(strategy.pod)) is not None:
            return why
        others = set(saved_state.load(self.cluster.read()) or {}) - {self.name}
        return None if others else self._too_few(strategy.pod, replicas)

    def _lacking(self, state: State) -> str | None:
        assert state.strategy.pod is not None
        return self._missing(state.strategy.pod) or self._too_few(state.strategy.pod, state.replicas or 1)

    def holds(self, state: State) -> bool:
        return self._lacking(state) is None

    def ensure(self, state: State) -> None:
        """Nothing is set; raises NodeError when something is not there that was, or that only showed now."""
        if (why := self._lacking(state)) is not None:
            raise NodeError(why)

    def restart_mps(self) -> None:
        """Whoever shares the GPU runs its daemon: for others to do. Raises NodeError."""
        raise NodeError(
            "tenants of an earlier cell ended badly under an MPS daemon that is not ours to restart, so that it may "
            "serve the next ones badly; have it restarted, then run again"
        )

    def pod(self, spec: Spec, grant: Grant) -> PodNeeds:
        """The template, filled in for this number of tenants."""
        strategy, replicas = spec["strategy"], spec["replicas"]
        limits = tenant_limits(strategy["limits"], grant.index)
        made = pod_template.fill_template(strategy["pod"], replicas, limits, self._memory_mib())
        self._companions = made["companions"]
        environment = dict(made["environment"])
        if made["shows"]:
            environment[SHOWN_VARIABLE] = ",".join(made["shows"])
        environment |= probe_variables(memory_limit_bytes(self._memory_bytes(), limits))
        return PodNeeds(
            limits=made["resources"],
            annotations=made["annotations"],
            labels=made["labels"],
            environment=environment,
            scheduler=made["scheduler"],
        )

    def clean(self, is_over: bool = False) -> None:
        """Wait until the scheduler has released the GPU, if it is one that holds it by pods of its own."""
        if self._companions is None:
            return
        deadline = time.monotonic() + GONE_SECONDS
        # What stays belongs to foreign pods, and is refused with them.
        while time.monotonic() < deadline and self._holds_gpu(self._companions):
            time.sleep(POLL_SECONDS)

    def _holds_gpu(self, namespace: str) -> bool:
        pods = [pod for pod in self.cluster.pods() if pod["metadata"]["namespace"] == namespace]
        return any(pod["status"].get("phase") not in ENDED_PHASES for pod in pods)

    def plan(self, strategy: Strategy) -> str:
        scheduler = strategy.pod and strategy.pod["scheduler"]
        by = f"the scheduler {scheduler} shares the GPU" if scheduler else "the GPU is shared as the node was found"
        return f"{by}; only a taint is set while it measures, and removed when the run ends"

    # Evidence.

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        """Who placed the pods and gave them a share, and what the tenants see of it, down to an allocation too large.

        What is not shown is not claimed: without CUDA in the tenants nothing is known of memory.
        """
        assert strategy.pod is not None
        limits = tenant_limits(strategy.limits(len(grants)), 0)
        made = pod_template.fill_template(strategy.pod, len(grants), limits, self._memory_mib())
        evidence = self._from_pods(made, len(grants))
        views = [view_of(record) for record in records]
        devices = {str(view.get("device")) for view in views}
        evidence.append(item("devices that the tenants were given", 1, len(devices), "node"))
        for index, view in enumerate(views):
            source = f"tenant {index}"
            evidence.append(item("knows its device", True, view.get("device") is not None, source))
            variables = view.get("variables") or {}
            for name, wanted in made["shows"].items():
                evidence.append(item(f"variable {name}", wanted, variables.get(name), source))
            evidence += self._of_memory(limits, view, source)
        return evidence

    def _from_pods(self, made: PodTemplate, replicas: int) -> Evidence:
        ours = [pod for pod in self.cluster.pods() if labels_of(pod).get(OWNER_LABEL) == self.cluster.digest]
        evidence = []
        if made["scheduler"] is not None:
            placed = [pod["spec"].get("schedulerName") == made["scheduler"] for pod in ours]
            evidence.append(item(f"pods of the scheduler {made['scheduler']}", replicas, sum(placed), "pods"))
        if made["allocated"] is not None:
            name, _, value = made["allocated"].partition("=")
            noted = [(pod["metadata"].get("annotations") or {}).get(name) for pod in ours]
            given = sum(each == value if value else bool(each) for each in noted)
            evidence.append(item(f"pods with the annotation {made['allocated']}", replicas, given, "pods"))
        return evidence

    def _of_memory(self, limits: TenantLimits, view: DeviceView, source: str) -> Evidence:
        limit_bytes, total = memory_limit_bytes(self._memory_bytes(), limits), view.get("memory_total_bytes")
        if limit_bytes is None or total is None:
            return []
        most = limit_bytes + PROBE_BEYOND_BYTES
        return [
            item("memory that CUDA shows, in bytes", f"at most {most}", total, source, total <= most),
            item("allocation beyond the limit refused", True, view.get("over_limit_refused"), source),
        ]
