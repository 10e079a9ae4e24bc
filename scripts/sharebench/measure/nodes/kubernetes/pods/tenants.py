"""Tenants as plain pods on one node of a cluster."""

import contextlib
import json
import select
import sys
import time
from collections.abc import Sequence
from functools import partial
from secrets import token_hex

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import Grant, NodeError, Settings, TenantsFailed, TenantUnreachable
from sharebench.measure.nodes.kubernetes.access.base import Access
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL
from sharebench.measure.nodes.kubernetes.pods import manifest, program
from sharebench.measure.nodes.kubernetes.pods import status as pod_status
from sharebench.measure.nodes.kubernetes.pods.endpoint import (
    ClientEndpoint,
    ExitEndpoint,
    PodEndpoint,
    PodSampler,
    ScrapedPod,
)
from sharebench.measure.nodes.kubernetes.pods.forward import ForwardedPort, PodUnreachable, open_port
from sharebench.measure.nodes.kubernetes.pods.manifest import CLIENT_CONTAINER, TENANT_CONTAINER, TENANT_PORT, Place
from sharebench.measure.nodes.kubernetes.pods.overlay import apply_overlay
from sharebench.measure.nodes.kubernetes.pods.program import CLIENT_PORT
from sharebench.measure.nodes.kubernetes.pods.watch import PodWatcher, call_for_each, sweep
from sharebench.model.programs import is_program
from sharebench.model.records.types import Outcome, TenantStatus
from sharebench.model.spec import Spec, runs_until_exit, tenant_workload, tenant_workloads
from tenant.contract import EXIT_USAGE, SteadinessRule

POLL_SECONDS = 0.2
# Added to the longest duration of a cell. After it, pods end by themselves if no driver is left to delete them.
POD_LIFETIME_MARGIN_SECONDS = 300
# A kubelet checks its containers once a second, and reports to the API server a moment later.
KUBELET_REPORT_SECONDS = 10.0
# The watch shows a pod that the API server has accepted, unless it was deleted at once.
FIRST_SIGHT_SECONDS = 120.0
LOG_LINES = 40
# How much of a log is searched for the text that shows that a program is ready.
LOG_BYTES = 1 << 20
LOG_TAIL_CHARACTERS = 2000


class PodTenants:
    """The tenants of one cell, as pods on the access's node.

    `cell` stands for the cell in object names, `settings` has `timeouts` and the resolved `loads` by tenant, and
    `reach` is `pod-ip` or `port-forward`.
    """

    are_local = False

    def __init__(self, access: Access, cell: str, spec: Spec, settings: Settings, reach: str) -> None:
        self.access = access
        self.api = access.cluster.api
        self.place = Place(access.cluster.name, cell, access.cluster.options)
        self.spec = spec
        self.reach = reach
        self.loads = settings["loads"]
        self.timeouts = settings["timeouts"]
        self.watched_cell = settings.get("watched_cell")
        self.annotations = settings.get("pod_annotations", {})
        self.token = token_hex(16)
        self.collection = access.cluster.tenants_path
        self.config_maps = f"/api/v1/namespaces/{self.place.namespace}/configmaps"
        self.watcher = PodWatcher(self.api, self.collection, self._cell_selector)
        self.names: list[str] = []
        self._created: float = time.monotonic()
        self._endpoints: dict[int, PodEndpoint] = {}
        self._sampler: PodSampler | None = None
        self._hung: set[int] = set()
        self._unreachable: dict[int, TenantUnreachable] = {}
        self._logs: dict[tuple[str, str], str] = {}
        self._pods_to_start: list[Json] = []
        self._offset_ns = 0

    # Objects.

    @property
    def _cell_selector(self) -> str:
        return f"{manifest.CELL_LABEL}={self.place.cell}"

    def sweep(self) -> None:
        """Remove our objects of all cells on this node, and wait until the pods are gone."""
        sweep(self.api, self.place.namespace, f"{self.access.cluster.owner_selector},!{HELD_LABEL}")
        self.access.clean_up()

    def start(self, grants: Sequence[Grant]) -> None:
        """Create the cell's ConfigMap, the objects of its access, and its pods. Raises NodeError if one is refused."""
        files = {manifest.CODE_FILE: manifest.code_archive()}
        for workload in tenant_workloads(self.spec):
            files |= program.body_files(workload)
        owner = self._create(self.config_maps, manifest.config_map(self.place, files))
        for body in self.access.cell_objects(self.spec):
            self._create(manifest.collection_path(self.place, body), manifest.cell_object(self.place, owner, body))
        self._pods_to_start = [self.build_pod(owner, grant) for grant in grants]
        self._start_next()
        self.watcher.start()

    def build_pod(self, owner: Json, grant: Grant) -> Json:
        """A tenant's pod; `owner` is the cell's ConfigMap as the API server returned it."""
        index, options, needs = grant.index, self.place.options, self.access.pod_needs(self.spec, grant)
        workload, load = tenant_workload(self.spec, index), self.loads[index]
        cell_seconds = self.timeouts["start_seconds"] + self.spec["window_seconds"] + self.timeouts["record_seconds"]
        seconds = int(2 * cell_seconds) + POD_LIFETIME_MARGIN_SECONDS
        watched_cell = self.watched_cell
        if is_program(workload):
            pod = program.user_pod(self.place, owner, self.spec, load, index, needs, self.token, watched_cell, seconds)
        else:
            params = json.dumps(workload["params"])
            run = {"workload": workload["module"], "params": params, "device": options["device"]}
            python = options["python"]
            arguments = manifest.command_line(self.spec, load, index, python, TENANT_PORT, run, watched_cell)
            container = manifest.tenant_container(arguments, needs, self.token, options)
            pod = manifest.tenant_pod(self.place, owner, index, [container], needs, seconds)
        pod["metadata"]["annotations"] |= self.annotations
        if "fault" in self.spec:
            # The first process of a PID namespace ignores the signals that it sends itself.
            pod["spec"]["shareProcessNamespace"] = True
        return apply_overlay(pod, options["pod"])

    def _start_next(self) -> None:
        """Create the next pod, and those after it that need not wait until it is ready."""
        waiting, first = self._pods_to_start, len(self.names)
        count = next((i for i, _ in enumerate(waiting) if i and self._is_staggered(first + i)), None)
        bodies, self._pods_to_start = waiting[:count], waiting[count:] if count else []
        self._created = time.monotonic()
        call_for_each(lambda body: self._create(self.collection, body), bodies)
        names = [body["metadata"]["name"] for body in bodies]
        with self.watcher.changed:
            # Until a new pod has been seen once, it must not count as gone, however slow the API server is.
            self.watcher.changed.wait_for(
                lambda: self.watcher.failure or not self.watcher.has_listed or self.watcher.pods.keys() >= set(names),
                FIRST_SIGHT_SECONDS,
            )
        self.names += names

    def _is_staggered(self, index: int) -> bool:
        return tenant_workload(self.spec, index).get("start") == "staggered"

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
        """Print the tenants' logs into this job's log, and remove the cell's objects."""
        self.watcher.end()
        for endpoint in self._endpoints.values():
            endpoint.close()
        # Reading logs from an unreachable API server would wait for each time-out.
        names = self.names if self.watcher.failure is None else []
        for index, texts in enumerate(call_for_each(self._read_logs, names)):
            for line in "\n".join(texts).splitlines():
                print(f"tenant {index}: {line}", file=sys.stderr)
        sweep(self.api, self.place.namespace, self._cell_selector)
        self.access.clean_up()

    def _read_log(self, name: str, container: str = TENANT_CONTAINER) -> str:
        if (name, container) not in self._logs:
            text = ""
            with contextlib.suppress(NodeError):
                text = self.api.get_text(f"{self.collection}/{name}/log", container=container, tailLines=LOG_LINES)
            self._logs[name, container] = text
        return self._logs[name, container]

    def _read_logs(self, name: str) -> list[str]:
        pod = self.watcher.pods.get(name, {"spec": {}})
        failed = pod_status.failed_init_container(pod)
        more = [CLIENT_CONTAINER] if pod_status.has_client(pod) else []
        return [self._read_log(name, each) for each in ((failed,) if failed else (TENANT_CONTAINER, *more))]

    # Watching.

    def pods(self) -> list[Json]:
        """The pods as last seen, in order. Raises NodeError if one is unavailable or the API server is unreachable."""
        if self.watcher.failure is not None:
            raise self.watcher.failure
        seen = self.watcher.pods
        pods = [seen[name] for name in self.names if name in seen]
        if self.watcher.has_listed and len(pods) < len(self.names):
            missing = next(name for name in self.names if name not in seen)
            raise NodeError(f"tenant {self.names.index(missing)}: its pod is gone; someone deleted it")
        for index, pod in enumerate(pods):
            if pod_status.ending(pod) is not None:
                continue
            reason = pod_status.unavailable_reason(pod, time.monotonic() - self._created)
            if reason is None and pod_status.is_running_unready(pod):
                reason = pod_status.node_unready_reason(self.access.cluster.read_node())
            if reason is not None:
                raise NodeError(f"tenant {index}: {reason}")
        waiting = [pod["metadata"]["name"] for pod in pods if "waiting" in pod_status.container_state(pod)]
        if waiting and (failure := self.access.start_failure(waiting, time.monotonic() - self._created)) is not None:
            raise NodeError(failure)
        return pods

    def _endings(self) -> list[pod_status.Ending | None]:
        return [self._failure(index, pod) for index, pod in enumerate(self.pods())]

    def _pause(self, seconds: float) -> None:
        """Wait until a pod changes, or for this time."""
        with self.watcher.changed:
            self.watcher.changed.wait(seconds)

    def wait_ready(self) -> None:
        """Wait until every tenant is warm. Raises TenantsFailed if one ends or is late, NodeError as `pods` does."""
        deadline = time.monotonic() + self.timeouts["start_seconds"]
        waiting = set(range(len(self.names)))
        while waiting and time.monotonic() < deadline:
            pods, ended = self.pods(), self._endings()
            if any(end is not None and end[0] != "oom" for end in ended):
                break
            waiting -= {index for index in waiting & set(range(len(pods))) if ended[index] is not None}
            running = [index for index in sorted(waiting) if index < len(pods) and pod_status.is_running(pods[index])]
            for index in running:
                if index not in self._endpoints:
                    self._endpoints[index] = self._endpoint(index, pods[index])
            warm = call_for_each(self._is_warm, running)
            waiting -= {index for index, is_warm in zip(running, warm, strict=True) if is_warm}
            if not waiting and self._pods_to_start:
                first, deadline = len(self.names), time.monotonic() + self.timeouts["start_seconds"]
                self._start_next()
                waiting = set(range(first, len(self.names)))
            elif waiting:
                self._pause(POLL_SECONDS)
        ended = self._endings()
        for index, (name, end) in enumerate(zip(self.names, ended, strict=False)):
            if end is not None and end[2] == EXIT_USAGE and not is_program(tenant_workload(self.spec, index)):
                log = self._read_log(name).strip() or "a tenant refused its arguments"
                raise NodeError(log.splitlines()[-1])
        if any(ended) or waiting:
            self._hung = {index for index in waiting if not any(ended)}
            self._refuse_never_started(waiting)
            raise TenantsFailed("not every tenant got ready")
        # The client of a user's container has no GPU.
        with_gpu = [endpoint for endpoint in self.endpoints() if not isinstance(endpoint, ClientEndpoint)]
        self._sampler = PodSampler([*with_gpu, *self.endpoints()][0])
        self._align_clocks()

    def _is_warm(self, index: int) -> bool:
        self._unreachable.pop(index, None)
        try:
            return self._endpoints[index].ready()
        except TenantUnreachable as silence:
            self._unreachable[index] = silence
            return False

    def _refuse_never_started(self, waiting: set[int]) -> None:
        """Raise NodeError for a pod that did not start or is unreachable, which says nothing about sharing."""
        for index in sorted(waiting):
            silence = self._unreachable.get(index)
            if index in self._hung and silence is not None and isinstance(silence.__cause__, PodUnreachable):
                raise NodeError(f"tenant {index}: {silence}")
            endpoint = self._endpoints.get(index)
            if index in self._hung and endpoint is not None and endpoint.complaint is not None:
                raise NodeError(endpoint.complaint)
            pod = self.watcher.pods.get(self.names[index], {})
            if pod and not pod_status.is_running(pod) and pod_status.ending(pod) is None:
                phase = pod.get("status", {}).get("phase", "unknown")
                raise NodeError(f"tenant {index}: its pod did not start within its time (phase {phase})")

    def _endpoint(self, index: int, pod: Json) -> PodEndpoint:
        name, namespace = self.names[index], self.place.namespace
        workload = tenant_workload(self.spec, index)
        port = CLIENT_PORT if is_program(workload) else TENANT_PORT
        is_direct = self.reach == "pod-ip"

        def forward(seconds: float) -> ForwardedPort:
            return open_port(self.api, namespace, name, port, seconds)

        host = pod["status"]["podIP"] if is_direct else "localhost"
        connection = (host, self.token, None if is_direct else forward, port)
        ending = partial(self._await_ending, index)
        if runs_until_exit(workload):
            return ExitEndpoint(*connection, index=index, workload=workload["name"], ending=ending)
        if workload.get("kind") == "command":
            path = f"{self.collection}/{name}/log"
            log = partial(self.api.get_text, path, container=TENANT_CONTAINER, limitBytes=LOG_BYTES)
            rule = SteadinessRule(**self.spec["warmup"])
            return ScrapedPod(*connection, index=index, workload=workload, rule=rule, log=log, ending=ending)
        return (ClientEndpoint if is_program(workload) else PodEndpoint)(*connection)

    def _await_ending(self, index: int) -> pod_status.Ending | None:
        """Wait for the end of a program; how it failed, or None. Raises NodeError if the kubelet does not report it."""
        deadline = time.monotonic() + KUBELET_REPORT_SECONDS
        while "terminated" not in pod_status.container_state(pod := self.watcher.pods.get(self.names[index], {})):
            if time.monotonic() > deadline:
                raise NodeError(
                    f"tenant {index}: its program has ended, and the kubelet has not reported its exit code"
                )
            self._pause(POLL_SECONDS)
        return self._failure(index, pod)

    def _failure(self, index: int, pod: Json) -> pod_status.Ending | None:
        """How a tenant has ended by itself, or None, also for a program that ran to its end successfully."""
        end = pod_status.ending(pod)
        return None if end and end[2] == 0 and runs_until_exit(tenant_workload(self.spec, index)) else end

    def _align_clocks(self) -> None:
        """Measure the offset of the node's clock. Raises NodeError if the tenants do not run under one kernel."""
        readings = call_for_each(PodEndpoint.read_clock, self.endpoints())
        if len({each.boot_id for each in readings}) != 1:
            raise NodeError("the tenants do not run under one kernel, so that they share no clock and no GPU")
        best = min(readings, key=lambda each: each.after_ns - each.before_ns)
        self._offset_ns = best.node_ns - (best.before_ns + best.after_ns) // 2
        created_ns = int(self._created * NS) + self._offset_ns
        for endpoint, reading in zip(self.endpoints(), readings, strict=True):
            endpoint.process_seconds = (reading.first_line_ns - created_ns) / NS

    # For a cell.

    def endpoints(self) -> Sequence[PodEndpoint]:
        return [self._endpoints[index] for index in range(len(self.names))]

    def sampler(self) -> PodSampler:
        """The sampler in the first tenant's pod, since the driver cannot see the GPU; it runs since all were warm."""
        assert self._sampler is not None
        return self._sampler.wait_until_begun()

    def metrics_addresses(self) -> list[str]:
        """Addresses of the tenants' metrics for a Prometheus that reaches pods, as `host:port`, in order."""
        pairs = zip(self.pods(), self.endpoints(), strict=True)
        return [f"{pod['status']['podIP']}:{endpoint.port}" for pod, endpoint in pairs]

    def outcomes(self) -> list[Outcome]:
        """`status` and `exit` of each tenant, in order; a running one is `ok`."""
        outcomes: list[Outcome] = []
        for index, name in enumerate(self.names):
            pod = self.watcher.pods.get(name, {"metadata": {}, "spec": {}})
            end: tuple[TenantStatus, str, int | None] | None = self._failure(index, pod)
            if end is None and index in self._hung:
                end = "hung", f"not ready after {self.timeouts['start_seconds']:g} s{self._unready_detail(index)}", None
            if end is None:
                outcomes.append({"status": "ok", "exit": None})
            else:
                status, reason, code = end
                tail = self._read_logs(name)[0][-LOG_TAIL_CHARACTERS:]
                if pod_status.failed_init_container(pod) is not None and tail.strip():
                    reason += f": {tail.strip().splitlines()[-1]}"
                outcomes.append({"status": status, "exit": {"code": code, "reason": reason, "log_tail": tail}})
        return outcomes

    def _unready_detail(self, index: int) -> str:
        """The last reason why a program was not ready, by its client."""
        endpoint = self._endpoints.get(index)
        if not isinstance(endpoint, ClientEndpoint):
            return ""
        if endpoint.waiting_for is not None:
            return f": {endpoint.waiting_for}"
        return "".join(f": {line}" for line in self._read_log(self.names[index], CLIENT_CONTAINER).splitlines()[-1:])

    def now_ns(self) -> int:
        """The node's monotonic clock, by its measured offset."""
        return time.monotonic_ns() + self._offset_ns

    def sleep_until(self, monotonic_ns: int) -> None:
        """Wait until a time of the node's clock. Raises TenantsFailed if a tenant ends, NodeError as `pods` does."""
        while (left_ns := monotonic_ns - self.now_ns()) > 0:
            self._pause(left_ns / NS)
            if any(end is not None for end in self._endings()):
                raise TenantsFailed("a tenant ended early")

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Wait until a time of the node's clock; returns when tenants ended, in ns, by index.

        A tenant's connection ends with it; its pod's status shows that seconds later. Raises NodeError as `pods` does.
        """
        connections = {each.connection: i for i, each in enumerate(self.endpoints()) if each.connection is not None}
        cut_ns: dict[int, int] = {}
        ended_ns: dict[int, int] = {}

        def record_endings() -> None:
            for index, end in enumerate(self._endings()):
                if end is not None and index not in ended_ns:
                    ended_ns[index] = cut_ns.get(index, self.now_ns())

        while (left_ns := monotonic_ns - self.now_ns()) > 0:
            for cut in select.select(connections, [], [], min(left_ns / NS, POLL_SECONDS))[0]:
                cut_ns[connections.pop(cut)] = self.now_ns()
            record_endings()
        deadline = time.monotonic() + KUBELET_REPORT_SECONDS
        while cut_ns.keys() - ended_ns.keys() and time.monotonic() < deadline:
            self._pause(POLL_SECONDS)
            record_endings()
        return ended_ns
