"""What the client of `kind: http` costs, and how exact it is: `python benchmarks/client.py`, about a minute.

A minimal server in another process waits as planted, by a seed, until the first token and between two. It notes by the
same clock when it woke for a request and when it sent each token, so that the table has the client's error, with the
way there and back, and not that of the server's timers. Costs are the CPU time of the client's process at RATE_HZ
requests a second. Exit code 1 above a limit. On a busy machine the errors are those of its scheduler, unless the two
processes come first: `chrt -r 5 python benchmarks/client.py`.
"""

from __future__ import annotations

import asyncio
import json
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
# Of the logarithm of each delay.
JITTER = 0.2
# 5 % of a core.
LIMIT_CPU_MICROSECONDS = 0.05 / RATE_HZ * 1e6
LIMIT_RATIO, LIMIT_SECONDS = 0.01, 0.0002
SLO_TTFT_SECONDS, SLO_TPOT_SECONDS = 0.05, 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Planted(NamedTuple):
    """What a server does with each request."""

    first_seconds: float
    gap_seconds: float
    tokens: int


PLANTED = Planted(first_seconds=0.05, gap_seconds=0.02, tokens=16)


def chunk(data: bytes) -> bytes:
    """A piece of a chunked answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(choices: str, usage: str) -> bytes:
    """One of a completion's stream."""
    head = '"id":"cmpl-1","object":"text_completion","created":1,"model":"planted"'
    return chunk(f'data: {{{head},"choices":[{choices}],"usage":{usage}}}\n\n'.encode())


TOKEN = event('{"index":0,"text":" word","logprobs":null,"finish_reason":null}', "null")


class Answering(asyncio.Protocol):
    """One connection of the server.

    `sent` has for each answer when the server woke for its request and when it sent each token, `late_seconds` how late
    it was with its first.
    """

    planted: Planted
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
        """Send it, if the client is still there."""
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
        """Send the next one."""
        if number == 0:
            self.late_seconds.append(self.loop.time() - due)
        times.append(time.monotonic_ns())
        self.write((HEAD if number == 0 else b"") + TOKEN + (self.end if number == self.planted.tokens - 1 else b""))


class Sent(NamedTuple):
    """What a server noted."""

    times_ns: list[list[int]]
    late_seconds: list[float]


def serve(planted: Planted, pipe: Connection) -> None:
    """Serve until asked for what was sent."""
    # Its timers are as exact as the client's.
    Answering.selector = Selector()
    loop = asyncio.SelectorEventLoop(Answering.selector)
    Answering.planted, Answering.draws = planted, np.random.default_rng(1)
    Answering.sent, Answering.late_seconds = [], []
    usage = f'{{"prompt_tokens":1,"completion_tokens":{planted.tokens},"total_tokens":{planted.tokens + 1}}}'
    Answering.end = event("", usage) + chunk(b"data: [DONE]\n\n") + chunk(b"")
    server = loop.run_until_complete(loop.create_server(Answering, "127.0.0.1", 0, backlog=512))
    pipe.send(server.sockets[0].getsockname()[1])
    loop.add_reader(pipe.fileno(), loop.stop)
    loop.run_forever()
    pipe.send(Sent(Answering.sent, Answering.late_seconds))


@contextmanager
def serving(planted: Planted) -> Iterator[tuple[str, Callable[[], Sent]]]:
    """The root of a new server, and what ends it and returns what it sent."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(planted, its), daemon=True)
    process.start()

    def ended() -> Sent:
        ours.send(None)
        return ours.recv()  # type: ignore[no-any-return]

    try:
        yield f"http://127.0.0.1:{ours.recv()}", ended
    finally:
        process.kill()


class Measured(NamedTuple):
    """A window's record, and what the server noted of the requests that were due in it."""

    record: TenantReport
    sent: Sequence[Sequence[int]]
    late_seconds: Sequence[float]


def measured(load: Load, planted: Planted | None, seconds: float = WINDOW_SECONDS) -> Measured:
    """By the client of `kind: http`; no streams are asked for where nothing is planted."""
    with serving(planted or PLANTED) as (url, ended):
        params = {"url": url, "ready_path": "/", "stream": planted is not None}
        client = create(params | ({"method": "POST", "body": "{}"} if planted else {}), "cpu")
        measurement = Measurement(client, Identity(0, "client", 0, 0, 0), load, SteadinessRule(max_seconds=1))
        measurement.warm_up()
        start_ns = time.monotonic_ns() + 200_000_000
        measurement.set_window(start_ns, start_ns + int(seconds * 1e9))
        while measurement._recorder.window is not None:
            measurement.run_chunk()
        sent = ended()
        record = measurement.wait_record(0)
        starts_ns = [start_ns + round(1e9 * at) for at in record["requests"]["start_seconds"]] if planted else []
        return Measured(record, asked_for(sent.times_ns, starts_ns), sent.late_seconds)


def asked_for(sent: list[list[int]], starts_ns: list[int]) -> list[list[int]]:
    """What the server noted of these requests: for each, in order, the first that reached it afterwards."""
    left = iter(sorted(sent))
    return [next(times for times in left if times[0] >= start_ns) for start_ns in starts_ns]


Numbers = dict[str, float]
"""Means in ms: `ttft`, `itl`, `tpot`, `latency`."""


def true(sent: Sequence[Sequence[int]]) -> Numbers:
    """What the server did."""
    times = np.array(sent) / 1e6
    gap = float(np.diff(times[:, 1:]).mean())
    ttft, latency = (float((times[:, column] - times[:, 0]).mean()) for column in (1, -1))
    return {"ttft": ttft, "itl": gap, "tpot": gap, "latency": latency}


def reported(record: TenantReport) -> Numbers:
    """What was measured."""
    itl, asked = record["stages"]["itl"], record["requests"]
    seconds = {"ttft": asked["ttft_seconds"], "tpot": asked["tpot_seconds"], "latency": asked["latency_seconds"]}
    means = {name: 1000 * float(np.array(values, dtype=float).mean()) for name, values in seconds.items()}
    return means | {"itl": 1000 * itl["sum_seconds"] / itl["count"]}


def cpu_microseconds(record: TenantReport) -> float:
    """CPU time of the client per request."""
    assert record["cpu"] is not None
    return 1e6 * record["cpu"]["cpu_seconds"] / record["count"]


def goodput_hz(ttfts: Sequence[float], tpots: Sequence[float], more_seconds: float = 0.0) -> float:
    """Requests per second within both limits, raised by so much."""
    ttft_limit, tpot_limit = SLO_TTFT_SECONDS + more_seconds, SLO_TPOT_SECONDS + more_seconds
    pairs = zip(ttfts, tpots, strict=True)
    return sum(ttft <= ttft_limit and tpot <= tpot_limit for ttft, tpot in pairs) / WINDOW_SECONDS


def errors(in_flight: int) -> dict[str, tuple[float, float, float]]:
    """By metric what the server did, what was reported, and how far apart they may be."""
    record, sent, _ = measured(Load(concurrency=in_flight), PLANTED)
    did, found = true(sent), reported(record)
    rows = {name: (did[name], found[name], LIMIT_RATIO * did[name] + 1000 * LIMIT_SECONDS) for name in did}
    times, requests = np.array(sent) / 1e9, record["requests"]
    actual = ((times[:, 1] - times[:, 0]).tolist(), np.diff(times[:, 1:]).mean(axis=1).tolist())
    goodput = goodput_hz(requests["ttft_seconds"], [tpot or 0.0 for tpot in requests["tpot_seconds"]])
    # Those at the edge of the SLO, and of the window.
    at_edges = goodput_hz(*actual, LIMIT_SECONDS) - goodput_hz(*actual, -LIMIT_SECONDS) + 2 / WINDOW_SECONDS
    return rows | {"goodput": (goodput_hz(*actual), goodput, LIMIT_RATIO * goodput_hz(*actual) + at_edges)}


def main() -> None:
    """Print both tables; exits with 1 when a limit is exceeded."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, Python {sys.version.split()[0]}")
    load = Load("constant", rate_hz=RATE_HZ)
    plain, streamed = measured(load, None).record, measured(load, PLANTED).record
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
        for metric, (actual, found, apart) in errors(in_flight).items():
            print(f"  {in_flight:3} {metric:8}{actual:10.3f}{found:10.3f}{found / actual - 1:+9.2%}")
            if abs(found - actual) > apart:
                above.append(f"{metric} at {in_flight}")
    if above:
        sys.exit("above the limit: " + ", ".join(above))


if __name__ == "__main__":
    main()
