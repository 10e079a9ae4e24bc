"""Forwarded ports of a pod: opening them, giving them up, and reading to the end."""

import base64
import contextlib
import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kubernetes import client
from unit import factories
from unit.kubernetes.test_pods import OnePodList, access_of, pod

from sharebench.measure.nodes.contract import Grant, NodeError, TenantsFailed, TenantUnreachable
from sharebench.measure.nodes.kubernetes.pods import forward
from sharebench.measure.nodes.kubernetes.pods.forward import PodUnreachable, open_port
from sharebench.measure.nodes.kubernetes.pods.manifest import TENANT_PORT
from sharebench.measure.nodes.kubernetes.pods.pod import TenantPod
from sharebench.measure.nodes.kubernetes.pods.tenants import PodTenants
from sharebench.measure.nodes.tenants import endpoint as endpoint_module
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint

# Far beyond every time-out here; no test waits for it.
LONG_SECONDS = 300.0
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SWITCHING = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
)


class ApiServer:
    """Accepts connections and never answers, or opens the port and then never answers."""

    def __init__(self, opens: bool) -> None:
        self.opens = opens
        self.refusal = b""
        self.connections = 0
        self._taken: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.api: Any = OnePodList([pod(0)])
        host = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.api.client = client.ApiClient(client.Configuration(host=host))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        # Ends with the test.
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                self._taken.append(taken)
                self.connections += 1
                if self.refusal:
                    taken.recv(65536)
                    taken.sendall(self.refusal)
                elif self.opens:
                    self._open(taken)

    def _open(self, taken: socket.socket) -> None:
        asked = taken.recv(65536).decode()
        key = re.search(r"Sec-WebSocket-Key: (\S+)", asked, re.IGNORECASE)
        assert key is not None
        digest = hashlib.sha1((key[1] + WEBSOCKET).encode()).digest()
        taken.sendall(f"{SWITCHING}Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n".encode())

    def send(self, messages: list[bytes]) -> None:
        """Send binary messages once the port is open."""
        self._taken[-1].sendall(b"".join(bytes([0x82, len(each)]) + each for each in messages))

    def hang_up(self) -> None:
        self._taken[-1].shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connections, like a killed server."""
        for each in self._taken:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()

    def close(self) -> None:
        self.api.over.set()
        for each in (self._listening, *self._taken):
            each.close()


Make = Callable[[bool], ApiServer]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(endpoint_module, "READY_TIMEOUT_SECONDS", 0.5)
    made: list[ApiServer] = []

    def make(opens: bool) -> ApiServer:
        if not opens:
            monkeypatch.setattr(forward, "OPEN_TIMEOUT_SECONDS", 0.3)
        made.append(ApiServer(opens))
        return made[-1]

    yield make
    for each in made:
        each.close()


def endpoint_of(server: ApiServer) -> HttpEndpoint:
    return HttpEndpoint(TENANT_PORT, "token", partial(open_port, server.api, "ns", "a-pod", TENANT_PORT))


def test_a_port_that_does_not_open_is_retried_then_given_up(make: Make) -> None:
    server, began = make(False), time.monotonic()
    with pytest.raises(PodUnreachable, match=r"the API server forwards no port of the pod: .*timed out"):
        open_port(server.api, "ns", "a-pod", TENANT_PORT, 3.0)
    assert time.monotonic() - began < LONG_SECONDS
    assert server.connections > 1


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            b'{"message": "pods \\"p\\" is forbidden: User \\"u\\" cannot create resource"}',
            'not allowed: pods "p" is forbidden: User "u" cannot create resource; `sharebench preflight` lists what is '
            "missing",
        ),
        (b"", "the API server refused (403): no reason given"),
    ],
)
def test_a_refused_port_is_told_by_what_the_server_says(make: Make, body: bytes, line: str) -> None:
    server = make(False)
    server.refusal = b"HTTP/1.1 403 Forbidden\r\nSet-Cookie: a-secret\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with pytest.raises(PodUnreachable) as caught:
        open_port(server.api, "ns", "a-pod", TENANT_PORT, 0.1)
    assert str(caught.value) == f"the API server forwards no port of the pod: {line}"


def test_a_port_without_a_listener_is_given_up(make: Make) -> None:
    server, began = make(True), time.monotonic()
    with pytest.raises(TenantUnreachable, match="GET /healthz: timed out"):
        endpoint_of(server).ready()
    assert time.monotonic() - began < LONG_SECONDS
    assert server.connections == 1


def test_a_port_that_is_reset_ends_on_our_side_too(make: Make) -> None:
    """Otherwise the next request would be sent into it."""
    server = make(True)
    given = open_port(server.api, "ns", "a-pod", TENANT_PORT, LONG_SECONDS)
    server.reset()
    assert given.recv(1) == b""


@pytest.mark.parametrize(
    ("messages", "data"),
    [
        # each channel begins with the port's number
        ([b"\x00\x40\x1f", b"\x01\x40\x1f", b"\x00one ", b"\x00two"], b"one two"),
        ([b"\x00\x40\x1f", b"\x01\x40\x1f", b"\x00one ", b"\x01lost connection to pod", b"\x00two"], b"one "),
    ],
)
def test_a_ports_data_end_with_the_port_or_an_error(make: Make, messages: list[bytes], data: bytes) -> None:
    server = make(True)
    given = open_port(server.api, "ns", "a-pod", TENANT_PORT, LONG_SECONDS)
    server.send(messages)
    server.hang_up()
    with given.makefile("rb") as reader:
        assert reader.read() == data


def test_an_answer_that_ends_the_connection_is_read_completely(make: Make) -> None:
    """The HTTP client closes the connection after the head, and then reads the body."""
    server = make(True)
    forward = partial(open_port, server.api, "ns", "a-pod", TENANT_PORT)
    connection = endpoint_module._Connection(TENANT_PORT, LONG_SECONDS, forward)
    connection.request("GET", "/readyz")
    head = b"\x00HTTP/1.1 503 Not yet\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
    server.send([b"\x00\x40\x1f", b"\x01\x40\x1f", head, b"\x00body"])
    answer = connection.getresponse()
    assert connection.sock is None
    assert (answer.status, answer.read()) == (503, b"body")


@pytest.mark.parametrize(
    ("opens", "kind", "line"),
    [
        (False, NodeError, "tenant 0: GET /healthz: the API server forwards no port of the pod"),
        (True, TenantsFailed, "not every tenant got ready"),
    ],
)
def test_an_unreachable_pod_is_not_a_hung_tenant(make: Make, opens: bool, kind: type[Exception], line: str) -> None:
    """If the port is open, the tenant itself does not answer, which is a result."""
    server = make(opens)
    timeouts = {"start_seconds": 1.0, "record_seconds": 1.0}
    given: Any = {"timeouts": timeouts, "loads": [{}]}
    tenants = PodTenants(access_of(server.api), "abc", factories.spec({}), given, "port-forward")
    tenants.units = [TenantPod(tenants.context, Grant(0, 0), {"metadata": {"name": "sharebench-abc-0"}})]
    tenants._deadline = time.monotonic() + 1.0
    tenants.watcher.start()
    with pytest.raises(kind, match=line):
        tenants.wait_ready()
