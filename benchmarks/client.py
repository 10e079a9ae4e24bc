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
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import numpy as np

from tenant.client.connection import Selector
from tenant.contract import Rule, TenantReport
from tenant.load import Load
from tenant.measure import Measurement
from tenant.record import Identity
from tenant.workloads.http_client import create

RATE_HZ = 200.0
TOKENS = 16
FIRST_SECONDS, GAP_SECONDS, JITTER = 0.05, 0.02, 0.2
WINDOW_SECONDS = 6.0
# 5 % of a core.
LIMIT_CPU_MICROSECONDS = 0.05 / RATE_HZ * 1e6
LIMIT_RATIO, LIMIT_SECONDS = 0.01, 0.0002
SLO_TTFT_SECONDS, SLO_TPOT_SECONDS = 0.05, 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def chunk(data: bytes) -> bytes:
    """A piece of a chunked answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = chunk(
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"planted","choices":[{"index":0,'
    b'"text":" word","logprobs":null,"finish_reason":null}],"usage":null}\n\n'
)
END = chunk(b"data: [DONE]\n\n") + chunk(b"")


class Answering(asyncio.Protocol):
    """One connection of the server; `sent` has for each answer when the server woke for it and sent each token."""

    sent: list[list[int]]
    draws: np.random.Generator
    selector: Selector

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        """Send it, if the client is still there."""
        if not self.transport.is_closing():
            self.transport.write(data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET"):
            self.write(PLAIN)
            return
        waits = np.array([FIRST_SECONDS, *[GAP_SECONDS] * (TOKENS - 1)]) * self.draws.lognormal(0, JITTER, TOKENS)
        times = [self.selector.woken_ns]
        self.sent.append(times)
        due = self.loop.time() + np.cumsum(waits)
        for number, at in enumerate(due.tolist()):
            self.loop.call_at(at, self.token, times, number)

    def token(self, times: list[int], number: int) -> None:
        """Send the next one."""
        times.append(time.monotonic_ns())
        self.write((HEAD if number == 0 else b"") + TOKEN + (END if number == TOKENS - 1 else b""))


def serve(pipe: Connection) -> None:
    """Serve until asked for what was sent."""
    # Its timers are as exact as the client's.
    Answering.selector = Selector()
    loop = asyncio.SelectorEventLoop(Answering.selector)
    Answering.sent, Answering.draws = [], np.random.default_rng(1)
    server = loop.run_until_complete(loop.create_server(Answering, "127.0.0.1", 0, backlog=512))
    pipe.send(server.sockets[0].getsockname()[1])
    loop.add_reader(pipe.fileno(), loop.stop)
    loop.run_forever()
    pipe.send(Answering.sent)


def measured(load: Load, is_stream: bool) -> tuple[TenantReport, int, list[list[int]]]:
    """The record of a window, its start, and what the server sent."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(its,), daemon=True)
    process.start()
    params = {"url": f"http://127.0.0.1:{ours.recv()}", "ready_path": "/", "stream": is_stream}
    client = create(params | ({"method": "POST", "body": "{}"} if is_stream else {}), "cpu")
    measurement = Measurement(client, Identity(0, "client", 0, 0, 0), load, Rule(max_seconds=1))
    measurement.warm_up()
    start_ns = time.monotonic_ns() + 200_000_000
    measurement.set_window(start_ns, start_ns + int(WINDOW_SECONDS * 1e9))
    while measurement._recorder.window is not None:
        measurement.turn()
    ours.send(None)
    sent = ours.recv()
    process.join()
    return measurement.wait_record(0), start_ns, sent


def cpu_microseconds(record: TenantReport) -> float:
    """CPU time of the client per request."""
    assert record["cpu"] is not None
    return 1e6 * record["cpu"]["cpu_seconds"] / record["count"]


def goodput_hz(ttfts: list[float], tpots: list[float]) -> float:
    """Requests per second within both limits."""
    pairs = zip(ttfts, tpots, strict=True)
    return sum(ttft <= SLO_TTFT_SECONDS and tpot <= SLO_TPOT_SECONDS for ttft, tpot in pairs) / WINDOW_SECONDS


def asked_for(sent: list[list[int]], starts_ns: list[int]) -> list[list[int]]:
    """What the server noted of these requests: for each, in order, the first that reached it afterwards."""
    left, found = iter(sorted(sent)), []
    for start_ns in starts_ns:
        found.append(next(times for times in left if times[0] >= start_ns))
    return found


def errors(in_flight: int) -> dict[str, tuple[float, float]]:
    """By metric what the server did and what was reported."""
    record, start_ns, sent = measured(Load(concurrency=in_flight), is_stream=True)
    requests, stages = record["requests"], record["stages"]
    starts_ns = [start_ns + round(1e9 * seconds) for seconds in requests["start_seconds"]]
    times = np.array(asked_for(sent, starts_ns)) / 1e9
    ttft, gaps = times[:, 1] - times[:, 0], np.diff(times[:, 1:])
    tpots = [tpot or 0.0 for tpot in requests["tpot_seconds"]]
    found = {
        kind: (actual, stages[kind]["sum_seconds"] / stages[kind]["count"])
        for kind, actual in (("ttft", ttft.mean()), ("itl", gaps.mean()), ("tpot", gaps.mean()))
    }
    found["goodput"] = (
        goodput_hz(ttft.tolist(), gaps.mean(axis=1).tolist()),
        goodput_hz(requests["ttft_seconds"], tpots),
    )
    return found


def main() -> None:
    """Print both tables; exits with 1 when a limit is exceeded."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, Python {sys.version.split()[0]}")
    load = Load("constant", rate_hz=RATE_HZ)
    plain = measured(load, is_stream=False)[0]
    streamed = measured(load, is_stream=True)[0]
    cost = cpu_microseconds(plain)
    print(
        f"CPU of the client at {RATE_HZ:g} requests/s, µs per request (limit {LIMIT_CPU_MICROSECONDS:g} for an answer)"
    )
    print(f"  an answer                {cost:8.0f}   {cost * RATE_HZ / 1e4:5.1f} % of a core")
    cost_of_stream = cpu_microseconds(streamed)
    print(f"  a stream of {TOKENS} tokens    {cost_of_stream:8.0f}   {cost_of_stream * RATE_HZ / 1e4:5.1f} % of a core")
    for name, record in (("an answer", plain), ("a stream", streamed)):
        print(f"  sent late, p99, {name}: {json.dumps(record['generator']['lateness_p99_seconds'])} s")
    above = ["CPU per request"] if cost > LIMIT_CPU_MICROSECONDS else []
    print("\nIn flight: what the server did and what was reported (ms, requests/s within the SLO), and the difference")
    for in_flight in (1, 16, 64):
        for metric, (actual, reported) in errors(in_flight).items():
            scale = 1 if metric == "goodput" else 1000
            print(
                f"  {in_flight:3} {metric:8}{scale * actual:10.3f}{scale * reported:10.3f}{reported / actual - 1:+9.2%}"
            )
            # A request in the window or out of it, and one at the edge of the SLO.
            slack = 2 / WINDOW_SECONDS if metric == "goodput" else LIMIT_SECONDS
            if abs(reported - actual) > LIMIT_RATIO * actual + slack:
                above.append(f"{metric} at {in_flight}")
    if above:
        sys.exit("above the limit: " + ", ".join(above))


if __name__ == "__main__":
    main()
