"""The client of `kind: http`: sends requests to an HTTP server and reads each answer to its end.

Params: `url` (root of the server), `method`, `path`, `headers`, the parameters of `tenant.request_bodies`,
`expect_status`, `ready_path` (polled until it answers 200; without it the request itself is repeated until it
succeeds), `stream` (time the tokens of an answer as they arrive: `tenant.record`), `trace` (file with the lengths, and
for `arrival: trace` the times, of the requests).
`{env:NAME}` in `path`, `ready_path` and the values of `headers` is filled in here.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from tenant.client import answers
from tenant.client.connection import Client, Exchange, Selector
from tenant.client.request_loop import RequestLoop
from tenant.contract import Answer
from tenant.contract.requests import fill_variables, variable_names, variable_problem
from tenant.contract.trace import read_trace
from tenant.load import BEFORE_WINDOW, FIXED_PROMPTS, IN_WINDOW, Load, Trace
from tenant.parameters import ParameterError, Params, with_defaults
from tenant.request_bodies import BODY_DEFAULTS, BodyFactory, body_factory
from tenant.workload import RequestError, Work, Workload

POLL_SECONDS = 0.05
DEFAULTS: Params = {
    "url": "",
    "method": "GET",
    "path": "/",
    "headers": {},
    **BODY_DEFAULTS,
    "expect_status": 200,
    "ready_path": None,
    "stream": False,
    "trace": None,
}
BODY_METHODS = ("POST", "PUT")


class HttpClient(Workload):
    work = Work(flop=None, bytes=None, items=1)
    modules = ("aiohttp",)
    is_client = True

    def __init__(self, params: Mapping[str, Any]) -> None:
        """`params` has all keys of DEFAULTS. Raises ParameterError if they do not make a valid request."""
        self._params = params
        self.is_stream = params["stream"]
        texts = [params["path"], params["ready_path"] or "", *params["headers"].values()]
        if problem := variable_problem(texts, os.environ):
            raise ParameterError(f"http_client: {problem}")
        self._method = params["method"]
        self._path, self._ready_path, *values = (fill_variables(text, os.environ) for text in texts)
        paths = self._path + self._ready_path
        if not (paths.isascii() and paths.isprintable() and " " not in paths):
            raise ParameterError(f"http_client {params['path']} cannot be sent: write other characters as %XX")
        if not all(value.isprintable() for value in values):
            raise ParameterError("http_client headers must be of one line each")
        url = urlsplit(params["url"])
        headers = dict(zip(params["headers"], values, strict=True))
        given_names = {name.lower() for name in headers}
        default_headers = {"Host": url.netloc.rpartition("@")[2], "Accept-Encoding": "identity"}
        headers |= {name: value for name, value in default_headers.items() if name.lower() not in given_names}
        self._headers = headers
        self._address = (url.hostname or "", url.port or 80)
        selector = Selector()
        self._client = Client(
            self._address,
            asyncio.SelectorEventLoop(selector),
            lambda: selector.woken_ns,
            secrets=[os.environ[name] for name in variable_names(texts)],
        )
        self._rows = None if params["trace"] is None else read_trace(params["trace"])
        self._bodies = self._body_factories(Load(), 0)
        self._loop: RequestLoop | None = None
        self._asks, self._answers = 0, list[list[Answer]]()

    def loop(self, load: Load, tenant: int, lock: Lock, clock: Callable[[], int]) -> RequestLoop:
        self._bodies, self._asks = self._body_factories(load, tenant), load.asks
        if load.asks:
            self._answers = [self._ask()]
        period = 1 if self.trace is None else len(self.trace.rows)
        self._loop = RequestLoop(self._client, self._exchange, load.max_in_flight, lock, clock, period)
        return self._loop

    def _body_factories(self, load: Load, tenant: int) -> list[BodyFactory]:
        """The bodies of each phase, with the lengths of the tenant's part of a trace if there is one."""
        self.trace = None if self._rows is None else Trace.tenant_part(self._rows, load, tenant)
        phases = (BEFORE_WINDOW, IN_WINDOW)
        return [body_factory(self._params, load.seed, tenant, phase, self.trace) for phase in phases]

    def _exchange(self, phase: int, number: int) -> Exchange:
        content = self._content(self._method, self._path, self._bodies[phase](number))
        return Exchange(content, self._params["expect_status"], self.is_stream)

    def _content(self, method: str, path: str, body: bytes) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in self._headers.items())]
        if body or method in BODY_METHODS:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def on_window(self, start_ns: int, end_ns: int) -> None:
        if self._loop is not None:
            self._loop.start_window(start_ns)

    def end_load(self) -> None:
        if self._loop is not None:
            self._loop.end()

    def step(self) -> None:
        self._client.ask(self._exchange(BEFORE_WINDOW, 0))

    def wait(self, note: Note) -> None:
        """Send requests until the server is ready. The driver, which waits for this, has a deadline."""
        request, ready_path = f"{self._method} {self._params['path']}", self._params["ready_path"]
        ready_request = request if ready_path is None else f"GET {ready_path}"
        has_answered = False
        while True:
            try:
                self._client.connect()
                if not has_answered:
                    note.write(f"{ready_request}: connected, but there is no answer")
                if ready_path is None:
                    self.step()
                else:
                    self._client.ask(Exchange(self._content("GET", self._ready_path, b""), 200, is_stream=False))
            except RequestError as failure:
                note.write(f"{ready_request}: {failure}")
                has_answered = "refused" not in str(failure)
                time.sleep(POLL_SECONDS)
            else:
                note.write(f"{ready_request} is answered, but the warm-up with {request} has not ended")
                return

    def output_digest(self) -> list[float]:
        """Empty, because a server's answers may differ each time."""
        return []

    def fixed_answers(self) -> list[list[Answer]]:
        """The answers to fixed prompts before the load, and now, when no other request is in flight."""
        if self._asks and self._loop is not None:
            self._loop.drain()
            self._answers = [*self._answers[:1], *(self._ask() for _ in range(1, self._asks))]
        return self._answers

    def _ask(self) -> list[Answer]:
        trace = None if self._rows is None else Trace.tenant_part(self._rows, Load(), 0)
        body = body_factory(self._params, seed=0, tenant=0, phase=FIXED_PROMPTS, trace=trace)
        return answers.ask(self._address, self._method, self._path, self._headers, body)


class Note:
    """The last reason why the server is not ready, for the driver to read after a timeout: a line of this log."""

    _last_line = ""

    def write(self, line: str) -> None:
        if line != self._last_line:
            print(line, file=sys.stderr, flush=True)
        self._last_line = line


def create(params: Params, device: str) -> HttpClient:
    values = with_defaults(params, DEFAULTS, "http_client")
    # Allow as many connections as possible. The usual soft limit is 1024 files, for programs that use select().
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    client = HttpClient(values)
    client.wait(Note())
    return client
