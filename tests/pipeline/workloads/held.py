"""A test's workload: almost no work. While the file named by SHAREBENCH_TEST_HOLD exists, it waits in loading.

It creates FILE.reached.DEVICE when it begins to wait.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenant.workload import Work, Workload


class Held(Workload):
    modules = ("numpy",)
    work = Work(flop=None, bytes=None, items=1)

    def __init__(self) -> None:
        self._values = np.arange(1.0, 2000.0)
        self._sum = 0.0

    def step(self) -> None:
        self._sum = float(self._values.sum())

    def output_digest(self) -> list[float]:
        return [self._sum]


def create(params: Mapping[str, Any], device: str) -> Held:
    name = os.environ.get("SHAREBENCH_TEST_HOLD")
    if name:
        hold = Path(name)
        hold.with_name(f"{hold.name}.reached.{os.environ.get('SHAREBENCH_DEVICE', 0)}").touch()
        while hold.exists():
            time.sleep(0.02)
    return Held()
