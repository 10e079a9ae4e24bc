"""Tenants as plain Pods of one node of a cluster."""

import contextlib
import json
import select
import sys
import time
from collections.abc import Sequence
from functools import partial
from secrets import token_hex

from sharebench.core.programs import is_program
from sharebench.core.spec import Spec, runs_until_exit, tenant_workload, tenant_workloads
from sharebench.core.units import NS
from sharebench.nodes.contract import Grant, NodeError, Settings, TenantsFailed, TenantUnreachable
from sharebench.nodes.kubernetes.access.base import Access
from sharebench.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL
from sharebench.nodes.kubernetes.pods import manifest, program
from sharebench.nodes.kubernetes.pods import status as pod_status
from sharebench.nodes.kubernetes.pods.endpoint import ClientEndpoint, ExitEndpoint, PodEndpoint, PodSampler, ScrapedPod
from sharebench.nodes.kubernetes.pods.forward import ForwardedPort, PodUnreachable, open_port
from sharebench.nodes.kubernetes.pods.manifest import CLIENT_CONTAINER, TENANT_CONTAINER, TENANT_PORT, Place
from sharebench.nodes.kubernetes.pods.overlay import apply_overlay
from sharebench.nodes.kubernetes.pods.program import CLIENT_PORT
from sharebench.nodes.kubernetes.pods.watch import PodWatcher, call_for_each, sweep
from sharebench.records.types import Outcome, TenantStatus
from tenant.contract import EXIT_USAGE, SteadinessRule

POLL_SECONDS = 0.2
# Beyond what a cell may take at most, so that pods end by themselves when no driver is left to delete them.
POD_LIFETIME_MARGIN_SECONDS = 300
# A kubelet looks at its containers once a second, and reports to the API server a moment later.
KUBELET_REPORT_SECONDS = 10.0
LOG_LINES = 40
# Searched for the text that says that a program is ready.
LOG_BYTES = 1 << 20
LOG_TAIL_CHARACTERS = 2000


class PodTenants:
    """The tenants of one cell, as pods of the node of their access.

    `cell` stands for the cell in names, `spec` is its, `settings` has `timeouts` and the resolved `loads` by tenant,
    and `reach` is `pod-ip` or `port-forward`.
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
        """Remove our objects for this node, of whatever cell, and wait until the pods are gone."""
        sweep(self.api, self.place.namespace, f"{self.access.cluster.owner_selector},!{HELD_LABEL}")
        self.access.clean_up()

    def start(self, grants: Sequence[Grant]) -> None:
        """Create the cell's ConfigMap, what its access wants, and all pods. Raises NodeError when one is refused."""
        files = {manifest.CODE_FILE: manifest.code_archive()}
        for workload in tenant_workloads(self.spec):
            files |= program.body_files(workload)
        owner = self._create(self.config_maps, manifest.config_map(self.place, files))
        for wanted in self.access.cell_objects(self.spec):
            self._create(manifest.collection_path(self.place, wanted), manifest.cell_object(self.place, owner, wanted))
        self._pods_to_start = [self.build_pod(owner, grant) for grant in grants]
        self._start_next()
        self.watcher.start()

    def build_pod(self, owner: Json, grant: Grant) -> Json:
        """A tenant's pod; `owner` is the cell's ConfigMap as the API server made it."""
        index, options, needs = grant.index, self.place.options, self.access.pod_needs(self.spec, grant)
        workload, load = tenant_workload(self.spec, index), self.loads[index]
        cell_seconds = self.timeouts["start_seconds"] + self.spec["window_seconds"] + self.timeouts["record_seconds"]
        seconds = int(2 * cell_seconds) + POD_LIFETIME_MARGIN_SECONDS
        if is_program(workload):
            shown = self.watched_cell
            made = program.user_pod(self.place, owner, self.spec, load, index, needs, self.token, shown, seconds)
        else:
            params = json.dumps(workload["params"])
            run = {"workload": workload["module"], "params": params, "device": options["device"]}
            arguments = manifest.command_line(
                self.spec, load, index, options["python"], TENANT_PORT, run, self.watched_cell
            )
            own = manifest.tenant_container(arguments, needs, self.token, options)
            made = manifest.tenant_pod(self.place, owner, index, [own], needs, seconds)
        made["metadata"]["annotations"] |= self.annotations
        if "fault" in self.spec:
            # The first process of a PID namespace is deaf to the signals that it sends itself.
            made["spec"]["shareProcessNamespace"] = True
        return apply_overlay(made, options["pod"])

    def _start_next(self) -> None:
        """Create the pods of those that need not wait until the ones before them are ready; one, if any is left."""
        count = next(
            (i for i, _ in enumerate(self._pods_to_start) if i and self._is_staggered(len(self.names) + i)), None
        )
        bodies, self._pods_to_start = self._pods_to_start[:count], self._pods_to_start[count:] if count else []
        self._created = time.monotonic()
        call_for_each(lambda body: self._create(self.collection, body), bodies)
        names = [body["metadata"]["name"] for body in bodies]
        with self.watcher.changed:
            # What has not been seen yet is not gone.
            self.watcher.changed.wait_for(
                lambda: not self.watcher.has_listed or self.watcher.pods.keys() >= set(names), KUBELET_REPORT_SECONDS
            )
        self.names += names

    def _is_staggered(self, index: int) -> bool:
        return tenant_workload(self.spec, index).get("start") == "staggered"

    def _create(self, collection: str, body: Json) -> Json:
        """Create an object, or take the one that a call made whose answer was lost. Raises NodeError."""
        try:
            return self.api.create(collection, body)
        except ApiRefused as refused:
            if refused.status != 409:
                raise
            # The driver may list objects there, and not get them.
            metadata = body["metadata"]
            for found in self.api.get(collection, fieldSelector=f"metadata.name={metadata['name']}")["items"]:
                # An earlier start's ConfigMap is swept by now; what belongs to it goes some time after it.
                if found["metadata"].get("ownerReferences") == metadata.get("ownerReferences"):
                    return dict(found)
            raise

    def stop(self) -> None:
        """Put the tenants' logs into this job's log, and remove the cell's objects."""
        self.watcher.end()
        for endpoint in self._endpoints.values():
            endpoint.close()
        # An API server that stays away has no logs either, and each would be waited for.
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
        has_client = pod_status.has_client(self.watcher.pods.get(name, {}))
        return [self._read_log(name, each) for each in (TENANT_CONTAINER, *([CLIENT_CONTAINER] if has_client else []))]

    # Watching.

    def pods(self) -> list[Json]:
        """The pods as last seen, in order. Raises NodeError when one cannot be had, or the API server stays away."""
        if self.watcher.failure is not None:
            raise self.watcher.failure
        known = self.watcher.pods
        found = [known[name] for name in self.names if name in known]
        if self.watcher.has_listed and len(found) < len(self.names):
            missing = next(name for name in self.names if name not in known)
            raise NodeError(f"tenant {self.names.index(missing)}: its pod is gone; somebody deleted it")
        for index, pod in enumerate(found):
            if pod_status.ending(pod) is not None:
                continue
            why = pod_status.unavailable_reason(pod, time.monotonic() - self._created)
            if why is None and pod_status.is_running_unready(pod):
                why = pod_status.node_unready_reason(self.access.cluster.read_node())
            if why is not None:
                raise NodeError(f"tenant {index}: {why}")
        waiting = [pod["metadata"]["name"] for pod in found if "waiting" in pod_status.container_state(pod)]
        if waiting and (why := self.access.start_failure(waiting, time.monotonic() - self._created)) is not None:
            raise NodeError(why)
        return found

    def _endings(self) -> list[pod_status.Ending | None]:
        return [self._failure(index, pod) for index, pod in enumerate(self.pods())]

    def _pause(self, seconds: float) -> None:
        """Until something of a pod changes, at most so long."""
        with self.watcher.changed:
            self.watcher.changed.wait(seconds)

    def wait_ready(self) -> None:
        """Until every tenant is warm. Raises TenantsFailed when one ended or time ran out, NodeError as `pods` does."""
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
                said = self._read_log(name).strip() or "a tenant refused its arguments"
                raise NodeError(said.splitlines()[-1])
        if any(ended) or waiting:
            self._hung = {index for index in waiting if not any(ended)}
            self._refuse_never_started(waiting)
            raise TenantsFailed("not every tenant got ready")
        # The client of a user's container has no GPU.
        seeing = [each for each in self.endpoints() if not isinstance(each, ClientEndpoint)]
        self._sampler = PodSampler([*seeing, *self.endpoints()][0])
        self._align_clocks()

    def _is_warm(self, index: int) -> bool:
        self._unreachable.pop(index, None)
        try:
            return self._endpoints[index].ready()
        except TenantUnreachable as silence:
            self._unreachable[index] = silence
            return False

    def _refuse_never_started(self, waiting: set[int]) -> None:
        """Raise NodeError for a pod that did not even start, or cannot be reached: that says nothing about sharing."""
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
            log = partial(
                self.api.get_text, f"{self.collection}/{name}/log", container=TENANT_CONTAINER, limitBytes=LOG_BYTES
            )
            rule = SteadinessRule(**self.spec["warmup"])
            return ScrapedPod(*connection, index=index, workload=workload, rule=rule, log=log, ending=ending)
        return (ClientEndpoint if is_program(workload) else PodEndpoint)(*connection)

    def _await_ending(self, index: int) -> pod_status.Ending | None:
        """How a program failed that has run to its end, None where it did not. Raises NodeError if that is unknown."""
        deadline = time.monotonic() + KUBELET_REPORT_SECONDS
        while "terminated" not in pod_status.container_state(pod := self.watcher.pods.get(self.names[index], {})):
            if time.monotonic() > deadline:
                raise NodeError(
                    f"tenant {index}: its program has ended, and the kubelet has not reported its exit code"
                )
            self._pause(POLL_SECONDS)
        return self._failure(index, pod)

    def _failure(self, index: int, pod: Json) -> pod_status.Ending | None:
        """How a tenant has ended by itself, but for one that was to end."""
        end = pod_status.ending(pod)
        return None if end and end[2] == 0 and runs_until_exit(tenant_workload(self.spec, index)) else end

    def _align_clocks(self) -> None:
        """Learn the node's clock. Raises NodeError when the tenants are not under one kernel."""
        readings = call_for_each(PodEndpoint.read_clock, self.endpoints())
        if len({each.boot_id for each in readings}) != 1:
            raise NodeError("the tenants do not run under one kernel, so that they share no clock and no GPU")
        best = min(readings, key=lambda each: each.after_ns - each.before_ns)
        self._offset_ns = best.node_ns - (best.before_ns + best.after_ns) // 2
        created_ns = int(self._created * NS) + self._offset_ns
        for endpoint, reading in zip(self.endpoints(), readings, strict=True):
            endpoint.process_seconds = (reading.first_line_ns - created_ns) / NS

    # What a cell asks.

    def endpoints(self) -> Sequence[PodEndpoint]:
        return [self._endpoints[index] for index in range(len(self.names))]

    def sampler(self) -> PodSampler:
        """What samples the GPU since all tenants were warm, from within the first one's pod."""
        assert self._sampler is not None
        return self._sampler.wait_until_begun()

    def metrics_addresses(self) -> list[str]:
        """Where a Prometheus that reaches pods finds the tenants' metrics, as `host:port`, in order."""
        asked = zip(self.pods(), self.endpoints(), strict=True)
        return [f"{pod['status']['podIP']}:{endpoint.port}" for pod, endpoint in asked]

    def outcomes(self) -> list[Outcome]:
        """`status` and `exit` of each tenant, in order; a running one is `ok`."""
        outcomes: list[Outcome] = []
        for index, name in enumerate(self.names):
            end: tuple[TenantStatus, str, int | None] | None
            end = self._failure(index, self.watcher.pods.get(name, {"metadata": {}}))
            if end is None and index in self._hung:
                end = (
                    "hung",
                    f"not ready after {self.timeouts['start_seconds']:g} s{self._missing_for_ready(index)}",
                    None,
                )
            if end is None:
                outcomes.append({"status": "ok", "exit": None})
            else:
                status, reason, code = end
                tail = self._read_log(name)[-LOG_TAIL_CHARACTERS:]
                outcomes.append({"status": status, "exit": {"code": code, "reason": reason, "log_tail": tail}})
        return outcomes

    def _missing_for_ready(self, index: int) -> str:
        """What the client of a program that never got ready was answered last."""
        endpoint = self._endpoints.get(index)
        if not isinstance(endpoint, ClientEndpoint):
            return ""
        lacking = endpoint.waiting_for
        said = (
            [lacking] if lacking is not None else self._read_log(self.names[index], CLIENT_CONTAINER).splitlines()[-1:]
        )
        return "".join(f": {line}" for line in said)

    def now_ns(self) -> int:
        """The node's monotonic clock, as far as this process knows it."""
        return time.monotonic_ns() + self._offset_ns

    def sleep_until(self, monotonic_ns: int) -> None:
        """Wait in the node's clock. Raises TenantsFailed when a tenant ends, NodeError when its pod is taken away."""
        while (left_ns := monotonic_ns - self.now_ns()) > 0:
            self._pause(left_ns / NS)
            if any(end is not None for end in self._endings()):
                raise TenantsFailed("a tenant ended early")

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Wait in the node's clock, whoever ends; when they ended, in ns, by index.

        A tenant's connection ends with it, its pod's status up to some seconds later. Raises NodeError as `pods` does.
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
