"""The measuring loop of requests that overlap: it keeps them in flight, and notes when each was due, sent and answered.

Closed, `concurrency` of them: where one ends, the next is sent. Open, each is sent when it is due, unless as many are
in flight already: then it waits, and its latency counts from when it was due. The rest is as in `tenant.loop`.
"""

import asyncio
from collections.abc import Callable
from itertools import chain
from threading import Lock

import numpy as np

from tenant.client.connection import Client, Exchange
from tenant.load import BEFORE_WINDOW, IN_WINDOW, ArrivalQueue
from tenant.loop import CAPACITY, Loop
from tenant.recorder import Rows

# Before a lane of a closed load tries again to reach a server that could not be reached, or hung up at once.
PAUSE_SECONDS = 0.05
Make = Callable[[int, int], Exchange]
"""The request of a phase and a number, which counts from the phase's start."""


class Flight:
    """Requests in flight at one server; `concurrency` is None where nothing limits an open load."""

    def __init__(
        self, client: Client, make: Make, concurrency: int | None, lock: Lock, clock: Callable[[], int]
    ) -> None:
        self._client = client
        self._make = make
        self._concurrency = concurrency
        self._lock = lock
        self._clock = clock
        self._queue: ArrivalQueue | None = None
        self._out: set[Exchange] = set()
        self._done: list[Exchange] = []
        self._paused = 0
        self._phase, self._number = BEFORE_WINDOW, 0
        self._restart_ns: int | None = None
        self._due: asyncio.TimerHandle | None = None
        self.last_error: str | None = None
        self._active_begin_ns = self._active_end_ns = 0

    def opened(self, queue: ArrivalQueue, lock: Lock, sleep: Callable[[float], None]) -> Loop:
        self._queue = queue
        return self

    def restart(self, start_ns: int) -> None:
        """Requests that are due from `start_ns` on are those of a window; from any thread."""
        self._restart_ns = start_ns

    # The loop thread.

    def run(self, until_ns: int, most: int | None = None) -> None:
        """Until that time, or until there is much to fold; what is in flight then goes on with the next call."""
        assert most is None, "jobs have no requests"
        loop = self._client.loop
        self._active_begin_ns = self._clock()
        stop = loop.call_at(until_ns / 1e9, loop.stop)
        loop.call_soon(self._fill if self._queue is None else self._admit)
        loop.run_forever()
        stop.cancel()
        self._active_end_ns = self._clock()

    def _fill(self) -> None:
        while len(self._out) + self._paused < (self._concurrency or 1):
            now_ns = self._clock()
            self._client.send(self._taken_up(now_ns, now_ns))

    def _admit(self) -> None:
        """Send what is due, as far as the limit allows, and set a timer for the next one."""
        assert self._queue is not None
        with self._lock:
            self._queue.admit(self._clock())
            next_ns = self._queue.next_ns
        self._send_waiting(0)
        if self._due is not None:
            self._due.cancel()
        self._due = self._client.loop.call_at(next_ns / 1e9, self._admit)

    def _send_waiting(self, freed_ns: int) -> None:
        assert self._queue is not None
        while self._concurrency is None or len(self._out) < self._concurrency:
            with self._lock:
                if not self._queue.waiting:
                    return
                intended_ns = self._queue.waiting.popleft()
                exchange = self._taken_up(intended_ns, max(intended_ns, freed_ns))
            self._client.send(exchange)

    def _taken_up(self, intended_ns: int, free_ns: int) -> Exchange:
        if self._restart_ns is not None and intended_ns >= self._restart_ns:
            # A window that a neighbour refused has begun all the same, and a server's cache would know its requests.
            self._number = 0 if self._phase == BEFORE_WINDOW else self._number
            self._phase, self._restart_ns = IN_WINDOW, None
        exchange = self._make(self._phase, self._number)
        self._number += 1
        exchange.done = self._ended
        exchange.intended_ns, exchange.free_ns, exchange.begun_ns = intended_ns, free_ns, self._clock()
        self._out.add(exchange)
        return exchange

    def _ended(self, exchange: Exchange) -> None:
        with self._lock:
            self._out.discard(exchange)
            self._done.append(exchange)
        if exchange.error is not None:
            self.last_error = exchange.error
        if len(self._done) >= CAPACITY:
            self._client.loop.stop()
        assert exchange.ended_ns is not None
        if self._queue is not None:
            self._send_waiting(exchange.ended_ns)
        elif exchange.is_unreachable:
            self._paused += 1
            self._client.loop.call_later(PAUSE_SECONDS, self._resume)
        elif len(self._out) + self._paused < (self._concurrency or 1):
            self._client.send(self._taken_up(exchange.ended_ns, exchange.ended_ns))

    def _resume(self) -> None:
        self._paused -= 1
        if self._queue is None:
            self._fill()

    def rows(self) -> Rows:
        return self._rows(self._active_end_ns)

    def clear(self) -> None:
        self._done.clear()
        if self._queue is not None:
            self._queue.dropped.clear()

    # Any thread, under the lock.

    def peek(self, now_ns: int) -> Rows:
        """With the tokens of what is in flight, too."""
        rows = self._rows(now_ns)
        under_way = (exchange.stream() for exchange in list(self._out))
        return rows._replace(streams=chain(rows.streams, (each for each in under_way if each is not None)))

    def _rows(self, active_end_ns: int) -> Rows:
        done = sorted(self._done, key=lambda exchange: exchange.intended_ns)
        # Made when they are asked for: a scrape asks for none, and holds the lock.
        good = (exchange.stream() for exchange in done if exchange.error is None)
        return Rows(
            np.array([exchange.intended_ns for exchange in done], dtype=np.int64),
            np.array([exchange.begun_ns for exchange in done], dtype=np.int64),
            np.array([exchange.ended_ns for exchange in done], dtype=np.int64),
            [row for row, exchange in enumerate(done) if exchange.error is not None],
            [] if self._queue is None else self._queue.dropped.copy(),
            (self._active_begin_ns, active_end_ns),
            np.array([exchange.free_ns for exchange in done], dtype=np.int64),
            (each for each in good if each is not None),
        )

    def unfinished(self, before_ns: int) -> list[int]:
        waiting: list[int] = []
        if self._queue is not None:
            self._queue.admit(before_ns - 1)
            waiting = list(self._queue.waiting)
        out = [exchange.intended_ns for exchange in list(self._out)]
        return sorted(time_ns for time_ns in (*out, *waiting) if time_ns < before_ns)
