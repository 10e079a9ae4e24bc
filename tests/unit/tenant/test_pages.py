"""Metrics pages of programs, as the client requests them."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tenant.contract.requests import fetch_page

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@contextmanager
def serving(answer: bytes, gap_seconds: float) -> Iterator[int]:
    """A server that sends an answer, byte by byte where it has a gap; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            size = 1 if gap_seconds else len(answer)
            try:
                for at in range(0, len(answer), size):
                    connection.sendall(answer[at : at + size])
                    time.sleep(gap_seconds)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 2\r\n\r\nok",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        HEAD + b"Connection: close\r\n\r\nok",
    ],
)
def test_a_page_is_read_to_its_end(answer: bytes) -> None:
    with serving(answer, 0) as port:
        page = fetch_page(port, "/metrics", 30)
    assert (page["text"], page["failure"], page["is_whole"]) == ("ok", None, True)


@pytest.mark.parametrize("answer", [HEAD * 100, HEAD + b"Content-Length: 900\r\n\r\n" + b"x" * 900])
def test_a_page_that_drips_ends_with_its_time(answer: bytes) -> None:
    with serving(answer, 0.02) as port:
        page = fetch_page(port, "/metrics", 0.2)
    assert page["failure"] == "timed out"
    assert page["ended_ns"] - page["begun_ns"] < 10e9
