"""A pod's port, forwarded by the API server over a WebSocket, as a socket for http.client."""

import contextlib
import io
import ssl
from typing import Any
from urllib.parse import urlsplit

from sharebench.measure.nodes.kubernetes.cluster.api import (
    RETRY_LIMIT_SECONDS,
    Api,
    Backoff,
    refusal_message,
)

# The API server, the kubelet and the runtime take 0.1 s or more to open a port.
OPEN_TIMEOUT_SECONDS = 10.0
# Each message begins with the number of its channel: 0 for the port's data, 1 for its errors.
PROTOCOL = "v4.channel.k8s.io"
DATA_CHANNEL = 0


class PodUnreachable(ConnectionError):
    """The pod cannot be reached, whatever runs in it."""


class ForwardedPort:
    """An open port with the methods of a socket that http.client uses. A reset counts as the end of the data."""

    def __init__(self, websocket: Any) -> None:
        self._websocket = websocket
        self._announced_channels: set[int] = set()
        self._unread = b""
        self._readers = 0
        self._is_closed = False

    def settimeout(self, seconds: float) -> None:
        self._websocket.settimeout(seconds)

    def fileno(self) -> int:
        return int(self._websocket.fileno())

    def sendall(self, data: bytes) -> None:
        """Raises OSError."""
        from websocket import WebSocketException

        try:
            self._websocket.send_binary(bytes([DATA_CHANNEL]) + data)
        except WebSocketException as error:
            raise ConnectionError(str(error)) from error

    def recv(self, size: int) -> bytes:
        """At most `size` bytes, b"" at the end. Raises TimeoutError."""
        from websocket import WebSocketException, WebSocketTimeoutException

        while not self._unread:
            try:
                message = self._websocket.recv()
            except WebSocketTimeoutException:
                raise TimeoutError("timed out") from None
            except (WebSocketException, OSError):
                return b""
            if not message or isinstance(message, str):
                return b""
            if message[0] not in self._announced_channels:
                # The first message of each channel only has the port's number.
                self._announced_channels.add(message[0])
            elif message[0] == DATA_CHANNEL:
                self._unread = message[1:]
            else:
                return b""
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def makefile(self, mode: str) -> io.BufferedReader:
        """A reader that works after `close`, since http.client reads an answer with `Connection: close` then."""
        self._readers += 1
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        self._is_closed = True
        self._end()

    def reader_closed(self) -> None:
        self._readers -= 1
        self._end()

    def _end(self) -> None:
        if self._is_closed and not self._readers:
            with contextlib.suppress(Exception):
                self._websocket.send_close()
            self._websocket.shutdown()


class _Reader(io.RawIOBase):
    def __init__(self, port: ForwardedPort) -> None:
        self._port = port

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._port.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._port.reader_closed()


def _open(api: Api, namespace: str, pod: str, port: int) -> ForwardedPort:
    from websocket import create_connection

    settings = api.client.configuration
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
    query = [("ports", str(port))]
    # Computed for each connection, since a token may have expired.
    _, url, headers, *_ = api.client.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
    options: dict[str, Any] = {
        "header": headers,
        "subprotocols": [PROTOCOL],
        "sslopt": {
            "cert_reqs": ssl.CERT_REQUIRED if settings.verify_ssl else ssl.CERT_NONE,
            "check_hostname": settings.verify_ssl and settings.assert_hostname is not False,
            "ca_certs": settings.ssl_ca_cert,
            "certfile": settings.cert_file,
            "keyfile": settings.key_file,
            "server_hostname": settings.tls_server_name,
        },
    }
    if settings.proxy:
        proxy = urlsplit(settings.proxy)
        options |= {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port}
        options |= {"http_proxy_auth": (proxy.username, proxy.password)} if proxy.username else {}
        options |= {"http_no_proxy": settings.no_proxy.split(",")} if settings.no_proxy else {}
    return ForwardedPort(create_connection(url.replace("http", "ws", 1), timeout=OPEN_TIMEOUT_SECONDS, **options))


def _reason(error: Exception) -> str:
    """One line; of a refusal what the server says, since the exception's text has all headers of the answer."""
    from websocket import WebSocketBadStatusException

    if isinstance(error, WebSocketBadStatusException):
        return refusal_message(error.status_code, error.resp_body or b"")
    return " ".join(str(error).split())


def open_port(api: Api, namespace: str, pod: str, port: int, timeout_seconds: float) -> ForwardedPort:
    """Open a port with this time-out, for which an unreachable server is retried too. Raises PodUnreachable."""
    from websocket import WebSocketException

    backoff = Backoff(min(timeout_seconds, RETRY_LIMIT_SECONDS))
    while True:
        try:
            forwarded = _open(api, namespace, pod, port)
        except (WebSocketException, OSError) as error:
            if backoff.has_expired:
                raise PodUnreachable(f"the API server forwards no port of the pod: {_reason(error)}") from error
            backoff.pause()
            continue
        forwarded.settimeout(timeout_seconds)
        return forwarded
