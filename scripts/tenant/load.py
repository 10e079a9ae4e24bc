"""Load of a tenant: back-to-back iterations (closed), or requests that arrive at times of their own (open)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from typing import NamedTuple

import numpy as np

from tenant.contract import Arrival
from tenant.contract.trace import TraceRow, period_seconds

DRAW_BATCH = 1024
# Limit of waiting requests under an open load.
QUEUE_LIMIT = 10_000
# The phases of a load; each has its own arrivals and requests.
BEFORE_WINDOW, IN_WINDOW = 0, 1
# The phase of the prompts that are the same for all tenants and repeats.
FIXED_PROMPTS = 2


@dataclass(frozen=True)
class Load:
    """The arrival process that the driver planned; `rate_hz` is None for a closed load.

    `concurrency` is the number of requests in flight, at most under an open load; None is 1 if closed, unlimited if
    open. `seed` depends on workload and repeat, `before` is the number of earlier tenants with other workloads: a
    workload's first tenant has the same arrivals next to any neighbours. `parts` is the number of tenants that share a
    trace. `asks` is how often a server is asked fixed prompts: once before the load, else after the window.
    """

    arrival: Arrival = "closed"
    rate_hz: float | None = None
    concurrency: int | None = None
    seed: int = 0
    before: int = 0
    parts: int = 1
    asks: int = 0

    @property
    def max_in_flight(self) -> int | None:
        """Largest number of requests in flight at a server; None without a limit."""
        return self.concurrency or (1 if self.rate_hz is None else None)


class NamedLoad(NamedTuple):
    """A load, with the name of the workload that it makes, and of the watched cell if Prometheus reads the metrics."""

    name: str
    load: Load
    watched_cell: str = ""


@dataclass(frozen=True)
class Trace:
    """A tenant's requests in a trace, which repeat after `period_seconds`; seconds count from the load's start."""

    rows: Sequence[TraceRow]
    period_seconds: float

    @classmethod
    def tenant_part(cls, rows: Sequence[TraceRow], load: Load, number: int) -> Trace:
        """The part of tenant `number` of its workload: every `load.parts`-th request, or all of them.

        Where each tenant has all, the first begins with the first and the others at a random one, so that tenants are
        not in step. Raises ValueError if no request is left for the tenant.
        """
        period = period_seconds(rows)
        if load.parts > 1:
            if len(rows) < load.parts:
                raise ValueError(f"{len(rows)} requests are too few for {load.parts} tenants that share the trace")
            return cls(rows[number :: load.parts], period)
        if number == 0:
            return cls(rows, period)
        first = int(np.random.default_rng([load.seed, number]).integers(len(rows)))
        again = (row._replace(seconds=row.seconds + period) for row in rows[:first])
        begin = rows[first].seconds
        return cls([row._replace(seconds=row.seconds - begin) for row in (*rows[first:], *again)], period)

    def times_ns(self, start_ns: int) -> Iterator[int]:
        for lap in count():
            for row in self.rows:
                yield start_ns + round((lap * self.period_seconds + row.seconds) * 1e9)


def arrival_times_ns(
    load: Load, tenant: int, start_ns: int, phase: int = 0, trace: Trace | None = None
) -> Iterator[int]:
    """Endless, ascending intended starts of an open load from `start_ns` on, in monotonic ns.

    Constant arrivals are 1 / rate apart. The first comes at a random moment of its gap, so that tenants are not in
    step; all count from it, so that rounding errors do not add up. Poisson arrivals have exponential gaps. Each phase
    of each tenant has its own random generator, and begins the `trace` again. Raises ValueError for a closed load.
    """
    if load.rate_hz is None:
        raise ValueError("closed load has no arrival times")
    if load.arrival == "trace":
        assert trace is not None
        yield from trace.times_ns(start_ns)
    gap_ns = 1e9 / load.rate_hz
    generator = np.random.default_rng([load.seed, tenant - load.before, phase])
    if load.arrival == "constant":
        first = generator.random()
        for number in count():
            yield start_ns + round((number + first) * gap_ns)
    elapsed_ns = 0.0
    while True:
        batch = elapsed_ns + np.cumsum(generator.exponential(gap_ns, DRAW_BATCH))
        elapsed_ns = float(batch[-1])
        yield from (batch.astype(np.int64) + start_ns).tolist()


class ArrivalQueue:
    """First-come-first-served queue of requests; one that arrives while `limit` others wait is dropped.

    No request leaves the queue while one is served, so admitting a service's arrivals at its end drops exactly those
    that found the queue full.
    """

    def __init__(self, arrivals_ns: Iterator[int], limit: int = QUEUE_LIMIT) -> None:
        self.waiting: deque[int] = deque()
        self.dropped: list[int] = []
        self._arrivals_ns = arrivals_ns
        self._limit = limit
        self.next_ns = next(arrivals_ns)

    def restart(self, start_ns: int, arrivals_ns: Iterator[int]) -> None:
        """Replace the arrivals from `start_ns` on, a time that is still to come."""
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
