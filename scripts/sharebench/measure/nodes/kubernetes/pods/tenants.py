"""Tenants as plain pods on one node of a cluster."""

import select
import sys
import time
from collections.abc import Mapping, Sequence
from secrets import token_hex

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import Grant, NodeError, Settings
from sharebench.measure.nodes.kubernetes.access.base import Access
from sharebench.measure.nodes.kubernetes.cluster import foreign_pods
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import node_unready_reason
from sharebench.measure.nodes.kubernetes.pods import manifest, program
from sharebench.measure.nodes.kubernetes.pods import status as pod_status
from sharebench.measure.nodes.kubernetes.pods.manifest import TENANT_PORT, Place, TenantPlan
from sharebench.measure.nodes.kubernetes.pods.overlay import apply_overlay, client_part
from sharebench.measure.nodes.kubernetes.pods.pod import KUBELET_REPORT_SECONDS, POLL_SECONDS, CellContext, TenantPod
from sharebench.measure.nodes.kubernetes.pods.sampler import PodSampler
from sharebench.measure.nodes.kubernetes.pods.served import ServedPod
from sharebench.measure.nodes.kubernetes.pods.watch import PodWatcher, call_for_each, sweep
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from sharebench.measure.nodes.tenants.tenant_set import TenantSet
from sharebench.model.spec import Spec
from sharebench.model.user_manifest import CLIENT_PORT

# Added to the longest duration of a cell. After it, pods end by themselves if no driver is left to delete them.
POD_LIFETIME_MARGIN_SECONDS = 300
# The watch shows a pod that the API server has accepted, unless it was deleted at once.
FIRST_SIGHT_SECONDS = 120.0
# By which Prometheus finds the metrics, as scrape configs for pods have it by convention.
PORT_ANNOTATION = "prometheus.io/port"


class PodTenants(TenantSet[TenantPod]):
    """The tenants of one cell, as pods on the access's node.

    `cell` stands for the cell in object names, and `reach` is `pod-ip` or `port-forward`.
    """

    are_local = False
    poll_seconds = POLL_SECONDS
    call_for_each = staticmethod(call_for_each)

    def __init__(self, access: Access, cell: str, spec: Spec, settings: Settings, reach: str) -> None:
        super().__init__(spec, settings)
        self.access = access
        self.api = access.cluster.api
        self.place = Place(access.cluster.name, cell, access.cluster.options)
        self.settings = settings
        self.windows = settings.get("windows", 1)
        self.collection = access.cluster.tenants_path
        self.watcher = PodWatcher(self.api, self.collection, self._cell_selector)
        self.context = CellContext(
            spec, self.api, self.place.namespace, self.collection, self.watcher, reach, token_hex(16)
        )
        self._sampler: PodSampler | None = None
        self._offset_ns = 0

    # Objects.

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self.place.namespace}"

    @property
    def _cell_selector(self) -> str:
        return f"{manifest.CELL_LABEL}={self.place.cell}"

    def sweep(self) -> None:
        """Remove our objects of all cells on this node, and wait until the pods are gone."""
        sweep(self.api, self.place.namespace, f"{self.access.cluster.owner_selector},!{foreign_pods.HELD_LABEL}")
        self.access.clean_up()

    def prepare(self, grants: Sequence[Grant]) -> list[TenantPod]:
        """Create the cell's ConfigMap and the objects of its access. Raises NodeError if one is refused."""
        files = {manifest.CODE_FILE: manifest.code_archive()}
        for workload in self.spec.workloads:
            files |= program.body_files(workload)
        owner = self._create(f"{self._core}/configmaps", manifest.config_map(self.place, files))
        for body in self.access.cell_objects(self.spec):
            # None is of the core group.
            path = f"/apis/{body['apiVersion']}/namespaces/{self.place.namespace}/{body['kind'].lower()}s"
            self._create(path, manifest.cell_object(self.place, owner, body))
        return [self._unit(owner, grant) for grant in grants]

    def _unit(self, owner: Json, grant: Grant) -> TenantPod:
        """A tenant that is not launched; the Service of a server, whose client needs its address, is made."""
        body, plan = self.build_pod(owner, grant), self._plan(owner, grant.index)
        if not program.is_served(self.place, plan.workload):
            return TenantPod(self.context, grant, body)
        client = program.client_pod(plan, self._create(f"{self._core}/services", program.service(plan)))
        client["metadata"]["annotations"] |= self._annotations(CLIENT_PORT)
        return ServedPod(self.context, grant, body, apply_overlay(client, client_part(self.place.options["pod"])))

    def _annotations(self, port: int) -> Mapping[str, str]:
        annotations = self.settings.get("pod_annotations", {})
        return annotations and {**annotations, PORT_ANNOTATION: str(port)}

    def _plan(self, owner: Json, index: int) -> TenantPlan:
        settings, timeouts = self.settings, self.settings["timeouts"]
        cell_seconds = timeouts["start_seconds"] + self.spec.window_seconds + timeouts["record_seconds"]
        seconds = int(2 * self.windows * cell_seconds) + POD_LIFETIME_MARGIN_SECONDS
        load, watched_cell = settings["loads"][index], settings.get("watched_cell")
        return TenantPlan(self.place, owner, self.spec, load, index, self.context.token, watched_cell, seconds)

    def build_pod(self, owner: Json, grant: Grant) -> Json:
        """A tenant's pod; `owner` is the cell's ConfigMap as the API server returned it."""
        needs, plan = self.access.pod_needs(self.spec, grant), self._plan(owner, grant.index)
        pod, workload = program.tenant_pod(plan, needs, self.access.cluster), plan.workload
        if not program.is_served(self.place, workload):
            # Else the pod of the client has the metrics.
            pod["metadata"]["annotations"] |= self._annotations(CLIENT_PORT if workload.is_program else TENANT_PORT)
        if self.spec.fault is not None:
            # The first process of a PID namespace ignores the signals that it sends itself.
            pod["spec"]["shareProcessNamespace"] = True
        return apply_overlay(pod, self.place.options["pod"])

    def launch(self, units: Sequence[TenantPod]) -> None:
        """Create these pods, and wait until the watch has seen each. Raises NodeError if one is refused."""
        for unit in units:
            unit.created_seconds = time.monotonic()
        bodies = [body for unit in units for body in unit.bodies]
        call_for_each(lambda body: self._create(self.collection, body), bodies)
        if not self.units:
            self.watcher.start()
        names = {body["metadata"]["name"] for body in bodies}
        with self.watcher.changed:
            # Until a new pod has been seen once, it must not count as gone, however slow the API server is.
            self.watcher.changed.wait_for(
                lambda: self.watcher.failure or not self.watcher.has_listed or self.watcher.pods.keys() >= names,
                FIRST_SIGHT_SECONDS,
            )
        self.units += units

    def _create(self, collection: str, body: Json) -> Json:
        """Create an object, or return the one that an earlier call without an answer created. Raises NodeError."""
        try:
            return self.api.create(collection, body)
        except ApiRefused as refused:
            if refused.status != 409:
                raise
            # The driver may have the right to list objects, but not to get them.
            metadata = body["metadata"]
            for existing in self.api.get(collection, fieldSelector=f"metadata.name={metadata['name']}")["items"]:
                # Objects of an earlier start have another owner, and are deleted some time after it.
                if existing["metadata"].get("ownerReferences") == metadata.get("ownerReferences"):
                    return dict(existing)
            raise

    def stop(self) -> None:
        self.watcher.end()
        self.close()
        # Reading logs from an unreachable API server would wait for each time-out.
        units = self.units if self.watcher.failure is None else []
        for unit, texts in zip(units, call_for_each(TenantPod.logs, units), strict=True):
            for line in "\n".join(texts).splitlines():
                print(f"tenant {unit.index}: {line}", file=sys.stderr)
        sweep(self.api, self.place.namespace, self._cell_selector)
        self.access.clean_up()

    # Watching.

    def refuse_unavailable(self) -> None:
        """Raise NodeError where a pod cannot run, a node is silent, or the API server is unreachable."""
        if self.watcher.failure is not None:
            raise self.watcher.failure
        try:
            super().refuse_unavailable()
        except NodeError as error:
            if "Insufficient" in str(error) and (takers := self.access.cluster.foreign_pods()):
                raise NodeError(f"{error}; {foreign_pods.refusal_message(takers)}") from None
            raise
        for unit in self.units:
            if pod_status.ending(unit.pod) is not None or not pod_status.is_running_unready(unit.pod):
                continue
            if (reason := node_unready_reason(self.access.cluster.read_node())) is not None:
                raise NodeError(f"tenant {unit.index}: {reason}")
        waiting = [unit for unit in self.units if "waiting" in pod_status.container_state(unit.pod)]
        if waiting:
            seconds = time.monotonic() - waiting[-1].created_seconds
            if (failure := self.access.start_failure([unit.name for unit in waiting], seconds)) is not None:
                raise NodeError(failure)

    def pause(self, seconds: float) -> None:
        self.context.pause(seconds)

    def on_ready(self) -> None:
        # The client of a user's container has no GPU.
        first = min(self.units, key=lambda unit: unit.is_program)
        self._sampler = PodSampler(first.connected[0])
        self._align_clocks()

    def _align_clocks(self) -> None:
        """Measure the offset of the node's clock. Raises NodeError if the tenants do not run under one kernel."""
        readings = call_for_each(HttpEndpoint.read_clock, self.endpoints())
        if len({each.boot_id for each in readings}) != 1:
            raise NodeError("the tenants do not run under one kernel, so that they share no clock and no GPU")
        best = min(readings, key=lambda each: each.after_ns - each.before_ns)
        self._offset_ns = best.node_ns - (best.before_ns + best.after_ns) // 2
        for unit, endpoint, reading in zip(self.units, self.endpoints(), readings, strict=True):
            created_ns = int(unit.created_seconds * NS) + self._offset_ns
            endpoint.process_seconds = (reading.first_line_ns - created_ns) / NS
            endpoint.is_clock_aligned = True

    # For a cell.

    def sampler(self) -> PodSampler:
        """The sampler in the first tenant's pod, since the driver cannot see the GPU; it runs since all were warm."""
        assert self._sampler is not None
        return self._sampler.wait_until_begun()

    def now_ns(self) -> int:
        """The node's monotonic clock, by its measured offset."""
        return time.monotonic_ns() + self._offset_ns

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Wait until a time of the node's clock; returns when tenants ended, in ns, by index.

        A tenant's connection ends with it; its pod's status shows that seconds later. Raises NodeError as
        `refuse_unavailable` does.
        """
        connections = {each.connection: i for i, each in enumerate(self.endpoints()) if each.connection is not None}
        cut_ns: dict[int, int] = {}
        ended_ns: dict[int, int] = {}

        def record_endings() -> None:
            for unit in self._endings():
                ended_ns.setdefault(unit.index, cut_ns.get(unit.index, self.now_ns()))

        while (left_ns := monotonic_ns - self.now_ns()) > 0:
            for cut in select.select(connections, [], [], min(left_ns / NS, POLL_SECONDS))[0]:
                cut_ns[connections.pop(cut)] = self.now_ns()
            record_endings()
        deadline = time.monotonic() + KUBELET_REPORT_SECONDS
        while cut_ns.keys() - ended_ns.keys() and time.monotonic() < deadline:
            self.pause(POLL_SECONDS)
            record_endings()
        return ended_ns
