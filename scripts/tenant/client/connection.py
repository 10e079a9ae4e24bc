"""Keep-alive connections to an HTTP/1.1 server: each answer is time-stamped as it arrives, and read to its end.

The HTTP parser is aiohttp's, in C. aiohttp's session takes twice the CPU time and hands over an answer only after all
others of the moment were received, so that with many in flight the last of them would seem late.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aiohttp.http import HttpProcessingError, HttpResponseParser, RawResponseMessage

from tenant.client.events import TokenEvents, error_in_answer
from tenant.client.wire import Address, Wire, address_of, first_socket, keep_stamping, new_socket
from tenant.contract.requests import error_text
from tenant.recorder import TokenStream
from tenant.workload import RequestError

# Buffer limit of the parser, which is emptied after each piece of data.
PARSER_LIMIT_BYTES = 1 << 16
# Errors are cut to this length.
MAX_ERROR_CHARACTERS = 150
# Smaller status codes announce another answer to the same request.
FIRST_FINAL_STATUS = 200
# The answer to a request that failed has another status from here on, or says so in a short JSON document.
FIRST_STATUS_OF_NO_SUCCESS = 300
MAX_ERROR_DOCUMENT_BYTES = 1 << 14
SWITCHING_PROTOCOLS = 101
# An answer may come before its request is noted as begun. Longer before, it is a step of the computer's clock.
MOST_EARLY_NS = 1_000_000
HTTP_BEGIN = b"HTTP/1."


class Selector(selectors.DefaultSelector):
    """A selector that wakes when a timer is due, not up to 1 ms later as epoll does, and notes when it woke."""

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
    """A request and its answer; times are monotonic ns.

    The request was due at `intended_ns`, could be sent from `free_ns` on, and was sent at `begun_ns`. `error` is the
    reason if it failed. `tokens` is set if the answer is a stream, once its head has arrived.
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
    has_new_connection: bool = False
    tokens: TokenEvents | None = None

    def stream(self) -> TokenStream | None:
        return None if self.tokens is None else self.tokens.stream(self.intended_ns, self.ended_ns)


class Connection:
    wire: Wire

    def __init__(self, client: Client) -> None:
        self._client = client
        self._parser = HttpResponseParser(
            cast(Any, self), client.loop, PARSER_LIMIT_BYTES, read_until_eof=True, auto_decompress=False
        )
        self._exchange: Exchange | None = None
        self._head: RawResponseMessage | None = None
        self._body: Any = None
        self._document: bytes | None = None
        self._is_used = False
        self._arrived_ns = 0

    # The parser reads these and calls the two methods below; its output is taken at once, so reading never pauses.
    connected = True
    # aiohttp before 3.9, which Debian 12 has, needs it.
    _reading_paused = False

    def pause_reading(self) -> None: ...

    def resume_reading(self, resume_parser: bool = True) -> None: ...

    def send(self, exchange: Exchange) -> None:
        self._exchange, self._head, self._body, self._document = exchange, None, None, None
        self.wire.send(exchange.content)

    def data_received(self, data: bytes, arrived_ns: int | None) -> None:
        exchange = self._exchange
        if exchange is None:
            # The server sent data without a request, so the rest of the connection cannot be trusted either.
            self.wire.close()
            self._client.forget(self)
            return
        if arrived_ns is None or arrived_ns < exchange.begun_ns - MOST_EARLY_NS:
            arrived_ns = self._client.now_ns()
        # No step of the computer's clock turns back time.
        self._arrived_ns = max(self._arrived_ns, exchange.begun_ns, arrived_ns)
        try:
            for head, body in self._parser.feed_data(data)[0]:
                if head.code == SWITCHING_PROTOCOLS:
                    raise RequestError(f"status {head.code}")
                if head.code >= FIRST_FINAL_STATUS:
                    if self._head is not None:
                        raise RequestError("two answers to one request")
                    self._head, self._body = head, body
                    if head.code == exchange.expect_status:
                        self._expect(exchange, head)
            if self._body is None:
                return
            piece = self._body.read_nowait()
            if piece and exchange.tokens is not None:
                exchange.tokens.take(piece, self._arrived_ns)
            elif self._document is not None:
                self._document += piece
                if len(self._document) > MAX_ERROR_DOCUMENT_BYTES:
                    self._document = None
            if self._body.is_eof():
                self._complete(exchange)
        except RequestError as error:
            self._end(str(error), is_kept=False)
        except HttpProcessingError as error:
            self._end(self._http_problem(data, error), is_kept=False)

    def _expect(self, exchange: Exchange, head: RawResponseMessage) -> None:
        """Prepare for the body of an answer with the expected status. Raises RequestError."""
        if exchange.is_stream:
            headers = head.headers
            exchange.tokens = TokenEvents(headers.get("Content-Type", ""), headers.get("Content-Encoding", ""))
        elif head.code < FIRST_STATUS_OF_NO_SUCCESS:
            self._document = b""

    def _http_problem(self, data: bytes, error: HttpProcessingError) -> str:
        if self._head is None and not data.startswith(HTTP_BEGIN):
            line = data.split(b"\r\n")[0].decode(errors="replace").strip()
            return f"no HTTP answer, but {self._client.redact(line)!r}"
        # Without the bytes that aiohttp quotes: they may be a part of a secret.
        cause = " ".join(error.message.partition("b'")[0].split()).rstrip(":")
        where = "" if self._head is None else " in mid-answer"
        return f"broken HTTP{where}: {cause}"

    def _complete(self, exchange: Exchange) -> None:
        assert self._head is not None
        error = None if self._head.code == exchange.expect_status else f"status {self._head.code}"
        if error is None and exchange.tokens is not None:
            exchange.tokens.end(self._arrived_ns)
        elif self._document is not None:
            error = error_in_answer(self._document)
        self._end(error, is_kept=not self._head.should_close)

    def _end(self, error: str | None, is_kept: bool) -> None:
        exchange, self._exchange = self._exchange, None
        self._is_used = True
        assert exchange is not None
        if is_kept:
            self._client.idle.append(self)
        self._client.finish(exchange, error, self._arrived_ns)
        if not is_kept:
            # After the next request has been sent.
            self.wire.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.forget(self)
        exchange = self._exchange
        if exchange is None:
            return
        self._arrived_ns = self._client.now_ns()
        if self._head is None and self._is_used and not self.wire.is_received:
            # The server closed the connection before it saw this request, as servers may between two requests.
            self._exchange = None
            self._client.send_on_new_connection(exchange)
            return
        try:
            if self._head is None:
                # A proxy whose server has died hangs up at once, every time.
                exchange.is_unreachable = True
                if error is not None and not self.wire.is_connected:
                    raise RequestError(error_text(error))
                raise RequestError("the connection was closed without an answer")
            # The end of the connection may be the end of the answer.
            self._parser.feed_eof()
            if not self._body.is_eof():
                raise RequestError("the connection was closed in mid-answer")
            self._complete(exchange)
        except RequestError as failure:
            self._end(str(failure), is_kept=False)
        except HttpProcessingError:
            self._end("the connection was closed in mid-answer", is_kept=False)


def printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


class Client:
    """Sends requests to one server, each in flight on a connection of its own; all in one thread."""

    def __init__(
        self,
        address: tuple[str, int],
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int],
        secrets: Sequence[str] = (),
    ) -> None:
        """`address` is a name and a port; the name is looked up once, with the first connection."""
        self.loop = loop
        self.now_ns = now_ns
        self.idle: list[Connection] = []
        self._name = address
        self._address: Address | None = None
        self._secrets = secrets
        keep_stamping()

    def redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def forget(self, connection: Connection) -> None:
        if connection in self.idle:
            self.idle.remove(connection)

    def send(self, exchange: Exchange) -> None:
        """Send a request on an idle or new connection; its `done` is called later, when it has ended."""
        if self.idle:
            self.idle.pop().send(exchange)
        else:
            self.send_on_new_connection(exchange)

    def send_on_new_connection(self, exchange: Exchange) -> None:
        exchange.has_new_connection = True
        try:
            connection = self.new_connection()
        except OSError as error:
            exchange.is_unreachable = True
            self.loop.call_soon(self.finish, exchange, error_text(error), self.now_ns())
        else:
            connection.send(exchange)

    def new_connection(self) -> Connection:
        """Raises OSError."""
        if self._address is None:
            connecting = first_socket(*self._name)
            self._address = address_of(connecting)
        else:
            connecting = new_socket(self._address)
        connection = Connection(self)
        connection.wire = Wire(self.loop, connecting, connection)
        return connection

    def finish(self, exchange: Exchange, error: str | None, ended_ns: int = 0) -> None:
        """End a request, at once without `ended_ns`; `error` is None if it succeeded."""
        exchange.ended_ns = max(exchange.begun_ns, ended_ns)
        # Cut after the redaction, because a part of a secret would remain otherwise.
        exchange.error = None if error is None else printable(self.redact(error)[:MAX_ERROR_CHARACTERS])
        # The content may be long, and the exchange is kept until it is folded.
        exchange.content = b""
        exchange.done(exchange)

    def connect(self) -> None:
        """Open the first connection if there is none. Raises RequestError."""
        try:
            if not self.idle:
                self.idle.append(self.new_connection())
        except OSError as error:
            raise RequestError(error_text(error)) from error

    def ask(self, exchange: Exchange) -> None:
        """Send one request and wait for its answer; the event loop must not be running. Raises RequestError."""
        exchange.done = lambda _: self.loop.stop()
        self.loop.call_soon(self.send, exchange)
        self.loop.run_forever()
        if exchange.error is not None:
            raise RequestError(exchange.error)
