"""The driver's connection to a tenant in a pod is kept, and reopened if it breaks."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from unit import factories

from sharebench.measure.nodes.contract import Grant, TenantUnreachable
from sharebench.measure.nodes.kubernetes.pods.forward import PodUnreachable
from sharebench.measure.nodes.kubernetes.pods.pod import TenantPod
from sharebench.measure.nodes.tenants import endpoint as endpoint_module
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from tenant.server import Server, State


class Forwarder:
    """Opens sockets to a tenant's server, like the API server for a pod's port, and can cut them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.opened: list[socket.socket] = []

    def __call__(self, timeout_seconds: float) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout_seconds)
        self.opened.append(made)
        return made


class OnceMute:
    """A server that hangs up after the second request on each of its first connections, without an answer."""

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
                # The first request of a connection is answered, and the second one only if it is not mute any more.
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
def endpoint(forwarder: Forwarder) -> HttpEndpoint:
    return HttpEndpoint(1, "token", forwarder)


def test_all_requests_share_one_connection(endpoint: HttpEndpoint, forwarder: Forwarder, state: State) -> None:
    assert not endpoint.ready()
    state.status = "ready"
    assert endpoint.ready()
    boot_id, *_ = endpoint.read_clock()
    assert boot_id
    assert len(forwarder.opened) == 1


def test_after_a_refusal_a_new_connection_is_opened(endpoint: HttpEndpoint, forwarder: Forwarder) -> None:
    assert not endpoint.set_window(1, 2)
    endpoint.read_clock()
    endpoint.read_clock()
    assert len(forwarder.opened) == 2


def test_a_connection_that_was_cut_is_not_used(endpoint: HttpEndpoint, forwarder: Forwarder) -> None:
    endpoint.read_clock()
    forwarder.opened[0].shutdown(socket.SHUT_RDWR)
    # The cut is noticed before anything is sent, so even a window may be announced.
    assert not endpoint.set_window(1, 2)
    assert len(forwarder.opened) == 2


def test_a_request_cut_off_by_close_is_not_repeated(endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a tenant that is stopped, whose connection ends with it."""
    endpoint.read_clock()
    asked = []

    def cut_off(connection: Any, *_: Any) -> Any:
        asked.append(connection)
        endpoint.close()
        raise ConnectionResetError

    monkeypatch.setattr(endpoint, "_exchange", cut_off)
    with pytest.raises(TenantUnreachable, match="GET /record"):
        endpoint.record(1.0)
    assert len(asked) == 1


@pytest.fixture
def mute() -> Iterator[OnceMute]:
    server = OnceMute(1)
    yield server
    server.listening.close()


def test_a_get_is_repeated_after_a_broken_connection(mute: OnceMute) -> None:
    endpoint = HttpEndpoint(1, "token", Forwarder(mute.port))
    assert endpoint.ready()
    assert endpoint.ready()
    assert mute.requests == 3


def test_a_post_is_never_repeated(mute: OnceMute) -> None:
    endpoint = HttpEndpoint(1, "token", Forwarder(mute.port))
    assert endpoint.ready()
    with pytest.raises(TenantUnreachable, match="POST /window"):
        endpoint.set_window(1, 2)
    assert mute.requests == 2


def test_two_threads_never_share_a_connection(endpoint: HttpEndpoint, state: State) -> None:
    state.status = "ready"
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: endpoint.ready(), range(400)))
    assert answers == [True] * 400


def test_a_silent_address_differs_from_a_silent_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "READY_TIMEOUT_SECONDS", 0.2)
    # With a full queue, the kernel does not answer, as behind a network that drops packets.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as waiting:
        address = listening.getsockname()
        for _ in range(4):
            made = waiting.enter_context(socket.socket())
            made.setblocking(False)
            made.connect_ex(address)
        context: Any = SimpleNamespace(reach="pod-ip", spec=factories.spec({}), watcher=SimpleNamespace())
        context.watcher.pods = {"a": {"status": {"podIP": "127.0.0.1"}}}
        pod = TenantPod(context, Grant(0, 0), {"metadata": {"name": "a"}})
        endpoint = HttpEndpoint(address[1], "token", partial(pod.open_socket, address[1]))
        with pytest.raises(TenantUnreachable, match=r"GET /healthz: nothing answers at the pod's address") as caught:
            endpoint.ready()
    assert isinstance(caught.value.__cause__, PodUnreachable)
