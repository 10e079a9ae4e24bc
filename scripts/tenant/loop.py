"""The measuring loops run the workload and note when each iteration ended, as cheaply as possible.

A loop runs one chunk at a time. Between chunks the finished rows are taken, folded and cleared. Only the loop thread
calls its methods, except for `peek` and `unfinished`: another thread may call these while it holds the lock under which
rows are cleared and, with an open load, the queue changes. `last_error` is the message of the last failed iteration.
"""

import time
from collections.abc import Callable
from threading import Lock
from typing import Protocol, runtime_checkable

import numpy as np

from tenant.load import ArrivalQueue, Load
from tenant.recorder import IntArray, Rows
from tenant.workload import RequestError

CAPACITY = 1 << 14
# An idle open loop folds from this number of rows on; rarely, because a request that arrives during a fold waits.
IDLE_FOLD_ROWS = 1024


class Loop(Protocol):
    """A measuring loop; it has a closed load until `as_open_loop`."""

    last_error: str | None

    def as_open_loop(self, queue: ArrivalQueue, lock: Lock, sleep: Callable[[float], None]) -> "Loop":
        """Return the loop that continues with an open load, whose requests come from `queue`."""

    def run(self, until_ns: int, max_iterations: int | None = None) -> None:
        """Run until that time or until there is much to fold; a closed loop runs at most `max_iterations`."""

    def rows(self) -> Rows:
        """Iterations that finished since the last `clear`, by ascending intended start."""

    def clear(self) -> None: ...

    def peek(self, now_ns: int) -> Rows:
        """`rows` for another thread: exact up to now, even if the loop is stuck in an iteration."""

    def unfinished(self, before_ns: int) -> list[int]:
        """Intended starts before `before_ns` of iterations that are running or waiting."""


@runtime_checkable
class OverlappingWorkload(Protocol):
    """A workload whose iterations overlap, so that it brings its own loop."""

    def loop(self, load: Load, tenant: int, lock: Lock, clock: Callable[[], int]) -> Loop:
        """Create the loop; `tenant` is the tenant's number among those with the same workload."""


class ClosedLoop:
    """Back-to-back iterations: each starts when the last one ended.

    The times are stored in a list of fixed length. Setting an item of a list takes 10 ns, of an `array` 50 ns; the
    difference is more than the conversion to numpy costs (20 ns).

    Another thread needs no lock to see the progress of a chunk: items are 0 until their iteration has ended, they are
    set in order, and slicing a list copies it in one step under the interpreter's lock.
    """

    def __init__(
        self, step: Callable[[], None], clock: Callable[[], int] = time.monotonic_ns, capacity: int = CAPACITY
    ) -> None:
        # Item 0 is the start of the chunk, item i the end of its i-th iteration.
        self._times = [0] * (capacity + 1)
        self._step = step
        self._clock = clock
        self._failed: dict[int, str] = {}
        self.last_error: str | None = None
        self._filled = 0
        self._running = False

    def as_open_loop(self, queue: ArrivalQueue, lock: Lock, sleep: Callable[[float], None]) -> Loop:
        return OpenLoop(self._step, queue, lock, self._clock, sleep)

    def run(self, until_ns: int, max_iterations: int | None = None) -> None:
        """Run iterations until one ends at or after `until_ns`, one fails, or the list is full."""
        step, clock, times = self._step, self._clock, self._times
        index = 0
        times[0] = clock()
        self._running = True
        try:
            for index in range(1, len(times) if max_iterations is None else min(len(times), max_iterations + 1)):
                step()
                now = times[index] = clock()
                if now >= until_ns:
                    break
        except RequestError as error:
            # Set before the time is, so that no other thread sees the iteration as successful.
            self._failed[index - 1] = self.last_error = str(error)
            times[index] = clock()
        self._running = False
        self._filled = index

    def rows(self) -> Rows:
        times = np.fromiter(self._times, dtype=np.int64, count=self._filled + 1)
        return self._rows(times, int(times[-1]))

    def _rows(self, times: IntArray, active_end_ns: int) -> Rows:
        failed = {row: reason for row, reason in list(self._failed.items()) if row < times.size - 1}
        return Rows(times[:-1], None, times[1:], failed, (), (int(times[0]), active_end_ns))

    def clear(self) -> None:
        self._times[: self._filled + 1] = [0] * (self._filled + 1)
        self._failed.clear()
        self._filled = 0

    def _finished_times(self) -> IntArray:
        times = np.array(self._times[:], dtype=np.int64)
        return times[: max(1, np.count_nonzero(times))]

    def peek(self, now_ns: int) -> Rows:
        running, times = self._running, self._finished_times()
        return self._rows(times, now_ns if running else int(times[-1]))

    def unfinished(self, before_ns: int) -> list[int]:
        if not self._running:
            return []
        start_ns = int(self._finished_times()[-1])
        return [start_ns] if start_ns < before_ns else []


class OpenLoop:
    """Requests arrive when they are due, wait in a queue, and are served one at a time.

    The loop waits by sleeping, because a spinning tenant would take the CPU from its neighbours. `lock` guards the
    queue and the request that is served; it is held for moments, never during an iteration.
    """

    def __init__(
        self,
        step: Callable[[], None],
        queue: ArrivalQueue,
        lock: Lock,
        clock: Callable[[], int],
        sleep: Callable[[float], None],
        capacity: int = CAPACITY,
    ) -> None:
        self._intended: list[int] = []
        self._begun: list[int] = []
        self._ended: list[int] = []
        self._step = step
        self._queue = queue
        self._lock = lock
        self._clock = clock
        self._sleep = sleep
        self._capacity = capacity
        self._serving: int | None = None
        self._failed: dict[int, str] = {}
        self.last_error: str | None = None
        self._active_begin_ns = self._active_end_ns = 0

    def as_open_loop(self, queue: ArrivalQueue, lock: Lock, sleep: Callable[[float], None]) -> Loop:
        return self

    def run(self, until_ns: int, max_iterations: int | None = None) -> None:
        """Serve requests until `until_ns`; returns early at CAPACITY rows, or when idle with IDLE_FOLD_ROWS rows."""
        self._active_begin_ns = self._clock()
        while len(self._ended) < self._capacity:
            now_ns = self._clock()
            if now_ns >= until_ns:
                break
            with self._lock:
                self._queue.admit(now_ns)
                self._serving = self._queue.waiting.popleft() if self._queue.waiting else None
            if self._serving is not None:
                self._serve(self._serving, now_ns)
            elif len(self._ended) < IDLE_FOLD_ROWS:
                self._sleep((min(self._queue.next_ns, until_ns) - now_ns) / 1e9)
            else:
                break
        self._active_end_ns = self._clock()

    def _serve(self, intended_ns: int, begun_ns: int) -> None:
        failure = None
        try:
            self._step()
        except RequestError as error:
            failure = self.last_error = str(error)
        ended_ns = self._clock()
        with self._lock:
            if failure is not None:
                self._failed[len(self._ended)] = failure
            self._intended.append(intended_ns)
            self._begun.append(begun_ns)
            self._ended.append(ended_ns)
            self._serving = None

    def rows(self) -> Rows:
        return self.peek(self._active_end_ns)

    def clear(self) -> None:
        for times in (self._intended, self._begun, self._ended, self._failed, self._queue.dropped):
            times.clear()

    def peek(self, now_ns: int) -> Rows:
        return Rows(
            np.array(self._intended, dtype=np.int64),
            np.array(self._begun, dtype=np.int64),
            np.array(self._ended, dtype=np.int64),
            self._failed.copy(),
            self._queue.dropped.copy(),
            (self._active_begin_ns, now_ns),
        )

    def unfinished(self, before_ns: int) -> list[int]:
        """As in ClosedLoop; first admits what is due, as the loop would do at the end of the iteration."""
        self._queue.admit(before_ns - 1)
        waiting = [time_ns for time_ns in self._queue.waiting if time_ns < before_ns]
        return waiting if self._serving is None else [self._serving, *waiting]
