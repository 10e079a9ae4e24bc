"""HTTP requests, shared by the driver and its tenants: error texts, environment variables, and metrics pages.

`{env:NAME}` in a request stands for an environment variable. Only the client fills it in, so that secrets stay there.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from tenant.contract import Environment

# Ids of random prompts are below it, unless a config has another number.
VOCABULARY = 32_000
ENV_PLACEHOLDER = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
# Longest part of a server's text that an error quotes.
MAX_ERROR_CHARACTERS = 100


def error_text(error: Exception) -> str:
    """One line that describes an OSError, or an HTTPException of http.client."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    text = str(error).strip()
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"no HTTP answer, but {text[:MAX_ERROR_CHARACTERS]!r}"
    return "".join(filter(str.isprintable, text))[:MAX_ERROR_CHARACTERS] or type(error).__name__


def variable_names(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for text in texts for name in ENV_PLACEHOLDER.findall(text)))


def variable_problem(texts: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """Why a variable named in these texts cannot be part of a request, without its value; None if all can."""
    for name in variable_names(texts):
        value = environment.get(name)
        if not value:
            return f"{{env:{name}}} is not set in the environment; export {name}"
        if not (value.isascii() and value.isprintable()):
            return f"{{env:{name}}} holds what no request can (a line break, or no ASCII); export {name} without it"
    return None


def fill_variables(text: str, environment: Mapping[str, str]) -> str:
    return ENV_PLACEHOLDER.sub(lambda match: environment[match[1]], text)


# Prometheus' text format is requested explicitly, because OpenMetrics names the same series differently.
METRICS_HEADERS = {"Accept": "text/plain;version=0.0.4"}
# Parsing takes a fifth of a second per MiB, and the page is requested repeatedly.
MAX_PAGE_BYTES = 8 << 20
# Pages are requested repeatedly until a program is ready, and one that hangs must not delay the others.
READY_TIMEOUT_SECONDS = 2.0
# At the edges of a window, a slow page is waited for.
EDGE_TIMEOUT_SECONDS = 10.0


class Page(TypedDict):
    """A program's answer, or why there is none; times are monotonic ns of the client."""

    begun_ns: int
    ended_ns: int
    text: str
    is_whole: bool
    failure: str | None


class ScrapeReport(TypedDict):
    """The metrics pages at a window's edges, and the environment of the client that requested them."""

    pages: list[Page]
    environment: Environment


class _TimedReader(socket.SocketIO):
    """Reads a socket until a deadline, in monotonic seconds; the time-out of a socket is that of each piece."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__(connection, "r")
        self._connection, self._deadline = connection, deadline

    def readinto(self, buffer: Any) -> int | None:
        left_seconds = self._deadline - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left_seconds)
        return super().readinto(buffer)


def fetch_page(port: int, path: str, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> Page:
    """Request a page of a program on this machine, all of which has to come in this time."""
    begun_ns, body, failure = time.monotonic_ns(), b"", None
    deadline = time.monotonic() + timeout_seconds
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)
    try:
        connection.connect()
        begun_ns = time.monotonic_ns()
        connection.request("GET", path, headers=METRICS_HEADERS)
        response = http.client.HTTPResponse(connection.sock, method="GET")
        response.fp = io.BufferedReader(_TimedReader(connection.sock, deadline))
        response.begin()
        body = response.read(MAX_PAGE_BYTES + 1)
        if response.status != 200:
            failure = f"status {response.status}"
    except (OSError, http.client.HTTPException) as error:
        failure = error_text(error)
    finally:
        connection.close()
    ended_ns, is_whole = time.monotonic_ns(), len(body) <= MAX_PAGE_BYTES
    text = body.decode(errors="replace") if is_whole else ""
    return {"begun_ns": begun_ns, "ended_ns": ended_ns, "text": text, "is_whole": is_whole, "failure": failure}
