"""A request to an HTTP server, whose answer is read to its end: the measuring side of `kind: http`.

Params: `url` (its root), `method`, `path`, `headers`, `body` or `body_file`, `expect_status`, `ready_path` (asked until
it answers 200; without it the request itself is made until it succeeds), `stream` (time to the first chunk of an
answer, stage `first_chunk`, and the gaps between chunks, stage `chunk_gap`), `note` (a file with the server's last
answer, until it is ready). In `path`, `ready_path` and the values of `headers`, `{env:NAME}` is filled in here.

One connection, kept alive, and one request at a time. A chunk is an event of a text/event-stream, or else what a read
returns.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tenant.contract import described, filled, named, unusable
from tenant.parameters import ParameterError, Params, boolean, optional_text, positive_integer, text, with_defaults
from tenant.workload import RequestError, Work, Workload

POLL_SECONDS = 0.05
# Longer than any answer that is worth waiting for; the driver's deadlines are shorter.
TIMEOUT_SECONDS = 600.0
DEFAULTS: Params = {
    "url": None,
    "method": "GET",
    "path": "/",
    "headers": {},
    "body": None,
    "body_file": None,
    "expect_status": 200,
    "ready_path": None,
    "stream": False,
    "note": None,
}
EVENT_STREAM = "text/event-stream"
# How a stream of events in the manner of OpenAI ends: no answer, a mark.
LAST_EVENT = b"data: [DONE]"


class HttpClient(Workload):
    """The same request again and again."""

    work = Work(flop=None, bytes=None, items=1)

    def __init__(
        self,
        address: tuple[str, int],
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        expect_status: int,
        is_stream: bool,
        secrets: Sequence[str] = (),
    ) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        self._request = (method, path, body, dict(headers))
        self._expect_status = expect_status
        self._is_stream = is_stream
        self._secrets = secrets

    def step(self) -> None:
        self._ask(*self._request, expect_status=self._expect_status, is_stream=self._is_stream)

    def look(self, path: str) -> None:
        """A GET of this path. Raises RequestError unless it has status 200."""
        self._ask("GET", path, expect_status=200)

    def _ask(self, *request: Any, expect_status: int, is_stream: bool = False) -> None:
        try:
            begun_ns = time.monotonic_ns()
            self._connection.request(*request)
            response = self._connection.getresponse()
            if is_stream and response.status == expect_status:
                self._time_chunks(response, begun_ns)
            # Also what is read to its end by pieces is not over for the connection before this.
            response.read()
        except (OSError, http.client.HTTPException) as error:
            # The next request makes a new connection.
            self._connection.close()
            raise RequestError(described(error, self._secrets)) from error
        if response.status != expect_status:
            raise RequestError(f"status {response.status}")

    def _time_chunks(self, response: http.client.HTTPResponse, begun_ns: int) -> None:
        is_events = (response.getheader("Content-Type") or "").startswith(EVENT_STREAM)
        before_ns = 0
        for _ in _events(response) if is_events else iter(response.read1, b""):
            now_ns = time.monotonic_ns()
            if before_ns:
                self.samples.add("chunk_gap", begun_ns, now_ns - before_ns)
            else:
                self.samples.add("first_chunk", begun_ns, now_ns - begun_ns)
            before_ns = now_ns

    def connect(self) -> None:
        """Connect, where it is not. Raises RequestError."""
        if self._connection.sock is None:
            try:
                self._connection.connect()
            except OSError as error:
                raise RequestError(described(error, self._secrets)) from error

    def output_digest(self) -> list[float]:
        """None: what a server answers may differ each time."""
        return []


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines with data as they come, one per event, without the mark at the end."""
    while line := response.readline():
        if line.startswith(b"data:") and not line.startswith(LAST_EVENT):
            yield line


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ParameterError(f"http_client headers must map names to text, not {value!r}")
    return {name: text(given, f"http_client header {name}") for name, given in value.items()}


def create(params: Params, device: str) -> HttpClient:
    """A client once the server is ready, however long that takes: whoever waits has a deadline.

    Raises ParameterError for a parameter that does not exist or is not possible.
    """
    values = with_defaults(params, DEFAULTS, "http_client")
    url = urlsplit(str(values["url"]))
    if url.scheme != "http" or not url.hostname:
        raise ParameterError(f"http_client url must be http://host:port, not {values['url']!r}")
    method, path = text(values["method"], "http_client method"), text(values["path"], "http_client path")
    ready_path = optional_text(values["ready_path"], "http_client ready_path")
    headers = _headers(values["headers"])
    body = optional_text(values["body"], "http_client body")
    body_file = optional_text(values["body_file"], "http_client body_file")
    content = None if body is None else body.encode()
    if body_file is not None:
        content = Path(body_file).read_bytes()
    texts = [path, ready_path or "", *headers.values()]
    if why := unusable(texts, os.environ):
        raise ParameterError(f"http_client: {why}")
    client = HttpClient(
        address=(url.hostname, url.port or 80),
        method=method,
        path=filled(path, os.environ),
        headers={name: filled(given, os.environ) for name, given in headers.items()},
        body=content,
        expect_status=positive_integer(values["expect_status"], "http_client expect_status"),
        is_stream=boolean(values["stream"], "http_client stream"),
        secrets=[os.environ[name] for name in named(texts)],
    )
    _wait(client, ready_path, f"{method} {path}", Note(optional_text(values["note"], "http_client note")))
    client.samples.drain()
    return client


class Note:
    """A line for the driver, which reads it when time is up."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._said = ""

    def say(self, line: str) -> None:
        if self._path is not None and line != self._said:
            part = self._path.with_suffix(".part")
            part.write_text(line)
            part.replace(self._path)
        self._said = line


def _wait(client: HttpClient, ready_path: str | None, request: str, note: Note) -> None:
    """Ask until the server is ready."""
    asked = request if ready_path is None else f"GET {ready_path}"
    has_answered = False
    while True:
        try:
            client.connect()
            if not has_answered:
                note.say(f"{asked}: connected, but there is no answer")
            if ready_path is None:
                client.step()
            else:
                client.look(filled(ready_path, os.environ))
        except RequestError as failure:
            note.say(f"{asked}: {failure}")
            has_answered = not isinstance(failure.__cause__, ConnectionRefusedError)
            time.sleep(POLL_SECONDS)
        else:
            note.say(f"{asked} is answered, but the warm-up with {request} has not ended")
            return
