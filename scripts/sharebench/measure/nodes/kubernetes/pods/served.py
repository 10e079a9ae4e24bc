"""A user's server whose client is in a pod of its own, and reaches it through a Service.

The observer in the server's pod sees what the client does not: the server's device, processes, CPU time and memory.
"""

from collections.abc import Sequence
from functools import partial

from sharebench.measure.nodes.contract import Grant, NodeError
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.pods import status as pod_status
from sharebench.measure.nodes.kubernetes.pods.manifest import CLIENT_CONTAINER
from sharebench.measure.nodes.kubernetes.pods.pod import CellContext, TenantPod
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from sharebench.measure.nodes.tenants.programs.endpoints import ClientEndpoint
from sharebench.model.user_manifest import CLIENT_PORT
from tenant.contract import TenantReport

SEEN_BY_OBSERVER = ("cpu", "memory_bytes", "outside", "view")


class ServedEndpoint(ClientEndpoint):
    """The client behind a Service, and the observer next to its server."""

    observer: HttpEndpoint

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        is_seen = self.observer.set_window(start_ns, end_ns)
        return super().set_window(start_ns, end_ns, iterations) and is_seen

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        report = super().record(deadline_seconds, ahead_seconds)
        seen = self.observer.record(deadline_seconds, ahead_seconds)
        report.update({key: seen[key] for key in SEEN_BY_OBSERVER})  # type: ignore[literal-required, typeddict-item]
        return report

    def close(self) -> None:
        super().close()
        self.observer.close()


class ServedPod(TenantPod):
    """A server's pod, and that of its client, whose manifest is `client_body`."""

    def __init__(self, context: CellContext, grant: Grant, body: Json, client_body: Json) -> None:
        super().__init__(context, grant, body)
        self.client = TenantPod(context, grant, client_body)

    @property
    def bodies(self) -> list[Json]:
        return [self.body, self.client.body]

    @property
    def host(self) -> str:  # type: ignore[override]
        """The client's, which has the metrics."""
        return self.client.host

    def connect(self) -> Sequence[HttpEndpoint]:
        token, client, own = self.context.token, self.client.open_socket, self.open_socket
        endpoint = ServedEndpoint(self.observed_program(), CLIENT_PORT, token, partial(client, CLIENT_PORT))
        endpoint.observer = HttpEndpoint(CLIENT_PORT, token, partial(own, CLIENT_PORT))
        return [endpoint]

    def is_ready(self) -> bool:
        return pod_status.is_running(self.client.pod) and super().is_ready()

    def refuse_unavailable(self) -> None:
        super().refuse_unavailable()
        if self.ending() is not None:
            return
        try:
            self.client.refuse_unavailable()
        except NodeError as error:
            raise type(error)(str(error).replace(": ", ": its client's pod: ", 1)) from None

    def complaint(self) -> str | None:
        is_client_up = pod_status.is_running(self.client.pod)
        return super().complaint() if is_client_up else self.client.complaint()

    def read_client_log(self) -> str:
        return self.client.read_log(CLIENT_CONTAINER)

    def logs(self) -> list[str]:
        return [*super().logs(), self.read_client_log()]
