"""Connections to an HTTP/1.1 server, kept alive: each answer is stamped as it comes, and read to its end.

The parser of HTTP is aiohttp's, in C. Its session is not used: that takes twice the CPU time, and hands over an answer
only after all others of the moment were received, so that with many in flight the last of them would seem late.
"""

from __future__ import annotations

import asyncio
import errno
import select
import selectors
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aiohttp.http import HttpProcessingError, HttpResponseParser, RawResponseMessage

from tenant.client.events import Pieces, answer_of
from tenant.contract.requests import error_text
from tenant.recorder import Stream
from tenant.workload import RequestError

# What the parser may hold; it is emptied at once.
LIMIT_BYTES = 1 << 16
# At most this much of an error is kept.
ERROR_CHARACTERS = 150
SWITCHING = 200


class Selector(selectors.DefaultSelector):
    """Wakes when a timer is due, not up to a millisecond later as epoll does, and notes when it woke."""

    def __init__(self) -> None:
        super().__init__()
        self.woken_ns = time.monotonic_ns()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            select.select([self.fileno()], [], [], timeout)
        ready = super().select(0)
        self.woken_ns = time.monotonic_ns()
        return ready


@dataclass(eq=False, slots=True)
class Exchange:
    """A request, and what has come of its answer; times are monotonic ns.

    It was due at `intended_ns`, free to go at `free_ns` and taken up at `begun_ns`. `error` is the reason if it failed.
    `tokens` is there where the answer is a stream, from its head on.
    """

    content: bytes
    expect_status: int
    is_stream: bool
    done: Callable[[Exchange], None] = lambda exchange: None
    intended_ns: int = 0
    free_ns: int = 0
    begun_ns: int = 0
    ended_ns: int | None = None
    error: str | None = None
    is_unreachable: bool = False
    tokens: Pieces | None = None

    def stream(self) -> Stream | None:
        return None if self.tokens is None else self.tokens.stream(self.intended_ns, self.ended_ns)


class Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, client: Client) -> None:
        self._client = client
        self._parser = HttpResponseParser(
            cast(Any, self), client.loop, LIMIT_BYTES, read_until_eof=True, auto_decompress=False
        )
        self._exchange: Exchange | None = None
        self._head: RawResponseMessage | None = None
        self._body: Any = None
        self._is_used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    # For the parser, whose output is taken at once.
    connected = True
    # Of aiohttp before 3.9, which Debian 12 has.
    _reading_paused = False

    def pause_reading(self) -> None: ...

    def resume_reading(self, resume_parser: bool = True) -> None: ...

    def send(self, exchange: Exchange) -> None:
        self._exchange, self._head, self._body = exchange, None, None
        self.transport.write(exchange.content)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            # An answer to no request: what follows cannot be trusted either.
            self.transport.abort()
            return
        try:
            for head, body in self._parser.feed_data(data)[0]:
                if head.code >= SWITCHING:
                    self._head, self._body = head, body
                    if exchange.is_stream and head.code == exchange.expect_status:
                        exchange.tokens = answer_of(head.headers.get("Content-Type", ""))
            if self._body is None:
                return
            piece = self._body.read_nowait()
            if piece and exchange.tokens is not None:
                exchange.tokens.take(piece, self._client.now_ns())
            if self._body.is_eof():
                self._complete(exchange)
        except RequestError as error:
            self._end(str(error), is_kept=False)
        except HttpProcessingError as error:
            said = data.split(b"\r\n")[0].decode(errors="replace").strip()
            where = "no HTTP answer" if self._head is None else f"broken HTTP in mid-answer ({type(error).__name__})"
            self._end(f"{where}, but {self._client.shown(said)!r}", is_kept=False)

    def _complete(self, exchange: Exchange) -> None:
        assert self._head is not None
        why = None if self._head.code == exchange.expect_status else f"status {self._head.code}"
        if why is None and exchange.tokens is not None:
            exchange.tokens.end()
        self._end(why, is_kept=not self._head.should_close)

    def _end(self, why: str | None, is_kept: bool) -> None:
        exchange, self._exchange = self._exchange, None
        self._is_used = True
        assert exchange is not None
        if is_kept:
            self._client.idle.append(self)
        else:
            self.transport.abort()
        self._client.finish(exchange, why)

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._client.idle:
            self._client.idle.remove(self)
        exchange = self._exchange
        if exchange is None:
            return
        if self._head is None and self._is_used:
            # The server closed it before it saw this request, as servers may between any two.
            self._exchange = None
            self._client.send_anew(exchange)
            return
        try:
            if self._head is None:
                # As behind a proxy whose server has died: asked again at once, it hangs up again at once.
                exchange.is_unreachable = True
                raise RequestError("the connection was closed without an answer")
            # Of an answer that ends with its connection.
            self._parser.feed_eof()
            if not self._body.is_eof():
                raise RequestError("the connection was closed in mid-answer")
            self._complete(exchange)
        except RequestError as failure:
            self._end(str(failure), is_kept=False)
        except HttpProcessingError:
            self._end("the connection was closed in mid-answer", is_kept=False)


class Client:
    """Asks one server, on as many connections as there are requests at once; all in one thread."""

    def __init__(
        self,
        address: tuple[str, int],
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int],
        secrets: Sequence[str] = (),
    ) -> None:
        self.loop = loop
        self.now_ns = now_ns
        self.idle: list[Connection] = []
        self._address = address
        self._secrets = secrets
        self._opening: set[asyncio.Task[None]] = set()

    def shown(self, said: str) -> str:
        for secret in self._secrets:
            said = said.replace(secret, "…")
        return said

    def send(self, exchange: Exchange) -> None:
        """Send it on a connection that is idle, or on a new one; its `done` is called when it has ended."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                connection.send(exchange)
                return
        self.send_anew(exchange)

    def send_anew(self, exchange: Exchange) -> None:
        task = self.loop.create_task(self._connect_and_send(exchange))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect_and_send(self, exchange: Exchange) -> None:
        try:
            connection = await self._open()
        except RequestError as error:
            exchange.is_unreachable = True
            self.finish(exchange, str(error))
        else:
            connection.send(exchange)

    async def _open(self) -> Connection:
        try:
            return (await self.loop.create_connection(lambda: Connection(self), *self._address))[1]
        except OSError as error:
            # Of a name with several addresses, such as localhost, asyncio joins what it says of each.
            is_refused = f"[Errno {errno.ECONNREFUSED}]" in str(error)
            raise RequestError(error_text(ConnectionRefusedError() if is_refused else error)) from error

    def finish(self, exchange: Exchange, why: str | None) -> None:
        """It has ended, well where there is no reason why not."""
        # What fails at once ends after the loop woke.
        exchange.ended_ns = max(exchange.begun_ns, self.now_ns())
        # Cut last: of a secret that was cut, a part would be left.
        exchange.error = None if why is None else self.shown(why)[:ERROR_CHARACTERS]
        # It may be long, and what has ended is kept until it is folded.
        exchange.content = b""
        exchange.done(exchange)

    def connect(self) -> None:
        """Have a connection, in a loop that does not run. Raises RequestError."""
        if not self.idle:
            self.idle.append(self.loop.run_until_complete(self._open()))

    def ask(self, exchange: Exchange) -> None:
        """Ask once and wait for the answer, in a loop that does not run. Raises RequestError."""
        exchange.done = lambda _: self.loop.stop()
        self.loop.call_soon(self.send, exchange)
        self.loop.run_forever()
        if exchange.error is not None:
            raise RequestError(exchange.error)
