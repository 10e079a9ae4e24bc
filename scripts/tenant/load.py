"""What is asked of a tenant: back-to-back iterations (closed), or requests at times of their own (open)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from tenant.parameters import ParameterError, positive_integer, positive_number, with_defaults

ARRIVALS = ("closed", "constant", "poisson")
BATCH = 1024


@dataclass(frozen=True)
class Load:
    """Arrival process; `rate_hz` is None for closed load. `queue_limit` is how many requests may wait."""

    arrival: str = "closed"
    rate_hz: float | None = None
    queue_limit: int = 10_000
    seed: int = 0

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Load:
        """From a workload's `load` with its rate resolved. Raises ParameterError."""
        values = with_defaults(given, vars(cls()), "load")
        arrival, seed = values["arrival"], values["seed"]
        if arrival not in ARRIVALS:
            raise ParameterError(f"load arrival must be one of {', '.join(ARRIVALS)}, not {arrival!r}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ParameterError(f"load seed must be an integer from 0, not {seed!r}")
        rate_hz = None if arrival == "closed" else positive_number(values["rate_hz"], "load rate_hz")
        return cls(arrival, rate_hz, positive_integer(values["queue_limit"], "load queue_limit"), seed)


def arrival_times_ns(load: Load, tenant: int, start_ns: int) -> Iterator[int]:
    """Intended starts of an open load, ascending without end, after `start_ns`.

    Constant: one every 1 / rate, counted from `start_ns`, so that rounding does not add up. Poisson:
    exponential gaps from a generator of its own for each tenant. Raises ValueError for closed load.
    """
    if load.rate_hz is None:
        raise ValueError("closed load has no arrival times")
    gap_ns = 1e9 / load.rate_hz
    if load.arrival == "constant":
        for number in count(1):
            yield start_ns + round(number * gap_ns)
    generator = np.random.default_rng([load.seed, tenant])
    elapsed_ns = 0.0
    while True:
        batch = elapsed_ns + np.cumsum(generator.exponential(gap_ns, BATCH))
        elapsed_ns = float(batch[-1])
        yield from (batch.astype(np.int64) + start_ns).tolist()


class ArrivalQueue:
    """Requests that wait, first come first served; one that arrives when `limit` wait is dropped.

    Nothing leaves the queue while a request is served, so admitting the arrivals of a whole service at its
    end drops exactly those that found it full.
    """

    def __init__(self, arrivals_ns: Iterator[int], limit: int) -> None:
        self.waiting: deque[int] = deque()
        self.dropped: list[int] = []
        self._arrivals_ns = arrivals_ns
        self._limit = limit
        self.next_ns = next(arrivals_ns)

    def admit(self, until_ns: int) -> None:
        """Let in everything that is due by then."""
        while self.next_ns <= until_ns:
            if len(self.waiting) < self._limit:
                self.waiting.append(self.next_ns)
            else:
                self.dropped.append(self.next_ns)
            self.next_ns = next(self._arrivals_ns)
