"""What is asked of a tenant: back-to-back iterations (closed), or requests at times of their own (open)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, takewhile

import numpy as np

from tenant.contract import Arrival

BATCH = 1024
# Of an open load, how many requests may wait.
QUEUE_LIMIT = 10_000
# Stretches of a load, each with arrivals and requests of its own.
BEFORE_WINDOW, IN_WINDOW = 0, 1


@dataclass(frozen=True)
class Load:
    """Arrival process, as the driver plans it; `rate_hz` is None for closed load.

    `concurrency` is how many are in flight, under an open load at most; None is 1 in a closed one, else any number.
    `seed` belongs to the workload and the repeat, `before` is how many tenants before this one run something else: so
    the first tenant of a workload has the same arrivals next to any neighbours.
    """

    arrival: Arrival = "closed"
    rate_hz: float | None = None
    concurrency: int | None = None
    seed: int = 0
    before: int = 0

    @property
    def most_in_flight(self) -> int | None:
        """At a server; None where nothing limits it."""
        return self.concurrency or (1 if self.rate_hz is None else None)


def arrival_times_ns(load: Load, tenant: int, start_ns: int, phase: int = 0) -> Iterator[int]:
    """Intended starts of an open load, ascending without end, from `start_ns` on.

    Constant: one every 1 / rate, the first at a random moment of the first gap, so that tenants are not in step;
    counted from there, so that rounding does not add up. Poisson: exponential gaps. Each `phase` of each tenant has a
    generator of its own. Raises ValueError for closed load.
    """
    if load.rate_hz is None:
        raise ValueError("closed load has no arrival times")
    gap_ns = 1e9 / load.rate_hz
    generator = np.random.default_rng([load.seed, tenant - load.before, phase])
    if load.arrival == "constant":
        first = generator.random()
        for number in count():
            yield start_ns + round((number + first) * gap_ns)
    elapsed_ns = 0.0
    while True:
        batch = elapsed_ns + np.cumsum(generator.exponential(gap_ns, BATCH))
        elapsed_ns = float(batch[-1])
        yield from (batch.astype(np.int64) + start_ns).tolist()


class ArrivalQueue:
    """Requests that wait, first come first served; one that arrives when `limit` wait is dropped.

    Nothing leaves the queue while a request is served, so admitting the arrivals of a whole service at its end drops
    exactly those that found it full.
    """

    def __init__(self, arrivals_ns: Iterator[int], limit: int = QUEUE_LIMIT) -> None:
        self.waiting: deque[int] = deque()
        self.dropped: list[int] = []
        self._arrivals_ns = arrivals_ns
        self._limit = limit
        self.next_ns = next(arrivals_ns)

    def restart(self, start_ns: int, arrivals_ns: Iterator[int]) -> None:
        """From `start_ns` on, which is not over yet, requests come at these times instead."""
        before_ns = takewhile(lambda time_ns: time_ns < start_ns, chain([self.next_ns], self._arrivals_ns))
        self._arrivals_ns = chain(before_ns, arrivals_ns)
        self.next_ns = next(self._arrivals_ns)

    def admit(self, until_ns: int) -> None:
        while self.next_ns <= until_ns:
            if len(self.waiting) < self._limit:
                self.waiting.append(self.next_ns)
            else:
                self.dropped.append(self.next_ns)
            self.next_ns = next(self._arrivals_ns)
