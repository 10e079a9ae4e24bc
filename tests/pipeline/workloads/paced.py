"""A test's workload: an iteration takes 6 ms by the clock, every tenth 30 ms, and needs no CPU."""

import time
from collections.abc import Mapping
from typing import Any

from tenant.workload import Work, Workload


class Paced(Workload):
    work = Work(flop=None, bytes=None, items=1)

    def __init__(self) -> None:
        self._number = 0

    def step(self) -> None:
        self._number += 1
        time.sleep(0.006 if self._number % 10 else 0.03)

    def output_digest(self) -> list[float]:
        return [1.0]


def create(params: Mapping[str, Any], device: str) -> Paced:
    return Paced()
