"""Cost and accuracy of the client of `kind: http`: `python benchmarks/client.py`, about a minute.

A minimal server in another process delays its tokens by random times from a seed. It records by the same clock when it
woke for a request and when it sent each token, so that the table has the errors of the client and the connection, but
not of the server's timers. Costs are the CPU time of the client's process at RATE_HZ requests per second. Exit code 1
above a limit. On a busy machine the errors are those of its scheduler, unless both processes have priority:
`chrt -r 5 python benchmarks/client.py`.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import numpy as np

from tenant.client.connection import Selector
from tenant.contract import SteadinessRule, TenantReport
from tenant.load import Load
from tenant.measure import Measurement
from tenant.record import Identity
from tenant.workloads.http_client import create

RATE_HZ = 200.0
WINDOW_SECONDS = 6.0
# Standard deviation of the logarithm of a delay.
JITTER = 0.2
# 5 % of a core.
LIMIT_CPU_MICROSECONDS = 0.05 / RATE_HZ * 1e6
LIMIT_RATIO, LIMIT_SECONDS = 0.01, 0.0002
SLO_TTFT_SECONDS, SLO_TPOT_SECONDS = 0.05, 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"ok": true}'


class PlantedDelays(NamedTuple):
    """Median delays of a server's answer, and its number of tokens."""

    first_seconds: float
    gap_seconds: float
    tokens: int


PLANTED = PlantedDelays(first_seconds=0.05, gap_seconds=0.02, tokens=16)


def chunk(data: bytes) -> bytes:
    """A piece of a chunked answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(choices: str, usage: str) -> bytes:
    """An event of a completion's stream."""
    head = '"id":"cmpl-1","object":"text_completion","created":1,"model":"planted"'
    return chunk(f'data: {{{head},"choices":[{choices}],"usage":{usage}}}\n\n'.encode())


TOKEN = event('{"index":0,"text":" word","logprobs":null,"finish_reason":null}', "null")


class ServerConnection(asyncio.Protocol):
    """One connection of the server.

    `sent` has for each answer the time at which the server woke for its request and the time of each token;
    `late_seconds` has the lateness of each first token.
    """

    planted: PlantedDelays
    end: bytes
    sent: list[list[int]]
    late_seconds: list[float]
    draws: np.random.Generator
    selector: Selector

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.head, self.missing = b"", 0

    def write(self, data: bytes) -> None:
        """Send data unless the client has closed the connection."""
        if not self.transport.is_closing():
            self.transport.write(data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self.missing:
            self.missing -= len(data)
        else:
            self.head += data
            head, mark, body = self.head.partition(b"\r\n\r\n")
            if not mark:
                return
            self.head = b""
            if not head.startswith(b"POST"):
                self.write(PLAIN)
                return
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.missing = int(length) - len(body)
        if not self.missing:
            self.answer()

    def answer(self) -> None:
        """Send each token when it is due."""
        first, gap, tokens = self.planted
        waits = np.array([first, *[gap] * (tokens - 1)]) * self.draws.lognormal(0, JITTER, tokens)
        times = [self.selector.woken_ns]
        self.sent.append(times)
        due = self.loop.time() + np.cumsum(waits)
        for number, at in enumerate(due.tolist()):
            self.loop.call_at(at, self.token, times, number, at)

    def token(self, times: list[int], number: int, due: float) -> None:
        """Send the next token."""
        if number == 0:
            self.late_seconds.append(self.loop.time() - due)
        times.append(time.monotonic_ns())
        self.write((HEAD if number == 0 else b"") + TOKEN + (self.end if number == self.planted.tokens - 1 else b""))


class ServerLog(NamedTuple):
    """`sent` and `late_seconds` of all connections of a server."""

    times_ns: list[list[int]]
    late_seconds: list[float]


def serve(planted: PlantedDelays, pipe: Connection) -> None:
    """Serve until a message arrives in the pipe, and answer it with the server's log."""
    # The same selector as the client's, so that its timers are as exact.
    ServerConnection.selector = Selector()
    loop = asyncio.SelectorEventLoop(ServerConnection.selector)
    ServerConnection.planted, ServerConnection.draws = planted, np.random.default_rng(1)
    ServerConnection.sent, ServerConnection.late_seconds = [], []
    usage = f'{{"prompt_tokens":1,"completion_tokens":{planted.tokens},"total_tokens":{planted.tokens + 1}}}'
    ServerConnection.end = event("", usage) + chunk(b"data: [DONE]\n\n") + chunk(b"")
    server = loop.run_until_complete(loop.create_server(ServerConnection, "127.0.0.1", 0, backlog=512))
    pipe.send(server.sockets[0].getsockname()[1])
    loop.add_reader(pipe.fileno(), loop.stop)
    loop.run_forever()
    pipe.send(ServerLog(ServerConnection.sent, ServerConnection.late_seconds))


@contextmanager
def serving(planted: PlantedDelays) -> Iterator[tuple[str, Callable[[], ServerLog]]]:
    """Start a server; yields its URL and a function that ends it and returns its log."""
    # A fork would have the descriptors of an open load that is over; from 1024 on the selector cannot wait for one.
    spawned = multiprocessing.get_context("spawn")
    pipe, server_pipe = spawned.Pipe()
    process = spawned.Process(target=serve, args=(planted, server_pipe), daemon=True)
    process.start()

    def end() -> ServerLog:
        pipe.send(None)
        return pipe.recv()  # type: ignore[no-any-return]

    try:
        yield f"http://127.0.0.1:{pipe.recv()}", end
    finally:
        process.kill()


class MeasuredWindow(NamedTuple):
    """A window's record, and the server's log of the requests that were due in it."""

    record: TenantReport
    sent: Sequence[Sequence[int]]
    late_seconds: Sequence[float]


def measure(load: Load, planted: PlantedDelays | None, seconds: float = WINDOW_SECONDS) -> MeasuredWindow:
    """Measure a server by the client of `kind: http`; requests have plain answers if `planted` is None."""
    with serving(planted or PLANTED) as (url, end):
        params = {"url": url, "ready_path": "/", "stream": planted is not None}
        client = create(params | ({"method": "POST", "body": "{}"} if planted else {}), "cpu")
        measurement = Measurement(client, Identity(0, "client", 0, 0, 0), load, SteadinessRule(max_seconds=1))
        measurement.warm_up()
        start_ns = time.monotonic_ns() + 200_000_000
        measurement.set_window(start_ns, start_ns + int(seconds * 1e9))
        while measurement._recorder.window is not None:
            measurement.run_chunk()
        # Those in flight end, so that all connections can be closed.
        client.end_load()
        log = end()
        record = measurement.wait_record(0)
        # On a busy machine an open load has hundreds, and descriptors from 1024 on are out of the selector's range.
        for connection in client._client.idle:
            connection.wire.close()
        starts_ns = [start_ns + round(1e9 * at) for at in record["requests"]["start_seconds"]] if planted else []
        return MeasuredWindow(record, match_requests(log.times_ns, starts_ns), log.late_seconds)


def match_requests(sent: list[list[int]], starts_ns: list[int]) -> list[list[int]]:
    """The server's times of each of these requests, which is the next one that reached it after the start."""
    remaining = iter(sorted(sent))
    return [next(times for times in remaining if times[0] >= start_ns) for start_ns in starts_ns]


Means = dict[str, float]
"""Means in ms of `ttft`, `itl`, `tpot` and `latency`."""


def actual_means(sent: Sequence[Sequence[int]]) -> Means:
    """The means according to the server's log."""
    times = np.array(sent) / 1e6
    gap = float(np.diff(times[:, 1:]).mean())
    ttft, latency = (float((times[:, column] - times[:, 0]).mean()) for column in (1, -1))
    return {"ttft": ttft, "itl": gap, "tpot": gap, "latency": latency}


def reported_means(record: TenantReport) -> Means:
    """The means according to the client's record."""
    itl, columns = record["stages"]["itl"], record["requests"]
    seconds = {"ttft": columns["ttft_seconds"], "tpot": columns["tpot_seconds"], "latency": columns["latency_seconds"]}
    means = {name: 1000 * float(np.array(values, dtype=float).mean()) for name, values in seconds.items()}
    return means | {"itl": 1000 * itl["sum_seconds"] / itl["count"]}


def cpu_microseconds(record: TenantReport) -> float:
    """CPU time of the client per request."""
    assert record["cpu"] is not None
    return 1e6 * record["cpu"]["cpu_seconds"] / record["count"]


def goodput_hz(ttfts: Sequence[float], tpots: Sequence[float], more_seconds: float = 0.0) -> float:
    """Requests per second within both limits, which are raised by `more_seconds`."""
    ttft_limit, tpot_limit = SLO_TTFT_SECONDS + more_seconds, SLO_TPOT_SECONDS + more_seconds
    pairs = zip(ttfts, tpots, strict=True)
    return sum(ttft <= ttft_limit and tpot <= tpot_limit for ttft, tpot in pairs) / WINDOW_SECONDS


def errors(in_flight: int) -> dict[str, tuple[float, float, float]]:
    """By metric the actual value, the reported value, and the allowed difference."""
    record, sent, _ = measure(Load(concurrency=in_flight), PLANTED)
    actual, reported = actual_means(sent), reported_means(record)
    rows = {name: (value, reported[name], LIMIT_RATIO * value + 1000 * LIMIT_SECONDS) for name, value in actual.items()}
    times, requests = np.array(sent) / 1e9, record["requests"]
    ttfts_and_tpots = ((times[:, 1] - times[:, 0]).tolist(), np.diff(times[:, 1:]).mean(axis=1).tolist())
    reported_hz = goodput_hz(requests["ttft_seconds"], [tpot or 0.0 for tpot in requests["tpot_seconds"]])
    actual_hz, more_hz, fewer_hz = (goodput_hz(*ttfts_and_tpots, by) for by in (0.0, LIMIT_SECONDS, -LIMIT_SECONDS))
    # Requests at the edges of the SLO and of the window may count or not.
    at_edges_hz = more_hz - fewer_hz + 2 / WINDOW_SECONDS
    return rows | {"goodput": (actual_hz, reported_hz, LIMIT_RATIO * actual_hz + at_edges_hz)}


def main() -> None:
    """Print both tables; exits with 1 if a limit is exceeded."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, Python {sys.version.split()[0]}")
    load = Load("constant", rate_hz=RATE_HZ)
    plain, streamed = measure(load, None).record, measure(load, PLANTED).record
    cost, cost_of_stream = cpu_microseconds(plain), cpu_microseconds(streamed)
    print(
        f"CPU of the client at {RATE_HZ:g} requests/s, µs per request (limit {LIMIT_CPU_MICROSECONDS:g} for an answer)"
    )
    for name, each in (("an answer", cost), (f"a stream of {PLANTED.tokens} tokens", cost_of_stream)):
        print(f"  {name:24} {each:8.0f}   {each * RATE_HZ / 1e4:5.1f} % of a core")
    for name, record in (("an answer", plain), ("a stream", streamed)):
        print(f"  sent late, p99, {name}: {json.dumps(record['generator']['lateness_p99_seconds'])} s")
    above = ["CPU per request"] if cost > LIMIT_CPU_MICROSECONDS else []
    print("\nIn flight: what the server did and what was reported (ms, requests/s within the SLO), and the difference")
    for in_flight in (1, 16, 64):
        for metric, (actual, reported, limit) in errors(in_flight).items():
            # On a busy machine no request may be within the SLO.
            change = reported / actual - 1 if actual else math.nan
            print(f"  {in_flight:3} {metric:8}{actual:10.3f}{reported:10.3f}{change:+9.2%}")
            if abs(reported - actual) > limit:
                above.append(f"{metric} at {in_flight}")
    if above:
        sys.exit("above the limit: " + ", ".join(above))


if __name__ == "__main__":
    main()
