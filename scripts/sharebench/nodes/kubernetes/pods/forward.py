"""A socket to a pod's port through the API server, by the Kubernetes library's port-forward."""

from __future__ import annotations

from functools import cache
from typing import Any

from sharebench.nodes.kubernetes.cluster.api import PATIENCE_SECONDS, Api, Backoff

# API server, kubelet and runtime take a tenth of a second and more to open one.
OPEN_SECONDS = 10.0


class PodUnreachable(ConnectionError):
    """The pod cannot be reached, whatever runs in it."""


@cache
def _mend() -> None:
    """Replace the library's WebSocket by one that opens within a time-out, and ends when its connection is reset.

    The library passes no time-out on, and takes no class of websocket. When a connection is reset, its thread ends and
    leaves the socket at our end open.
    """
    from kubernetes.stream import ws_client
    from websocket import WebSocket, WebSocketConnectionClosedException

    class Mended(WebSocket):
        def connect(self, url: str, **options: Any) -> None:
            opening: Any = super().connect
            opening(url, **{"timeout": OPEN_SECONDS, **options})
            # What comes through it later is awaited by a thread of the library's; at our end there is a time-out.
            self.settimeout(None)

        def recv_data_frame(self, control_frame: bool = False) -> Any:
            receiving: Any = super().recv_data_frame
            try:
                return receiving(control_frame)
            except OSError as error:
                raise WebSocketConnectionClosedException(str(error)) from error

    library: Any = ws_client
    library.WebSocket = Mended


def forwarded(api: Api, namespace: str, pod: str, port: int, timeout_seconds: float) -> Any:
    """A socket to the port; its time-out is `timeout_seconds`, for which a server that is away is asked again, too.

    Raises PodUnreachable.
    """
    from kubernetes import client
    from kubernetes.stream import portforward
    from websocket import WebSocketException

    _mend()
    backoff = Backoff(min(timeout_seconds, PATIENCE_SECONDS))
    while True:
        try:
            call = client.CoreV1Api(client.ApiClient(api.client.configuration))
            open_port = call.connect_get_namespaced_pod_portforward
            tunnel = portforward(open_port, pod, namespace, ports=str(port))
        except (client.ApiException, WebSocketException, OSError) as error:
            if backoff.is_over:
                said = " ".join(str(getattr(error, "reason", error)).split())
                raise PodUnreachable(f"the API server forwards no port of the pod: {said}") from error
            backoff.pause()
            continue
        socket = tunnel.socket(port)
        socket.settimeout(timeout_seconds)
        return socket
