"""Cuts the bytes of a streamed answer into messages: server-sent events, or lines of JSON.

Server-sent events are read as the HTML standard defines them
(https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation). Own code, since the
libraries for it take whole answers, or lines that another layer has cut.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tenant.workload import RequestError

# An event or a line of a language model has some hundred bytes.
MAX_MESSAGE_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ERROR = "error"
ENDS = (b"\n", b"\r")


class Message(NamedTuple):
    """A message of a stream; `event` is its type, empty where the stream names none."""

    event: str
    data: str


class Framing(Protocol):
    def take(self, piece: bytes) -> list[Message]:
        """Return the messages that end in this piece, which is not empty. Raises RequestError."""

    def rest(self) -> Message | None:
        """The last message if the answer ended within it."""


class Lines:
    """Lines that end in LF, CR or both, which may come in any pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_after_return = False

    def take(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece. Raises RequestError if one is too long."""
        if self._is_after_return:
            piece = piece.removeprefix(b"\n")
        self._is_after_return = piece.endswith(b"\r")
        lines = piece.splitlines()
        # What follows the last line break, unless that is the end.
        rest = b"" if not piece or piece.endswith(ENDS) else lines.pop()
        if lines and self._rest:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        if len(piece) + len(self._rest) > MAX_MESSAGE_BYTES and max(map(len, (*lines, self._rest))) > MAX_MESSAGE_BYTES:
            raise too_long("a line")
        return lines

    def rest(self) -> bytes:
        return bytes(self._rest)


def too_long(what: str) -> RequestError:
    return RequestError(f"{what} of the stream is longer than {MAX_MESSAGE_BYTES >> 20} MiB")


class ServerSentEvents:
    def __init__(self) -> None:
        self._lines = Lines()
        self._is_first = True
        self._event, self._data, self._size = "", list[bytes](), 0

    def take(self, piece: bytes) -> list[Message]:
        messages: list[Message] = []
        for line in self._lines.take(piece):
            if line:
                self._field(line)
            elif self._data or self._event:
                messages.append(self._message())
                self._event, self._data, self._size = "", [], 0
        return messages

    def _field(self, line: bytes) -> None:
        if self._is_first:
            self._is_first, line = False, line.removeprefix(BYTE_ORDER_MARK)
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > MAX_MESSAGE_BYTES:
                raise too_long("an event")
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"error":
            # Not a field of the standard, but llama.cpp's server has reported errors with it.
            raise server_error(value.decode(errors="replace"))

    def _message(self) -> Message:
        return Message(self._event, b"\n".join(self._data).decode(errors="replace"))

    def rest(self) -> Message | None:
        if line := self._lines.rest():
            self._field(line)
        return self._message() if self._data or self._event else None


def server_error(text: object) -> RequestError:
    return RequestError(f"the server says: {text}")


class JsonLines:
    """JSON documents, one on each line."""

    def __init__(self) -> None:
        self._lines = Lines()

    def take(self, piece: bytes) -> list[Message]:
        return [Message("", line.decode(errors="replace")) for line in self._lines.take(piece) if line.strip()]

    def rest(self) -> Message | None:
        return Message("", text) if (text := self._lines.rest().decode(errors="replace").strip()) else None
