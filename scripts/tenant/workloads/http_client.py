"""Requests to an HTTP server, whose answers are read to their end: the measuring side of `kind: http`.

Params: `url` (its root), `method`, `path`, `headers`, what `tenant.request_bodies` makes bodies from, `expect_status`,
`ready_path` (asked until it answers 200; without it the request itself is made until it succeeds), `stream` (the tokens
of an answer are timed as they come: `tenant.record`), `note` (a file with the server's last answer, until it is
ready). In `path`, `ready_path` and the values of `headers`, `{env:NAME}` is filled in here.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from tenant import request_bodies
from tenant.client.connection import Client, Exchange, Selector
from tenant.client.flight import Flight
from tenant.contract.requests import filled, named, variable_problem
from tenant.load import BEFORE_WINDOW, IN_WINDOW, Load
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.workload import RequestError, Work, Workload

POLL_SECONDS = 0.05
DEFAULTS: Params = {
    "url": "",
    "method": "GET",
    "path": "/",
    "headers": {},
    **request_bodies.DEFAULTS,
    "expect_status": 200,
    "ready_path": None,
    "stream": False,
    "note": None,
}
BODY_METHODS = ("POST", "PUT")


class HttpClient(Workload):
    work = Work(flop=None, bytes=None, items=1)
    modules = ("aiohttp",)
    is_client = True

    def __init__(self, params: Mapping[str, Any]) -> None:
        """With all of DEFAULTS. Raises ParameterError for what no request can be made of."""
        self._params = params
        self.is_stream = params["stream"]
        texts = [params["path"], params["ready_path"] or "", *params["headers"].values()]
        if why := variable_problem(texts, os.environ):
            raise ParameterError(f"http_client: {why}")
        self._method = params["method"]
        self._path, self._ready_path, *values = (filled(text, os.environ) for text in texts)
        both = self._path + self._ready_path
        if not (both.isascii() and both.isprintable() and " " not in both):
            raise ParameterError(f"http_client {params['path']} cannot be sent: write other characters as %XX")
        if not all(each.isprintable() for each in values):
            raise ParameterError("http_client headers must be of one line each")
        url = urlsplit(params["url"])
        headers = dict(zip(params["headers"], values, strict=True))
        given = {name.lower() for name in headers}
        own = {"Host": url.netloc.rpartition("@")[2], "Accept-Encoding": "identity"}
        headers |= {name: value for name, value in own.items() if name.lower() not in given}
        self._headers = [f"{name}: {value}" for name, value in headers.items()]
        selector = Selector()
        self._client = Client(
            (url.hostname or "", url.port or 80),
            asyncio.SelectorEventLoop(selector),
            lambda: selector.woken_ns,
            secrets=[os.environ[name] for name in named(texts)],
        )
        self._bodies = [request_bodies.body_factory(params, seed=0, tenant=0)]
        self._flight: Flight | None = None

    def loop(self, load: Load, tenant: int, lock: Lock, clock: Callable[[], int]) -> Flight:
        self._bodies = [
            request_bodies.body_factory(self._params, load.seed, tenant, phase) for phase in (BEFORE_WINDOW, IN_WINDOW)
        ]
        self._flight = Flight(self._client, self._exchange, load.most_in_flight, lock, clock)
        return self._flight

    def _exchange(self, phase: int, number: int) -> Exchange:
        content = self._content(self._method, self._path, self._bodies[phase](number))
        return Exchange(content, self._params["expect_status"], self.is_stream)

    def _content(self, method: str, path: str, body: bytes) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", *self._headers]
        if body or method in BODY_METHODS:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def window_set(self, start_ns: int, end_ns: int) -> None:
        if self._flight is not None:
            self._flight.restart(start_ns)

    def step(self) -> None:
        self._client.ask(self._exchange(BEFORE_WINDOW, 0))

    def wait(self, note: Note) -> None:
        """Ask until the server is ready: whoever waits has a deadline."""
        request, ready_path = f"{self._method} {self._params['path']}", self._params["ready_path"]
        asked = request if ready_path is None else f"GET {ready_path}"
        has_answered = False
        while True:
            try:
                self._client.connect()
                if not has_answered:
                    note.say(f"{asked}: connected, but there is no answer")
                if ready_path is None:
                    self.step()
                else:
                    self._client.ask(Exchange(self._content("GET", self._ready_path, b""), 200, is_stream=False))
            except RequestError as failure:
                note.say(f"{asked}: {failure}")
                has_answered = "refused" not in str(failure)
                time.sleep(POLL_SECONDS)
            else:
                note.say(f"{asked} is answered, but the warm-up with {request} has not ended")
                return

    def output_digest(self) -> list[float]:
        """None: what a server answers may differ each time."""
        return []


class Note:
    """A line for the driver, which reads it when time is up: in a file, or in the log of a pod."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._said = ""

    def say(self, line: str) -> None:
        if line == self._said:
            return
        self._said = line
        if self._path is None:
            print(line, file=sys.stderr, flush=True)
        else:
            part = self._path.with_suffix(".part")
            part.write_text(line)
            part.replace(self._path)


def create(params: Params, device: str) -> HttpClient:
    values = with_defaults(params, DEFAULTS, "http_client")
    # As many connections as this process may have: by habit a shell allows 1024 files, for programs that use select().
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    client = HttpClient(values)
    client.wait(Note(values["note"]))
    return client
