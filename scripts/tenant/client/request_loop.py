"""The measuring loop of overlapping requests: it keeps them in flight, and notes when each was due, sent and answered.

Under a closed load, `concurrency` requests are in flight: when one ends, the next is sent, and is due then: what our
client does between the two lowers the rate and lengthens no latency. Under an open load, each is sent when it is due,
unless `concurrency` are in flight already: then it waits, and its latency counts from when it was due. Otherwise the
loop works as those of `tenant.loop`.
"""

import asyncio
import math
from collections.abc import Callable
from itertools import chain
from threading import Lock

import numpy as np

from tenant.client.connection import Client, Exchange
from tenant.load import BEFORE_WINDOW, IN_WINDOW, ArrivalQueue
from tenant.loop import CAPACITY, Loop
from tenant.recorder import Rows

# Pause of a closed load's lane after the server could not be reached or hung up at once.
PAUSE_SECONDS = 0.05
RequestFactory = Callable[[int, int], Exchange]
"""Creates a request from its phase and its number, which counts from the phase's start."""


class RequestLoop:
    """Requests in flight at one server; `concurrency` is None under an open load without a limit.

    The numbers of a trace's requests repeat their lengths after `period`.
    """

    def __init__(
        self,
        client: Client,
        new_request: RequestFactory,
        concurrency: int | None,
        lock: Lock,
        clock: Callable[[], int],
        period: int = 1,
    ) -> None:
        self._client = client
        self._new_request = new_request
        self._concurrency = concurrency
        self._period = period
        self._lock = lock
        self._clock = clock
        self._queue: ArrivalQueue | None = None
        self._in_flight: set[Exchange] = set()
        self._finished: list[Exchange] = []
        self._paused = 0
        self._phase, self._number = BEFORE_WINDOW, 0
        self._window_start_ns: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.last_error: str | None = None
        self._active_begin_ns = self._active_end_ns = 0
        self._is_draining = False

    def as_open_loop(self, queue: ArrivalQueue, lock: Lock, sleep: Callable[[float], None]) -> Loop:
        self._queue = queue
        return self

    def start_window(self, start_ns: int) -> None:
        """Make requests that are due from `start_ns` on those of a window; any thread may call it."""
        self._window_start_ns = start_ns

    # The loop thread.

    def run(self, until_ns: int, max_iterations: int | None = None) -> None:
        """Run until that time or until there is much to fold; requests in flight continue with the next call."""
        assert max_iterations is None, "jobs have no requests"
        loop = self._client.loop
        self._active_begin_ns = self._clock()
        stop = loop.call_at(until_ns / 1e9, loop.stop)
        loop.call_soon(self._fill if self._queue is None else self._admit)
        loop.run_forever()
        stop.cancel()
        self._active_end_ns = self._clock()

    def drain(self) -> None:
        """Wait until no request is in flight, and send none meanwhile."""
        self._is_draining = True
        while self._in_flight:
            self._client.loop.run_forever()
        self._is_draining = False

    def end(self) -> None:
        """Wait until no request is in flight, and send no more: the client goes on under another load."""
        self.drain()
        self._is_draining = True
        if self._timer is not None:
            self._timer.cancel()

    def _has_room(self) -> bool:
        """Whether the load allows one more request in flight."""
        if self._concurrency is None and self._queue is not None:
            return not self._is_draining
        return not self._is_draining and len(self._in_flight) + self._paused < (self._concurrency or 1)

    def _fill(self) -> None:
        while self._has_room():
            now_ns = self._clock()
            self._send(self._new_exchange(now_ns, now_ns))

    def _admit(self) -> None:
        """Send the requests that are due, as far as the limit allows, and set a timer for the next one."""
        assert self._queue is not None
        with self._lock:
            self._queue.admit(self._clock())
            next_ns = self._queue.next_ns
        self._send_waiting(0)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._client.loop.call_at(next_ns / 1e9, self._admit)

    def _send_waiting(self, freed_ns: int) -> None:
        assert self._queue is not None
        while self._has_room():
            with self._lock:
                if not self._queue.waiting:
                    return
                intended_ns = self._queue.waiting.popleft()
                exchange = self._new_exchange(intended_ns, max(intended_ns, freed_ns))
            self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        if self._queue is None and (now_ns := self._clock()) < (self._window_start_ns or math.inf):
            # A request of the warm-up stays one if the window has begun since it was made.
            exchange.intended_ns = now_ns
        self._client.send(exchange)
        # After it, so that connecting and sending count as the client's own time.
        exchange.begun_ns = self._clock()

    def _new_exchange(self, intended_ns: int, free_ns: int) -> Exchange:
        if self._window_start_ns is not None and intended_ns >= self._window_start_ns:
            # After a window that a neighbour refused, numbers go on: a server's cache may know that window's requests.
            self._number = 0 if self._phase == BEFORE_WINDOW else self._number - self._number % -self._period
            self._phase, self._window_start_ns = IN_WINDOW, None
        exchange = self._new_request(self._phase, self._number)
        self._number += 1
        exchange.done = self._on_end
        exchange.intended_ns, exchange.free_ns = intended_ns, free_ns
        self._in_flight.add(exchange)
        return exchange

    def _on_end(self, exchange: Exchange) -> None:
        with self._lock:
            self._in_flight.discard(exchange)
            self._finished.append(exchange)
        if exchange.error is not None:
            self.last_error = exchange.error
        if len(self._finished) >= CAPACITY or (self._is_draining and not self._in_flight):
            self._client.loop.stop()
        assert exchange.ended_ns is not None
        if self._queue is not None:
            self._send_waiting(exchange.ended_ns)
        elif exchange.is_unreachable:
            self._paused += 1
            self._client.loop.call_later(PAUSE_SECONDS, self._resume)
        elif self._has_room():
            self._send(self._new_exchange(self._clock(), exchange.ended_ns))

    def _resume(self) -> None:
        self._paused -= 1
        if self._queue is None:
            self._fill()

    def rows(self) -> Rows:
        return self._rows(self._active_end_ns)

    def clear(self) -> None:
        self._finished.clear()
        if self._queue is not None:
            self._queue.dropped.clear()

    # Any thread, under the lock.

    def peek(self, now_ns: int) -> Rows:
        """`rows` with the tokens of requests in flight."""
        rows = self._rows(now_ns)
        unfinished = (exchange.stream() for exchange in list(self._in_flight))
        return rows._replace(streams=chain(rows.streams, (stream for stream in unfinished if stream is not None)))

    def _rows(self, active_end_ns: int) -> Rows:
        finished = sorted(self._finished, key=lambda exchange: exchange.intended_ns)
        # A generator, because a scrape holds the lock and needs no streams.
        streams = (exchange.stream() for exchange in finished if exchange.error is None)
        return Rows(
            np.array([exchange.intended_ns for exchange in finished], dtype=np.int64),
            np.array([exchange.begun_ns for exchange in finished], dtype=np.int64),
            np.array([exchange.ended_ns for exchange in finished], dtype=np.int64),
            {row: exchange.error for row, exchange in enumerate(finished) if exchange.error is not None},
            [] if self._queue is None else self._queue.dropped.copy(),
            (self._active_begin_ns, active_end_ns),
            np.array([exchange.free_ns for exchange in finished], dtype=np.int64),
            (stream for stream in streams if stream is not None),
            [row for row, exchange in enumerate(finished) if exchange.has_new_connection],
        )

    def unfinished(self, before_ns: int) -> list[int]:
        waiting: list[int] = []
        if self._queue is not None:
            self._queue.admit(before_ns - 1)
            waiting = list(self._queue.waiting)
        in_flight = [exchange.intended_ns for exchange in list(self._in_flight)]
        return sorted(time_ns for time_ns in (*in_flight, *waiting) if time_ns < before_ns)
