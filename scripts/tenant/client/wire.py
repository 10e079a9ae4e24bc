"""A TCP connection on the event loop of asyncio, without its transports.

Where a server closes each connection, connecting is part of every latency. `loop.create_connection` needs a task, a
look-up of the name and four rounds of the loop for it. To a server on the same machine, `connect` ends at once, and the
request can follow.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import time
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, Protocol

# Reading takes this much at a time; larger buffers come from fresh pages.
PIECE_BYTES = 1 << 16
# Linux's struct tcp_info begins with the state; the number of segments that were not acknowledged follows at byte 24.
TCP_INFO = struct.Struct("B23xI")
TCP_CLOSE_WAIT = 8
# Linux's option for the time at which data arrived, which Python does not name, and the struct timespec that it yields.
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("qq")
ANCILLARY_BYTES = socket.CMSG_SPACE(TIMESPEC.size)


class Address(NamedTuple):
    family: int
    target: Any


class Receiver(Protocol):
    def data_received(self, data: bytes, arrived_ns: int | None) -> None: ...

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, or could not be made; `error` is None if the other side closed it."""


def first_socket(host: str, port: int) -> socket.socket:
    """A socket connected to the first address of this name that accepts it. Raises OSError, rather of a refusal."""
    errors: list[OSError] = []
    for family, _, _, _, target in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connecting = socket.socket(family, socket.SOCK_STREAM)
        try:
            connecting.connect(target)
        except OSError as error:
            connecting.close()
            errors.append(error)
        else:
            connecting.setblocking(False)
            return connecting
    raise min(errors, key=lambda error: error.errno != errno.ECONNREFUSED)


def stamp_arrivals(receiving: socket.socket) -> None:
    """Have the kernel note when data arrives, if it can."""
    with suppress(OSError):
        receiving.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


@cache
def keep_stamping() -> socket.socket:
    """A socket that is never closed: the kernel notes arrivals while one asks for it, and to begin costs time."""
    asking = socket.socket()
    stamp_arrivals(asking)
    return asking


def arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """When the last of the data arrived, in monotonic ns; None where the kernel has not noted it."""
    for _, kind, content in ancillary:
        if kind == SO_TIMESTAMPNS and len(content) == TIMESPEC.size:
            seconds, ns = TIMESPEC.unpack(content)
            # The age first, so that an interruption here makes the arrival late, and not early.
            age_ns: int = time.time_ns() - 1_000_000_000 * seconds - ns
            return time.monotonic_ns() - max(0, age_ns)
    return None


def address_of(connected: socket.socket) -> Address:
    return Address(connected.family, connected.getpeername())


def new_socket(address: Address) -> socket.socket:
    """A socket that begins to connect, and mostly is connected if the server is on this machine. Raises OSError."""
    connecting = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    code = connecting.connect_ex(address.target)
    if code not in (0, errno.EINPROGRESS):
        connecting.close()
        raise OSError(code, os.strerror(code))
    return connecting


class Wire:
    """A connection whose socket may still be connecting; what is sent meanwhile follows.

    `is_received` is true once the server has closed it after it had read all that was sent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connecting: socket.socket, receiver: Receiver) -> None:
        self._loop = loop
        self._socket = connecting
        # Not the socket, since the loop formats as text what it does not know yet, which takes 0.05 ms.
        self._file = connecting.fileno()
        self._receiver = receiver
        self._unsent = b""
        self._error: Exception | None = None
        self._is_watched = self.is_connected = self.is_closed = self.is_received = False

    def send(self, data: bytes) -> None:
        sent = 0
        try:
            sent = self._socket.send(data)
            self.is_connected = True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOTCONN):
                # Reading finds the end of the connection, after what the server has still sent.
                self._error = error
                sent = len(data)
        if not self._is_watched:
            # After the first request, which need not wait for it.
            self._is_watched = True
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stamp_arrivals(self._socket)
            self._loop.add_reader(self._file, self._read)
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._file, self._send_rest)

    def _send_rest(self) -> None:
        self._loop.remove_writer(self._file)
        rest, self._unsent = self._unsent, b""
        self.send(rest)

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(PIECE_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(self._error or error)
            return
        if data:
            self._receiver.data_received(data, arrival_ns(ancillary))
        else:
            self._lose(self._error)

    def _lose(self, error: Exception | None) -> None:
        if not self.is_closed:
            # A server that closes before it has read all resets the connection.
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
            self.is_received = error is None and TCP_INFO.unpack(info) == (TCP_CLOSE_WAIT, 0)
            self.close()
            self._receiver.connection_lost(error)

    def close(self) -> None:
        """Close without a call of `connection_lost`."""
        if not self.is_closed:
            self.is_closed = True
            self._loop.remove_reader(self._file)
            if self._unsent:
                self._loop.remove_writer(self._file)
            self._socket.close()
