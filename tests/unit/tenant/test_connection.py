"""Connections to HTTP servers: what arrives on one, in any bytes and pieces, and how they are made."""

import asyncio
import gzip
import itertools
import select
import socket
import threading
import time
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenant.client.connection import Client, Connection, Exchange
from tenant.client.wire import SO_TIMESTAMPNS, TIMESPEC, arrival_ns
from tenant.workload import RequestError

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class Sink:
    """A wire that takes everything."""

    is_connected, is_closed, is_received = True, False, True

    def send(self, data: bytes) -> None: ...

    def close(self) -> None:
        self.is_closed = True


def outcome(pieces: list[bytes], is_stream: bool = False, expect_status: int = 200) -> str | None:
    """The error of a request that these bytes answer before the connection is closed; None if it succeeded."""
    loop = asyncio.new_event_loop()
    client = Client(("server", 80), loop, time.monotonic_ns)
    connection = Connection(client)
    connection.wire = cast(Any, Sink())
    ended: list[Exchange] = []
    connection.send(Exchange(b"", expect_status, is_stream, done=ended.append))
    for piece in pieces:
        connection.data_received(piece, None)
    connection.connection_lost(None)
    loop.close()
    (exchange,) = ended
    return exchange.error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HEAD + b"Content-Length: abc\r\n\r\n", "broken HTTP: Invalid character in Content-Length"),
        (HEAD + b"Content-Length: -1\r\n\r\n", "broken HTTP: Invalid character in Content-Length"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "broken HTTP: Duplicate Content-Length"),
        (HEAD + b"Content-Length: 9" + b"9" * 30 + b"\r\n\r\n", "broken HTTP: Content-Length overflow"),
        (HEAD + b"A: " + b"x" * 100_000, "broken HTTP: Got more than 8190 bytes when reading"),
        (HEAD + b"A: b\r\n" * 100_000, "broken HTTP: Too many headers received"),
        (HEAD + b"A: \0\r\n\r\n", "broken HTTP: Invalid HTTP header"),
        (CHUNKED + b"zz\r\n", "broken HTTP: Invalid character in chunk size"),
        (b"HTTP/2 200\r\n\r\n", "no HTTP answer, but 'HTTP/2 200'"),
        (b"\x16\x03\x01 hello", "no HTTP answer, but "),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nxx", "status 101"),
        (HEAD + b"Content-Length: 5\r\n\r\nab", "the connection was closed in mid-answer"),
        (CHUNKED + b"2\r\nab\r\n", "the connection was closed in mid-answer"),
        (b"HTTP/1.1 200", "the connection was closed without an answer"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "status 503"),
        (HEAD + b"Content-Length: 2\r\n\r\nab", None),
        (HEAD + b"\r\nuntil it closes", None),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + b"2\r\nab\r\n0\r\nTrailer: x\r\n\r\n", None),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_has_the_cause_of_its_failure(answer: bytes, error: str | None, is_stream: bool) -> None:
    found = outcome([answer], is_stream)
    if error is None:
        # None of these is a stream of tokens.
        assert (found is None) != is_stream
    else:
        assert found is not None and found.startswith(error) and found.isprintable()


def json_answer(content: bytes, kind: bytes = b"application/json", status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind, len(content)) + content


SAYS = "the server says: "
BUSY = b'{"error": {"code": 429}}'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_answer(BUSY), SAYS + "{'code': 429}"),
        (json_answer(b' {"error": "busy"}', b"Application/JSON; charset=utf-8"), SAYS + "busy"),
        (json_answer(b'{"object": "error", "message": "busy"}'), SAYS + "{'object': 'error', 'message': 'busy'}"),
        (json_answer(b'{"choices": [{"error": {"code": 502}}]}'), SAYS + "{'code': 502}"),
        (json_answer(b'{"type": "error"}', status=b"201 Created"), "status 201"),
        (json_answer(BUSY[:-1] + b', "x": "' + b"x" * 1000 + b'"}'), SAYS + "{'code': 429}"),
        (json_answer(b'{"error": null, "choices": []}'), None),
        (json_answer(b'{"error": 0.03, "prediction": 1}'), None),
        (json_answer(b'{"message": {"error": "no"}}'), None),
        (json_answer(b'["error"]'), None),
        (json_answer(b'{"error": '), None),
        (json_answer(b'{"error": ' + b"[" * 10_000), None),
        (json_answer(BUSY, b"text/plain"), SAYS + "{'code': 429}"),
        (json_answer(BUSY, b"application/problem+json"), SAYS + "{'code': 429}"),
        (HEAD + b"Content-Length: 24\r\n\r\n" + BUSY, SAYS + "{'code': 429}"),
        (json_answer(gzip.compress(BUSY)), SAYS + "{'code': 429}"),
        (json_answer(gzip.compress(BUSY)[:-12]), None),
        (json_answer(BUSY[:-1] + b', "x": "' + b"x" * 20_000 + b'"}'), None),
    ],
)
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_a_document_that_reports_an_error_is_no_success(answer: bytes, error: str | None, size: int) -> None:
    assert outcome([answer[at : at + size] for at in range(0, len(answer), size)]) == error


def test_an_error_is_a_success_where_its_status_is_expected() -> None:
    answer = json_answer(BUSY, status=b"429 Too Many")
    assert outcome([answer], expect_status=429) is None and outcome([answer]) == "status 429"


PIECES = (
    *(
        HEAD,
        CHUNKED,
        b"\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"HTTP/1.1 500 x\r\n",
        b"data: {}\n\n",
        b"data: [DONE]\n\n",
    ),
    *(
        b"Content-Length: 3\r\n",
        b"Content-Type: text/event-stream\r\n",
        b"Content-Type: application/json\r\n",
        b"Connection: close\r\n",
    ),
)
BYTES = st.lists(st.sampled_from(PIECES) | st.binary(min_size=1, max_size=12), min_size=1, max_size=8)


@given(BYTES, st.booleans(), st.booleans())
def test_any_bytes_end_the_request(pieces: list[bytes], is_stream: bool, is_joined: bool) -> None:
    outcome([b"".join(pieces)] if is_joined else pieces, is_stream)


@pytest.mark.parametrize("other", [json_answer(b"{}"), json_answer(BUSY)])
def test_two_answers_to_one_request_are_no_success(other: bytes) -> None:
    assert outcome([json_answer(b"{}") + other]) == "two answers to one request"


def client_of(port: int, host: str = "127.0.0.1") -> Client:
    return Client((host, port), asyncio.SelectorEventLoop(), time.monotonic_ns)


def test_a_name_is_looked_up_once_and_a_refusal_is_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = itertools.count()
    original = socket.getaddrinfo

    def counted(*args: Any, **more: Any) -> Any:
        next(looked_up)
        return original(*args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = client_of(server.getsockname()[1], "localhost")
        client.connect()
        assert len(client.idle) == 1
        client.idle.pop().wire.close()
    for _ in range(3):
        exchange = Exchange(b"GET / HTTP/1.1\r\n\r\n", 200, is_stream=False)
        with pytest.raises(RequestError, match=r"^connection refused$"):
            client.ask(exchange)
        assert exchange.is_unreachable and exchange.has_new_connection
    assert next(looked_up) == 1
    client.loop.close()
    closed = client_of(1, "localhost")
    with pytest.raises(RequestError, match=r"^connection refused$"):
        closed.connect()
    closed.loop.close()


@pytest.mark.parametrize("ends", ["after reading the next request", "with the next request unread", "at once"])
def test_only_a_request_that_the_server_has_not_read_is_sent_again(ends: str) -> None:
    has_closed = threading.Event()

    def serve(server: socket.socket, connections: int) -> None:
        for _ in range(connections):
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(json_answer(b"{}"))
                if ends == "after reading the next request":
                    connection.recv(4096)
                elif ends == "with the next request unread":
                    select.select([connection], [], [], 10)
            has_closed.set()

    is_read = ends.startswith("after")
    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve, args=(server, 1 if is_read else 2), daemon=True)
        serving.start()
        client = client_of(server.getsockname()[1])
        first, second = (Exchange(b"GET / HTTP/1.1\r\n\r\n", 200, is_stream=False) for _ in range(2))
        client.ask(first)
        if ends == "at once":
            has_closed.wait(10)
        if is_read:
            with pytest.raises(RequestError, match=r"^the connection was closed without an answer$"):
                client.ask(second)
        else:
            client.ask(second)
        assert second.has_new_connection == (not is_read)
        for connection in client.idle:
            connection.wire.close()
        serving.join(10)
    client.loop.close()


def test_an_answer_ends_when_it_arrives_however_busy_the_client_is() -> None:
    answered_ns: list[int] = []
    has_answered = threading.Event()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            answered_ns.append(time.monotonic_ns())
            connection.sendall(json_answer(b"{}"))
            answered_ns.append(time.monotonic_ns())
            has_answered.set()

    def work() -> None:
        assert has_answered.wait(10)
        time.sleep(0.2)

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve, args=(server,), daemon=True)
        serving.start()
        client = client_of(server.getsockname()[1])
        exchange = Exchange(b"GET / HTTP/1.1\r\n\r\n", 200, is_stream=False)
        # Once the request has been sent.
        client.loop.call_soon(client.loop.call_soon, work)
        client.ask(exchange)
        serving.join(10)
    for connection in client.idle:
        connection.wire.close()
    client.loop.close()
    before_ns, after_ns = answered_ns
    assert exchange.ended_ns is not None
    # The clocks are read one after another.
    assert before_ns - 1_000_000 < exchange.ended_ns < after_ns + 100_000_000


def test_a_step_of_the_clock_turns_back_no_time() -> None:
    now_ns = time.time_ns()

    def arrived(ago_ns: int) -> int:
        ns = arrival_ns([(socket.SOL_SOCKET, SO_TIMESTAMPNS, TIMESPEC.pack(*divmod(now_ns - ago_ns, 10**9)))])
        assert ns is not None
        return ns

    hour_ns = 3600 * 10**9
    assert arrived(hour_ns) < time.monotonic_ns() - hour_ns < arrived(0) - hour_ns + 10**9
    before_ns = time.monotonic_ns()
    assert before_ns <= arrived(-hour_ns) <= time.monotonic_ns()
    assert arrival_ns([]) is None and arrival_ns([(socket.SOL_SOCKET, SO_TIMESTAMPNS, b"")]) is None


def test_times_of_pieces_are_after_the_sending_and_ascend() -> None:
    loop = asyncio.new_event_loop()
    client = Client(("server", 80), loop, lambda: 7)
    connection = Connection(client)
    connection.wire = cast(Any, Sink())
    exchange = Exchange(b"", 200, is_stream=True, begun_ns=5)
    connection.send(exchange)
    stream = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    word = b'data: {"choices": [{"text": "x"}]}\n\n'
    for data, arrived_ns in ((HEAD + stream, 1), *((b"%x\r\n%s\r\n" % (len(word), word), ns) for ns in (2, 9, 8, 11))):
        connection.data_received(data, arrived_ns)
    end = b"data: [DONE]\n\n"
    connection.data_received(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end), None)
    loop.close()
    assert exchange.error is None and exchange.ended_ns == 11
    assert list(exchange.stream().times_ns) == [5, 9, 9, 11]  # type: ignore[union-attr]


def test_an_answer_that_came_long_before_its_request_ends_when_the_client_woke() -> None:
    """The computer's clock went forward between its arrival and the look at it."""
    loop = asyncio.new_event_loop()
    connection = Connection(Client(("server", 80), loop, lambda: 2 * 10**9))
    connection.wire = cast(Any, Sink())
    for early_ns, ended_ns in ((10**9, 2 * 10**9), (10**5, 10**9)):
        exchange = Exchange(b"", 200, is_stream=False, begun_ns=10**9)
        connection.send(exchange)
        connection.data_received(json_answer(b"{}"), 10**9 - early_ns)
        assert (exchange.error, exchange.ended_ns) == (None, ended_ns)
        connection = Connection(Client(("server", 80), loop, lambda: 2 * 10**9))
        connection.wire = cast(Any, Sink())
    loop.close()
