"""Tenants as plain Pods of one node of a cluster."""

import contextlib
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import TypeVar

from sharebench.core.spec import Spec
from sharebench.nodes.contract import Grant, NodeError, Settings, TenantsFailed, TenantUnreachable
from sharebench.nodes.kubernetes.access.base import Access
from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json
from sharebench.nodes.kubernetes.cluster.foreign_pods import OWNER_LABEL
from sharebench.nodes.kubernetes.pods import manifest
from sharebench.nodes.kubernetes.pods import status as pod_status
from sharebench.nodes.kubernetes.pods.endpoint import PodEndpoint, PodSampler
from sharebench.nodes.kubernetes.pods.forward import PodUnreachable, forwarded
from sharebench.nodes.kubernetes.pods.manifest import PORT, Place
from sharebench.nodes.kubernetes.pods.watch import Watcher, wait_until_gone
from sharebench.records.types import Outcome, TenantStatus
from tenant.contract import EXIT_USAGE

Each = TypeVar("Each")
Answer = TypeVar("Answer")

NS = 1_000_000_000
POLL_SECONDS = 0.2
# Beyond what a cell may take at most, so that pods end by themselves when no driver is left to delete them.
SPARE_SECONDS = 300
# A kubelet looks at its containers once a second, and reports to the API server a moment later.
REPORTED_SECONDS = 10.0
# A kubelet that lost the API server asks for it ever more rarely, up to a minute apart, and ends no pod meanwhile.
GONE_SECONDS = 120.0
LOG_LINES = 40
LOG_TAIL_CHARACTERS = 2000


class PodTenants:
    """The tenants of one cell, as pods.

    `spec` is the cell's, `settings` has `timeouts` and the resolved `loads` by tenant, `read_node` reads the node's
    object, and `reach` is `pod-ip` or `port-forward`.
    """

    are_local = False

    def __init__(
        self,
        *,
        api: Api,
        place: Place,
        spec: Spec,
        settings: Settings,
        access: Access,
        read_node: Callable[[], Json],
        reach: str,
    ) -> None:
        self.api = api
        self.place = place
        self.spec = spec
        self.access = access
        self.read_node = read_node
        self.reach = reach
        self.loads = settings["loads"]
        self.timeouts = settings["timeouts"]
        self.exposition = settings.get("exposition")
        self.annotations = settings.get("pod_annotations", {})
        self.token = token_hex(16)
        self.attempt = token_hex(8)
        self.collection = f"/api/v1/namespaces/{place.namespace}/pods"
        self.config_maps = f"/api/v1/namespaces/{place.namespace}/configmaps"
        self.watcher = Watcher(api, self.collection, _selector({manifest.CELL_LABEL: place.cell}))
        self.names: list[str] = []
        self._created: float = time.monotonic()
        self._endpoints: dict[int, PodEndpoint] = {}
        self._sampler: PodSampler | None = None
        self._hung: set[int] = set()
        self._silences: dict[int, TenantUnreachable] = {}
        self._logs: dict[str, str] = {}
        self._offset_ns = 0

    # Objects.

    def sweep(self) -> None:
        """Remove all our objects for this node, of whatever cell, and wait until the pods are gone."""
        sweep(self.api, self.place.namespace, {OWNER_LABEL: self.place.labels[OWNER_LABEL]})
        self.access.clean()

    def start(self, grants: Sequence[Grant]) -> None:
        """Create the cell's ConfigMap, what its access wants, and all pods. Raises NodeError when one is refused."""
        code = manifest.archive()
        owner = self._create(self.config_maps, manifest.config_map(self.place, code))
        cell_seconds = self.timeouts["start_seconds"] + self.spec["window_seconds"] + self.timeouts["record_seconds"]
        deadline_seconds = int(2 * cell_seconds) + SPARE_SECONDS
        for wanted in self.access.objects(self.spec):
            self._create(manifest.collection(self.place, wanted), manifest.belonging(self.place, owner, wanted))
        bodies = []
        for grant in grants:
            options, needs = self.place.options, self.access.pod(self.spec, grant)
            arguments = manifest.command(self.spec, self.loads[grant.index], grant.index, options, self.exposition)
            bodies.append(manifest.pod(self.place, owner, grant.index, arguments, needs, self.token, deadline_seconds))
            bodies[-1]["metadata"]["annotations"] |= self.annotations
            if "fault" in self.spec:
                # The first process of a PID namespace is deaf to the signals that it sends itself.
                bodies[-1]["spec"]["shareProcessNamespace"] = True
        self.names = [body["metadata"]["name"] for body in bodies]
        self._created = time.monotonic()
        _of_each(lambda body: self._create(self.collection, body), bodies)
        self.watcher.start()

    def _create(self, collection: str, body: Json) -> Json:
        """Create an object, or take the one that a call made whose answer was lost. Raises NodeError."""
        metadata = body["metadata"]
        mark = {manifest.ATTEMPT_ANNOTATION: self.attempt}
        marked = {**body, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **mark}}}
        try:
            return self.api.create(collection, marked)
        except ApiRefused as refused:
            if refused.status != 409:
                raise
            # The driver may list objects there, and not get them.
            for found in self.api.get(collection, fieldSelector=f"metadata.name={metadata['name']}")["items"]:
                if (found["metadata"].get("annotations") or {}).get(manifest.ATTEMPT_ANNOTATION) == self.attempt:
                    return dict(found)
            raise

    def stop(self) -> None:
        """Put the tenants' logs into this job's log, and remove the cell's objects."""
        self.watcher.end()
        for endpoint in self._endpoints.values():
            endpoint.close()
        # An API server that stays away has no logs either, and each would be waited for.
        names = self.names if self.watcher.failure is None else []
        for index, text in enumerate(_of_each(self._log, names)):
            for line in text.splitlines():
                print(f"tenant {index}: {line}", file=sys.stderr)
        sweep(self.api, self.place.namespace, {manifest.CELL_LABEL: self.place.cell})
        self.access.clean()

    def _log(self, name: str) -> str:
        if name not in self._logs:
            text = ""
            with contextlib.suppress(NodeError):
                text = self.api.text(f"{self.collection}/{name}/log", container=manifest.CONTAINER, tailLines=LOG_LINES)
            self._logs[name] = text
        return self._logs[name]

    # Watching.

    def pods(self) -> list[Json]:
        """The pods as last seen, in order. Raises NodeError when one cannot be had, or the API server stays away."""
        if self.watcher.failure is not None:
            raise self.watcher.failure
        known = self.watcher.pods
        found = [known[name] for name in self.names if name in known]
        if self.watcher.has_looked and len(found) < len(self.names):
            missing = next(name for name in self.names if name not in known)
            raise NodeError(f"tenant {self.names.index(missing)}: its pod is gone; somebody deleted it")
        for index, pod in enumerate(found):
            if pod_status.ended(pod) is not None:
                continue
            why = pod_status.trouble(pod, time.monotonic() - self._created)
            if why is None and pod_status.is_ready_no_more(pod):
                why = pod_status.node_trouble(self.read_node())
            if why is not None:
                raise NodeError(f"tenant {index}: {why}")
        waiting = [pod["metadata"]["name"] for pod in found if "waiting" in pod_status.container(pod)]
        if waiting and (why := self.access.trouble(waiting, time.monotonic() - self._created)) is not None:
            raise NodeError(why)
        return found

    def _ended(self) -> list[tuple[str, str, int] | None]:
        return [pod_status.ended(pod) for pod in self.pods()]

    def _pause(self, seconds: float) -> None:
        """Until something of a pod changes, at most so long."""
        with self.watcher.changed:
            self.watcher.changed.wait(seconds)

    def wait_ready(self) -> None:
        """Until every tenant is warm. Raises TenantsFailed when one ended or time ran out, NodeError as `pods` does."""
        deadline = time.monotonic() + self.timeouts["start_seconds"]
        waiting = set(range(len(self.names)))
        while waiting and time.monotonic() < deadline:
            pods, ended = self.pods(), self._ended()
            if any(end is not None and end[0] != "oom" for end in ended):
                break
            waiting -= {index for index in waiting & set(range(len(pods))) if ended[index] is not None}
            running = [index for index in sorted(waiting) if index < len(pods) and pod_status.is_running(pods[index])]
            for index in running:
                if index not in self._endpoints:
                    self._endpoints[index] = self._endpoint(index, pods[index])
            warm = _of_each(self._is_warm, running)
            waiting -= {index for index, is_warm in zip(running, warm, strict=True) if is_warm}
            if waiting:
                self._pause(POLL_SECONDS)
        ended = self._ended()
        for name, end in zip(self.names, ended, strict=False):
            if end is not None and end[2] == EXIT_USAGE:
                said = self._log(name).strip() or "a tenant refused its arguments"
                raise NodeError(said.splitlines()[-1])
        if any(ended) or waiting:
            self._hung = {index for index in waiting if not any(ended)}
            self._refuse_what_never_ran(waiting)
            raise TenantsFailed("not every tenant got ready")
        self._sampler = PodSampler(self._endpoints[0])
        self._same_clock()

    def _is_warm(self, index: int) -> bool:
        self._silences.pop(index, None)
        try:
            return self._endpoints[index].ready()
        except TenantUnreachable as silence:
            self._silences[index] = silence
            return False

    def _refuse_what_never_ran(self, waiting: set[int]) -> None:
        """Raise NodeError for a pod that did not even start, or cannot be reached: that says nothing about sharing."""
        for index in sorted(waiting):
            silence = self._silences.get(index)
            if index in self._hung and silence is not None and isinstance(silence.__cause__, PodUnreachable):
                raise NodeError(f"tenant {index}: {silence}")
            pod = self.watcher.pods.get(self.names[index], {})
            if pod and not pod_status.is_running(pod) and pod_status.ended(pod) is None:
                phase = pod.get("status", {}).get("phase", "unknown")
                raise NodeError(f"tenant {index}: its pod did not start within its time (phase {phase})")

    def _endpoint(self, index: int, pod: Json) -> PodEndpoint:
        if self.reach == "pod-ip":
            return PodEndpoint(pod["status"]["podIP"], self.token, None)
        name = self.names[index]
        namespace = self.place.namespace
        return PodEndpoint("localhost", self.token, lambda seconds: forwarded(self.api, namespace, name, PORT, seconds))

    def _same_clock(self) -> None:
        """Learn the node's clock. Raises NodeError when the tenants are not under one kernel."""
        readings = _of_each(PodEndpoint.reading, self.endpoints())
        if len({each.boot_id for each in readings}) != 1:
            raise NodeError("the tenants do not run under one kernel, so that they share no clock and no GPU")
        best = min(readings, key=lambda each: each.after_ns - each.before_ns)
        self._offset_ns = best.node_ns - (best.before_ns + best.after_ns) // 2
        created_ns = int(self._created * NS) + self._offset_ns
        for endpoint, reading in zip(self.endpoints(), readings, strict=True):
            endpoint.process_seconds = (reading.first_line_ns - created_ns) / NS

    # What a cell asks.

    def endpoints(self) -> Sequence[PodEndpoint]:
        """The tenants' endpoints, in order."""
        return [self._endpoints[index] for index in range(len(self.names))]

    def sampler(self) -> PodSampler:
        """What samples the GPU since all tenants were warm, from within the first one's pod."""
        assert self._sampler is not None
        return self._sampler.begun()

    def metrics_addresses(self) -> list[str]:
        """Where a Prometheus that reaches pods finds the tenants' metrics, as `host:port`, in order."""
        return [f"{pod['status']['podIP']}:{PORT}" for pod in self.pods()]

    def outcomes(self) -> list[Outcome]:
        """`status` and `exit` of each tenant, in order; a running one is `ok`."""
        outcomes: list[Outcome] = []
        for index, name in enumerate(self.names):
            end: tuple[TenantStatus, str, int | None] | None
            end = pod_status.ended(self.watcher.pods.get(name, {"metadata": {}}))
            if end is None and index in self._hung:
                end = "hung", f"not ready after {self.timeouts['start_seconds']:g} s", None
            if end is None:
                outcomes.append({"status": "ok", "exit": None})
            else:
                status, reason, code = end
                tail = self._log(name)[-LOG_TAIL_CHARACTERS:]
                outcomes.append({"status": status, "exit": {"code": code, "reason": reason, "log_tail": tail}})
        return outcomes

    def now_ns(self) -> int:
        """The node's monotonic clock, as far as this process knows it."""
        return time.monotonic_ns() + self._offset_ns

    def sleep_until(self, monotonic_ns: int) -> None:
        """Wait in the node's clock. Raises TenantsFailed when a tenant ends, NodeError when its pod is taken away."""
        while (left_ns := monotonic_ns - self.now_ns()) > 0:
            self._pause(left_ns / NS)
            if any(end is not None for end in self._ended()):
                raise TenantsFailed("a tenant ended early")

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Wait in the node's clock, whoever ends; when they ended, in ns, by index.

        A tenant's connection ends with it, its pod's status up to some seconds later. Raises NodeError as `pods` does.
        """
        connections = {each.connection: i for i, each in enumerate(self.endpoints()) if each.connection is not None}
        cut_ns: dict[int, int] = {}
        ended_ns: dict[int, int] = {}

        def look() -> None:
            for index, end in enumerate(self._ended()):
                if end is not None and index not in ended_ns:
                    ended_ns[index] = cut_ns.get(index, self.now_ns())

        while (left_ns := monotonic_ns - self.now_ns()) > 0:
            for cut in select.select(connections, [], [], min(left_ns / NS, POLL_SECONDS))[0]:
                cut_ns[connections.pop(cut)] = self.now_ns()
            look()
        deadline = time.monotonic() + REPORTED_SECONDS
        while cut_ns.keys() - ended_ns.keys() and time.monotonic() < deadline:
            self._pause(POLL_SECONDS)
            look()
        return ended_ns


def _of_each(ask: Callable[[Each], Answer], each: Sequence[Each]) -> list[Answer]:
    """What is answered for each, asked for all at the same time."""
    if not each:
        return []
    with ThreadPoolExecutor(len(each)) as pool:
        return list(pool.map(ask, each))


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def sweep(api: Api, namespace: str, labels: Mapping[str, str]) -> None:
    """Remove the ConfigMaps and pods with these labels and wait until the pods are gone. Raises NodeError."""
    core, selector = f"/api/v1/namespaces/{namespace}", _selector(labels)
    try:
        for each in api.get(f"{core}/configmaps", labelSelector=selector)["items"]:
            api.delete(f"{core}/configmaps/{each['metadata']['name']}", propagationPolicy="Background")
        # The garbage collector would do it too, a little later.
        names = [pod["metadata"]["name"] for pod in api.get(f"{core}/pods", labelSelector=selector)["items"]]
        _of_each(lambda name: api.delete(f"{core}/pods/{name}", grace_seconds=manifest.GRACE_SECONDS), names)
        wait_until_gone(api, f"{core}/pods", selector, GONE_SECONDS)
    except ApiRefused as refused:
        if refused.status != 404:
            raise
