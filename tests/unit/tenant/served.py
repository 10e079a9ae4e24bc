"""An HTTP server in memory for the client, under a clock that advances only when everything waits."""

from __future__ import annotations

import asyncio
import json
import math
import selectors
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, cast

from tenant.client.connection import Client, Connection, Exchange
from tenant.client.request_loop import RequestLoop
from tenant.contract import SteadinessRule, TenantReport
from tenant.load import Load
from tenant.measure import Measurement
from tenant.record import Identity
from tenant.workload import Work, Workload

from .conftest import MS, FakeClock

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ERROR = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(said: object) -> bytes:
    return chunk(f"data: {json.dumps(said)}\n\n".encode())


def word(text: str = "word ", **more: object) -> bytes:
    """An event of a completion."""
    return event({"choices": [{"index": 0, "text": text, "finish_reason": None}], **more})


DONE = chunk(b"data: [DONE]\n\n") + chunk(b"")
Answer = Callable[[int], Sequence[tuple[int, bytes]]]
"""The answer to request N in pieces, each with its delay in ns after the one before. An empty piece hangs up."""


class MemoryWire:
    """The server's end of a connection, which refuses if the server does."""

    def __init__(self, loop: MemoryLoop, connection: Connection) -> None:
        self.loop, self.connection, self.is_closed = loop, connection, False
        self.is_connected = not loop.is_refusing
        # Whether the server had read the request when it hung up.
        self.is_received = False
        if loop.is_refusing:
            loop.call_soon(connection.connection_lost, ConnectionRefusedError())

    def close(self) -> None:
        self.is_closed = True

    def hang_up(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.loop.call_soon(self.connection.connection_lost, None)

    def send(self, data: bytes) -> None:
        self.is_received = False
        if self.loop.is_closing:
            self.hang_up()
        if self.is_closed or not self.is_connected:
            return
        number = len(self.loop.requests)
        self.loop.requests.append((self.loop.clock.now_ns, data))
        self.is_received = True
        self.plan(self.loop.clock.now_ns, list(self.loop.answer(number)))

    def plan(self, since_ns: int, pieces: list[tuple[int, bytes]]) -> None:
        if pieces:
            at_ns = since_ns + pieces[0][0]
            self.loop.call_at(at_ns / 1e9, self.deliver, at_ns, pieces)

    def deliver(self, at_ns: int, pieces: list[tuple[int, bytes]]) -> None:
        (_, piece), *rest = pieces
        if self.is_closed:
            return
        self.plan(at_ns, rest)
        if piece:
            self.connection.data_received(piece, at_ns)
        else:
            self.hang_up()


class Waits(selectors.SelectSelector):
    """A selector that advances the clock instead of waiting."""

    clock: FakeClock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        if timeout > 0:
            self.clock.now_ns += math.ceil(timeout * 1e9)
        return super().select(0)


class MemoryLoop(asyncio.SelectorEventLoop):
    """An event loop whose connections lead to a server with these answers; `requests` has (time in ns, content)."""

    def __init__(self, clock: FakeClock, answer: Answer) -> None:
        self.clock = clock
        waits = Waits()
        waits.clock = clock
        super().__init__(waits)
        self.answer = answer
        self.requests: list[tuple[int, bytes]] = []
        self.connections = 0
        # Whether the next request finds its connection closed.
        self.is_closing = False
        self.is_refusing = False

    def time(self) -> float:
        return self.clock.now_ns / 1e9


class MemoryClient(Client):
    """A client of the server in such a loop."""

    loop: MemoryLoop

    def new_connection(self) -> Connection:
        self.loop.connections += 1
        self.loop.is_closing = False
        connection = Connection(self)
        connection.wire = cast(Any, MemoryWire(self.loop, connection))
        return connection


class Served(Workload):
    """The client workload of a server in memory."""

    work = Work(None, None, 1)
    is_client = True

    def __init__(self, clock: FakeClock, answer: Answer, is_stream: bool = True) -> None:
        self.is_stream = is_stream
        self.server = MemoryLoop(clock, answer)
        self.client = MemoryClient(("server", 80), self.server, clock)
        self.request_loop: RequestLoop | None = None
        self.window_start_ns = 0

    def loop(self, load: Load, tenant: int, lock: Lock, clock: Callable[[], int]) -> RequestLoop:
        period = 1 if self.trace is None else len(self.trace.rows)
        self.request_loop = RequestLoop(self.client, self._exchange, load.max_in_flight, lock, clock, period)
        return self.request_loop

    def _exchange(self, phase: int, number: int) -> Exchange:
        return Exchange(b"%d %d" % (phase, number), 200, self.is_stream)

    def on_window(self, start_ns: int, end_ns: int) -> None:
        assert self.request_loop is not None
        self.request_loop.start_window(start_ns)
        self.window_start_ns = start_ns

    def end_load(self) -> None:
        assert self.request_loop is not None
        self.request_loop.end()

    def step(self) -> None:
        raise AssertionError("requests overlap")

    def output_digest(self) -> list[float]:
        return []


def warmed(workload: Served, load: Load, clock: FakeClock, rule: SteadinessRule) -> Measurement:
    """A measurement that has warmed up."""
    measurement = Measurement(workload, Identity(0, "served", 0, 0, 0), load, rule, clock, clock.sleep)
    measurement.warm_up()
    return measurement


def measured(workload: Served, load: Load, clock: FakeClock, seconds: float, waits_seconds: float = 60) -> TenantReport:
    """The record of a window 100 ms after warm-up; it is cut off if it lasts `waits_seconds` longer."""
    measurement = warmed(workload, load, clock, SteadinessRule(min_iterations=4, max_seconds=2, tolerance_percent=5))
    start_ns = clock.now_ns + 100 * MS
    end_ns = start_ns + round(seconds * 1e9)
    measurement.set_window(start_ns, end_ns)
    while measurement._recorder.window is not None and clock.now_ns < end_ns + round(waits_seconds * 1e9):
        measurement.run_chunk()
    return measurement.wait_record(0)
