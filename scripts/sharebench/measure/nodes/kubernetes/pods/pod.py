"""One tenant as a pod: its endpoint, its end, and its logs."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sharebench.measure.nodes.contract import Grant, NodeError, TenantUnreachable, WorkloadError
from sharebench.measure.nodes.kubernetes.cluster.api import Api, Json
from sharebench.measure.nodes.kubernetes.pods import status as pod_status
from sharebench.measure.nodes.kubernetes.pods.forward import PodUnreachable, open_port
from sharebench.measure.nodes.kubernetes.pods.manifest import CLIENT_CONTAINER, TENANT_CONTAINER, TENANT_PORT
from sharebench.measure.nodes.kubernetes.pods.watch import PodWatcher
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint, connect_to
from sharebench.measure.nodes.tenants.programs.endpoints import ObservedProgram
from sharebench.measure.nodes.tenants.programs.scraped import endpoint_class
from sharebench.measure.nodes.tenants.tenant_set import Ending, Unit
from sharebench.model.spec import Spec
from sharebench.model.user_manifest import CLIENT_PORT

POLL_SECONDS = 0.2
# A kubelet checks its containers once a second, and reports to the API server a moment later.
KUBELET_REPORT_SECONDS = 10.0
LOG_LINES = 40
# How much of a log is searched for the text that shows that a program is ready.
LOG_BYTES = 1 << 20
LOG_TAIL_CHARACTERS = 2000


@dataclass(frozen=True)
class CellContext:
    """Common settings of a cell's pods; `reach` is `pod-ip` or `port-forward`."""

    spec: Spec
    api: Api
    namespace: str
    collection: str
    watcher: PodWatcher
    reach: str
    token: str

    def pause(self, seconds: float) -> None:
        """Wait until a pod changes, or for this time."""
        with self.watcher.changed:
            self.watcher.changed.wait(seconds)


class TenantPod(Unit):
    """A tenant's pod; `body` is its manifest."""

    def __init__(self, context: CellContext, grant: Grant, body: Json) -> None:
        super().__init__(context.spec, [grant])
        self.context = context
        self.body = body
        self.name: str = body["metadata"]["name"]
        self.created_seconds = time.monotonic()
        """When it was created; set again by the launcher."""
        self._silence: TenantUnreachable | None = None
        self._logs: dict[str, str] = {}

    @property
    def pod(self) -> Json:
        """The pod as last seen."""
        return self.context.watcher.pods.get(self.name, {"metadata": {}, "spec": {}})

    @property
    def bodies(self) -> list[Json]:
        """The manifests of all its pods."""
        return [self.body]

    @property
    def host(self) -> str:  # type: ignore[override]
        return self._address

    @property
    def _address(self) -> str:
        return str(self.pod["status"]["podIP"])

    def connect(self) -> Sequence[HttpEndpoint]:
        port = CLIENT_PORT if self.is_program else TENANT_PORT
        connection = (port, self.context.token, partial(self.open_socket, port))
        if not self.is_program:
            return [HttpEndpoint(*connection)]
        return [endpoint_class(self.workload)(self.observed_program(), *connection)]

    def observed_program(self) -> ObservedProgram:
        return ObservedProgram(self.context.spec, self.index, self._has_printed, self._await_ending)

    def open_socket(self, port: int, timeout_seconds: float) -> Any:
        """Raises PodUnreachable, also where nothing answers: a kernel would, even without a program that listens."""
        if self.context.reach != "pod-ip":
            return open_port(self.context.api, self.context.namespace, self.name, port, timeout_seconds)
        try:
            return connect_to(self._address, port, timeout_seconds)
        except TimeoutError as error:
            line = f"nothing answers at the pod's address {self._address}, as behind a NetworkPolicy"
            raise PodUnreachable(line) from error

    def _has_printed(self, text: str) -> bool:
        """Whether the text is in the first MiB of the program's log."""
        with contextlib.suppress(NodeError):
            return text in self.context.api.get_text(self._log_path, container=TENANT_CONTAINER, limitBytes=LOG_BYTES)
        return False

    def is_ready(self) -> bool:
        if not pod_status.is_running(self.pod):
            return False
        self.connected = self.connected or self.connect()
        self._silence = None
        try:
            return self.connected[0].ready()
        except TenantUnreachable as silence:
            self._silence = silence
            return False

    def refuse_unavailable(self) -> None:
        """Raise NodeError where the pod is gone, or cannot run for a reason of the cluster's."""
        watcher = self.context.watcher
        if watcher.has_listed and self.name not in watcher.pods:
            raise NodeError(f"tenant {self.index}: its pod is gone; someone deleted it")
        if pod_status.ending(self.pod) is None:
            reason = pod_status.unavailable_reason(self.pod, time.monotonic() - self.created_seconds)
            if reason is not None:
                is_workloads = reason == pod_status.container_fault(self.pod)
                raise (WorkloadError if is_workloads else NodeError)(f"tenant {self.index}: {reason}")

    def complaint(self) -> str | None:
        if self._silence is not None and isinstance(self._silence.__cause__, PodUnreachable):
            raise NodeError(f"tenant {self.index}: {self._silence}")
        if not pod_status.is_running(self.pod):
            phase = self.pod.get("status", {}).get("phase", "unknown")
            raise NodeError(f"tenant {self.index}: its pod did not start within its time (phase {phase})")
        return super().complaint()

    def waiting_for(self) -> str | None:
        if not self.is_program:
            return None
        log = self.read_client_log().splitlines()
        return super().waiting_for() or (log[-1] if log else None)

    def ending(self) -> Ending | None:
        end = pod_status.ending(self.pod)
        if end is not None and pod_status.failed_init_container(self.pod) is not None:
            # The manifest is the user's, so that its last line is in its log only.
            status, reason, code = end
            return status, ": ".join([reason, *self.log_tail().strip().splitlines()[-1:]]), code
        return None if end and end[2] == 0 and self.ends_itself else end

    def _await_ending(self) -> Ending | None:
        """Wait for the end of a program; how it failed, or None. Raises NodeError if the kubelet does not report it."""
        deadline = time.monotonic() + KUBELET_REPORT_SECONDS
        while "terminated" not in pod_status.container_state(self.pod):
            if time.monotonic() > deadline:
                raise NodeError(
                    f"tenant {self.index}: its program has ended, and the kubelet has not reported its exit code"
                )
            self.context.pause(POLL_SECONDS)
        return self.ending()

    @property
    def _log_path(self) -> str:
        return f"{self.context.collection}/{self.name}/log"

    def read_log(self, container: str) -> str:
        if container not in self._logs:
            self._logs[container] = ""
            with contextlib.suppress(NodeError):
                self._logs[container] = self.context.api.get_text(
                    self._log_path, container=container, tailLines=LOG_LINES
                )
        return self._logs[container]

    def read_client_log(self) -> str:
        return self.read_log(CLIENT_CONTAINER)

    def logs(self) -> list[str]:
        """The ends of the logs of the containers that matter."""
        failed = pod_status.failed_init_container(self.pod)
        more = [CLIENT_CONTAINER] if pod_status.has_client(self.pod) else []
        return [self.read_log(each) for each in ([failed] if failed else [TENANT_CONTAINER, *more])]

    def log_tail(self) -> str:
        return self.logs()[0][-LOG_TAIL_CHARACTERS:]
