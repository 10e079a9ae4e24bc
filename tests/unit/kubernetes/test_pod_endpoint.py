"""The driver's connection to a tenant in a pod: kept, reopened where it broke, and through a forwarded port."""

import base64
import contextlib
import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes import client
from unit.kubernetes.test_pods import OPTIONS, OnePodList, pod

from sharebench.nodes.contract import NodeError, TenantsFailed, TenantUnreachable
from sharebench.nodes.kubernetes.pods import endpoint as endpoint_module
from sharebench.nodes.kubernetes.pods import forward
from sharebench.nodes.kubernetes.pods.endpoint import PodEndpoint
from sharebench.nodes.kubernetes.pods.forward import PodUnreachable, forwarded
from sharebench.nodes.kubernetes.pods.manifest import PORT, Place
from sharebench.nodes.kubernetes.pods.tenants import PodTenants
from tenant.server import Server, State


class Forwarder:
    """Opens sockets to a tenant's server, as the API server does for a pod's port, and can cut them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.opened: list[socket.socket] = []

    def __call__(self, timeout_seconds: float) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout_seconds)
        self.opened.append(made)
        return made


class Stuck(Forwarder):
    """The first socket carries one question and its answer; then nothing comes through, and neither end closes it.

    So the library's port-forward ends when its connection to the API server is reset.
    """

    def __call__(self, timeout_seconds: float) -> socket.socket:
        made = super().__call__(timeout_seconds)
        if len(self.opened) > 1:
            return made
        ours, self.theirs = socket.socketpair()

        def ask_once() -> None:
            made.sendall(self.theirs.recv(65536))

        def answer() -> None:
            # Until the test is over.
            with contextlib.suppress(OSError):
                while data := made.recv(65536):
                    self.theirs.sendall(data)

        for relay in (ask_once, answer):
            threading.Thread(target=relay, daemon=True).start()
        return ours


class OnceMute:
    """A server that takes a whole request on each of its first connections and hangs up without a word."""

    def __init__(self, mute: int) -> None:
        self.requests = 0
        self.mute = mute
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self.listening.accept()
            except OSError:
                return
            with taken:
                # The first question of a connection is answered, the second one, as long as it is mute, is not.
                for number in range(2):
                    if not taken.recv(65536):
                        break
                    self.requests += 1
                    if number and self.mute:
                        self.mute -= 1
                        break
                    body = b'{"status": "ready"}'
                    taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def forwarder(state: State) -> Forwarder:
    server = Server("127.0.0.1", 0, "token", state)
    server.start()
    return Forwarder(server.port)


@pytest.fixture
def endpoint(forwarder: Forwarder) -> PodEndpoint:
    return PodEndpoint("localhost", "token", forwarder)


def test_all_questions_go_through_one_connection(endpoint: PodEndpoint, forwarder: Forwarder, state: State) -> None:
    assert not endpoint.ready()
    state.status = "ready"
    assert endpoint.ready()
    boot_id, *_ = endpoint.reading()
    assert boot_id
    assert len(forwarder.opened) == 1


def test_after_a_refusal_which_ends_it_there_is_a_new_one(endpoint: PodEndpoint, forwarder: Forwarder) -> None:
    assert not endpoint.set_window(1, 2)
    endpoint.reading()
    endpoint.reading()
    assert len(forwarder.opened) == 2


def test_one_that_was_cut_meanwhile_is_not_asked(endpoint: PodEndpoint, forwarder: Forwarder) -> None:
    endpoint.reading()
    forwarder.opened[0].shutdown(socket.SHUT_RDWR)
    # As it is seen at once, nothing is sent that might be lost: a window may be announced like this.
    assert not endpoint.set_window(1, 2)
    assert len(forwarder.opened) == 2


def test_it_is_not_kept_beyond_the_end(endpoint: PodEndpoint, forwarder: Forwarder) -> None:
    endpoint.reading()
    endpoint.close()
    assert forwarder.opened[0].fileno() == -1
    endpoint.reading()
    assert len(forwarder.opened) == 2


def test_a_question_that_the_end_cuts_off_is_not_asked_again(
    endpoint: PodEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As to a tenant that is stopped: it answers when it is ended, by the end of its connection."""
    endpoint.reading()
    asked = []

    def cut_off(connection: Any, *_: Any) -> Any:
        asked.append(connection)
        endpoint.close()
        raise ConnectionResetError

    monkeypatch.setattr(endpoint, "_ask", cut_off)
    with pytest.raises(TenantUnreachable, match="GET /record"):
        endpoint.record(1.0)
    assert len(asked) == 1


@pytest.fixture
def mute() -> Iterator[OnceMute]:
    server = OnceMute(1)
    yield server
    server.listening.close()


def test_what_only_asks_asks_again_where_the_connection_broke(mute: OnceMute) -> None:
    endpoint = PodEndpoint("localhost", "token", Forwarder(mute.port))
    assert endpoint.ready()
    assert endpoint.ready()
    assert mute.requests == 3


def test_one_that_leads_nowhere_any_more_is_left(
    forwarder: Forwarder, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "READY_TIMEOUT_SECONDS", 1.0)
    state.status = "ready"
    stuck = Stuck(forwarder.port)
    endpoint = PodEndpoint("localhost", "token", stuck)
    assert endpoint.ready()
    assert endpoint.ready()
    assert len(stuck.opened) == 2


def test_what_changes_something_is_never_said_twice(mute: OnceMute) -> None:
    endpoint = PodEndpoint("localhost", "token", Forwarder(mute.port))
    assert endpoint.ready()
    with pytest.raises(TenantUnreachable, match="POST /window"):
        endpoint.set_window(1, 2)
    assert mute.requests == 2


def test_a_silent_tenant_is_given_up_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "READY_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = PodEndpoint("localhost", "token", Forwarder(listening.getsockname()[1]))
        with pytest.raises(TenantUnreachable, match="GET /healthz"):
            endpoint.ready()


def test_without_a_forwarded_port_it_is_kept_too(forwarder: Forwarder, state: State) -> None:
    endpoint: Any = PodEndpoint("127.0.0.1", "token", None)
    endpoint.port = forwarder.port
    state.status = "ready"
    assert endpoint.ready()
    first = endpoint._kept
    assert endpoint.ready()
    assert first is not None
    assert endpoint._kept is first


def test_two_threads_never_share_a_connection(endpoint: PodEndpoint, state: State) -> None:
    state.status = "ready"
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: endpoint.ready(), range(400)))
    assert answers == [True] * 400


def test_an_address_where_nothing_answers_is_told_from_a_tenant_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "READY_TIMEOUT_SECONDS", 0.2)
    # With its queue full, a kernel answers no more: as behind a network that drops what comes.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as waiting:
        address = listening.getsockname()
        for _ in range(4):
            made = waiting.enter_context(socket.socket())
            made.setblocking(False)
            made.connect_ex(address)
        endpoint: Any = PodEndpoint("127.0.0.1", "token", None)
        endpoint.port = address[1]
        with pytest.raises(TenantUnreachable, match=r"GET /healthz: nothing answers at the pod's address") as caught:
            endpoint.ready()
    assert isinstance(caught.value.__cause__, PodUnreachable)


# Far beyond every time-out that is set here, and no test waits for it.
LONG_SECONDS = 30.0
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SWITCHING = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
)


class ApiServer:
    """Takes connections, and says nothing at all, or opens the port and then says nothing."""

    def __init__(self, opens: bool) -> None:
        self.opens = opens
        self.connections = 0
        self._taken: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.api: Any = OnePodList([pod(0)])
        host = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.api.client = client.ApiClient(client.Configuration(host=host))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        # Until the test is over.
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                self._taken.append(taken)
                self.connections += 1
                if self.opens:
                    self._open(taken)

    def _open(self, taken: socket.socket) -> None:
        asked = taken.recv(65536).decode()
        key = re.search(r"Sec-WebSocket-Key: (\S+)", asked, re.IGNORECASE)
        assert key is not None
        digest = hashlib.sha1((key[1] + WEBSOCKET).encode()).digest()
        taken.sendall(f"{SWITCHING}Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n\r\n".encode())

    def send(self, messages: list[bytes]) -> None:
        """Once the port is open, as binary messages."""
        self._taken[-1].sendall(b"".join(bytes([0x82, len(each)]) + each for each in messages))

    def receive(self, count: int) -> bytes:
        return self._taken[-1].recv(count, socket.MSG_WAITALL)

    def hang_up(self) -> None:
        self._taken[-1].shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """As a server that was killed."""
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
            monkeypatch.setattr(forward, "OPEN_SECONDS", 0.3)
        made.append(ApiServer(opens))
        return made[-1]

    yield make
    for each in made:
        each.close()


def endpoint_of(server: ApiServer) -> PodEndpoint:
    return PodEndpoint("localhost", "token", lambda seconds: forwarded(server.api, "ns", "a-pod", PORT, seconds))


def test_one_that_does_not_open_is_tried_again_and_given_up(make: Make) -> None:
    server, began = make(False), time.monotonic()
    with pytest.raises(PodUnreachable, match=r"the API server forwards no port of the pod: .*timed out"):
        forwarded(server.api, "ns", "a-pod", PORT, 3.0)
    assert time.monotonic() - began < LONG_SECONDS
    assert server.connections > 1


def test_one_that_leads_nowhere_is_given_up(make: Make) -> None:
    server, began = make(True), time.monotonic()
    with pytest.raises(TenantUnreachable, match="GET /healthz: timed out"):
        endpoint_of(server).ready()
    assert time.monotonic() - began < LONG_SECONDS
    assert server.connections == 1


def test_one_that_is_reset_ends_at_our_end_too(make: Make) -> None:
    """So that the next question is not sent into it."""
    server = make(True)
    given = forwarded(server.api, "ns", "a-pod", PORT, LONG_SECONDS)
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
def test_its_data_end_with_it_or_with_an_error(make: Make, messages: list[bytes], data: bytes) -> None:
    server = make(True)
    given = forwarded(server.api, "ns", "a-pod", PORT, LONG_SECONDS)
    server.send(messages)
    server.hang_up()
    with given.makefile("rb") as reader:
        assert reader.read() == data


def test_an_answer_that_ends_the_connection_is_read_to_its_end(make: Make) -> None:
    """The HTTP client closes the connection when it has seen the head, and reads the body then."""
    server = make(True)
    connection = endpoint_module._Forwarded(
        "localhost", PORT, LONG_SECONDS, lambda seconds: forwarded(server.api, "ns", "a-pod", PORT, seconds)
    )
    connection.request("GET", "/readyz")
    head = b"\x00HTTP/1.1 503 Not yet\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
    server.send([b"\x00\x40\x1f", b"\x01\x40\x1f", head, b"\x00body"])
    answer = connection.getresponse()
    assert connection.sock is None
    assert (answer.status, answer.read()) == (503, b"body")


def test_what_is_sent_is_of_the_data_channel(make: Make) -> None:
    server = make(True)
    given = forwarded(server.api, "ns", "a-pod", PORT, LONG_SECONDS)
    given.sendall(b"GET /")
    head = server.receive(6)
    assert (head[0] & 0xF, head[1] & 0x7F) == (2, 6), "binary, and one byte more than what was sent"
    masked = server.receive(6)
    assert bytes(byte ^ head[2 + at % 4] for at, byte in enumerate(masked)) == b"\x00GET /"
    given.close()
    with pytest.raises(OSError):
        given.sendall(b"more")


@pytest.mark.parametrize(
    ("opens", "kind", "line"),
    [
        (False, NodeError, "tenant 0: GET /healthz: the API server forwards no port of the pod"),
        (True, TenantsFailed, "not every tenant got ready"),
    ],
)
def test_a_pod_that_cannot_be_reached_is_not_a_tenant_that_hangs(
    make: Make, opens: bool, kind: type[Exception], line: str
) -> None:
    """Where the port is open, it is the tenant that does not answer: a result."""
    server = make(opens)
    timeouts = {"start_seconds": 1.0, "record_seconds": 1.0}
    place = Place("gpu-node", "abc", OPTIONS)
    access: Any = None
    given = {"timeouts": timeouts, "loads": [{}]}
    tenants = PodTenants(
        api=server.api,
        place=place,
        spec={"workload": {"kind": "loop"}},
        settings=given,
        read_node=lambda: {},
        reach="port-forward",
        access=access,
    )
    tenants.names = ["sharebench-abc-0"]
    tenants.watcher.start()
    with pytest.raises(kind, match=line):
        tenants.wait_ready()
