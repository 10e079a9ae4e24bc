"""Requests to an HTTP server, whose answers are read to their end: the measuring side of `kind: http`.

Params: `url` (its root), `method`, `path`, `headers`, what `tenant.requests` makes bodies from, `expect_status`,
`ready_path` (asked until it answers 200; without it the request itself is made until it succeeds), `stream` (the tokens
of an answer are timed as they come: `tenant.streams`), `note` (a file with the server's last answer, until it is
ready). In `path`, `ready_path` and the values of `headers`, `{env:NAME}` is filled in here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import urlsplit

from tenant import requests
from tenant.client.connection import Client, Exchange, Selector
from tenant.client.flight import Flight
from tenant.contract.requests import filled, named, unusable
from tenant.load import BEFORE, WINDOW, Load
from tenant.parameters import ParameterError, Params, boolean, optional_text, positive_integer, text, with_defaults
from tenant.workload import RequestError, Work, Workload

POLL_SECONDS = 0.05
DEFAULTS: Params = {
    "url": None,
    "method": "GET",
    "path": "/",
    "headers": {},
    **requests.DEFAULTS,
    "expect_status": 200,
    "ready_path": None,
    "stream": False,
    "note": None,
}
BODY_METHODS = ("PATCH", "POST", "PUT")


class Question(NamedTuple):
    """What is asked, but for the body."""

    method: str
    path: str
    host: str
    headers: Mapping[str, str]

    def content(self, body: bytes) -> bytes:
        """The request as it is sent."""
        given = {name.lower() for name in self.headers}
        lines = [f"{self.method} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if "host" not in given:
            lines.append(f"Host: {self.host}")
        if "accept-encoding" not in given:
            lines.append("Accept-Encoding: identity")
        if body or self.method in BODY_METHODS:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class HttpClient(Workload):
    """Requests to one server, as many at once as the load has in flight."""

    work = Work(flop=None, bytes=None, items=1)
    modules = ("aiohttp",)
    is_client = True

    def __init__(
        self,
        address: tuple[str, int],
        question: Question,
        body: Params,
        expect_status: int,
        is_stream: bool,
        secrets: Sequence[str] = (),
    ) -> None:
        """`body` is what `tenant.requests` makes the bodies from. Raises ParameterError."""
        selector = Selector()
        self._client = Client(
            address,
            asyncio.SelectorEventLoop(selector),
            lambda: selector.woken_ns,
            is_head=question.method == "HEAD",
            secrets=secrets,
        )
        self.is_stream = is_stream
        self._question = question
        self._body = body
        self._requests = [requests.parse(body, seed=0, tenant=0)]
        self._expect_status = expect_status
        self._flight: Flight | None = None

    def loop(self, load: Load, tenant: int, lock: Lock, clock: Callable[[], int]) -> Flight:
        self._requests = [requests.parse(self._body, load.seed, tenant, stretch) for stretch in (BEFORE, WINDOW)]
        self._flight = Flight(self._client, self._exchange, load.most_in_flight, lock, clock)
        return self._flight

    def _exchange(self, stretch: int, number: int) -> Exchange:
        content = self._question.content(self._requests[stretch].body(number))
        return Exchange(content, self._expect_status, self.is_stream)

    def window_set(self, start_ns: int, end_ns: int) -> None:
        if self._flight is not None:
            self._flight.restart(start_ns)

    def step(self) -> None:
        """One request, and its answer."""
        self._client.ask(self._exchange(BEFORE, 0))

    def look(self, path: str) -> None:
        """A GET of this path. Raises RequestError unless it has status 200."""
        self._client.ask(Exchange(self._question._replace(method="GET", path=path).content(b""), 200, is_stream=False))

    def connect(self) -> None:
        """Connect, where it is not. Raises RequestError."""
        self._client.connect()

    def output_digest(self) -> list[float]:
        """None: what a server answers may differ each time."""
        return []


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ParameterError(f"http_client headers must map names to text, not {value!r}")
    return {name: text(given, f"http_client header {name}") for name, given in value.items()}


def _allow_connections() -> None:
    """As many at once as this process may have: by habit a shell allows 1024 files, for programs that use select()."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # macOS has a lower limit than it says.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
    texts = [path, ready_path or "", *headers.values()]
    if why := unusable(texts, os.environ):
        raise ParameterError(f"http_client: {why}")
    question = Question(
        method=method,
        path=filled(path, os.environ),
        host=url.netloc.rpartition("@")[2],
        headers={name: filled(given, os.environ) for name, given in headers.items()},
    )
    if not all(each.isprintable() for each in (*question.headers, *question.headers.values())):
        raise ParameterError("http_client headers must be of one line each")
    if not all(each.isascii() and each.isprintable() and " " not in each for each in question[:2]):
        raise ParameterError(f"http_client {method} {path} cannot be sent: write other characters as %XX")
    _allow_connections()
    client = HttpClient(
        address=(url.hostname, url.port or 80),
        question=question,
        body={key: values[key] for key in requests.DEFAULTS},
        expect_status=positive_integer(values["expect_status"], "http_client expect_status"),
        is_stream=boolean(values["stream"], "http_client stream"),
        secrets=[os.environ[name] for name in named(texts)],
    )
    _wait(client, ready_path, f"{method} {path}", Note(optional_text(values["note"], "http_client note")))
    return client


class Note:
    """A line for the driver, which reads it when time is up: in a file, or in the log of a pod."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._said = ""

    def say(self, line: str) -> None:
        if line != self._said and self._path is None:
            print(line, file=sys.stderr, flush=True)
        elif line != self._said and self._path is not None:
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
            has_answered = "refused" not in str(failure)
            time.sleep(POLL_SECONDS)
        else:
            note.say(f"{asked} is answered, but the warm-up with {request} has not ended")
            return
