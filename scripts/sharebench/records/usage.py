"""What workloads were seen to use of their GPUs, from whatever source: the input of a survey. Nothing here is kept."""

from dataclasses import dataclass

import pandas as pd

SM, ENGINE, UTIL = "sm_active_percent", "gr_engine_active_percent", "gpu_util_percent"
ACTIVITIES = (SM, ENGINE, UTIL)
"""How busy a GPU is, the best measure first: SM is how much of it is used, the others are for how long."""
DRAM, MEMORY, POWER = "dram_active_percent", "memory_used_mib", "power_watts"
QUANTITIES = (*ACTIVITIES, DRAM, MEMORY, POWER)
"""Columns of a `Usage.series`."""


@dataclass(frozen=True)
class GpuPlace:
    """A GPU, or a MIG instance of it (`instance` and its profile)."""

    node: str
    gpu: str
    product: str = ""
    memory_mib: float | None = None
    instance: str = ""
    profile: str = ""

    def __str__(self) -> str:
        """`GPU 0 of node-a`."""
        instance = f" ({self.profile}, instance {self.instance})" if self.instance else ""
        return f"GPU {self.gpu} of {self.node}{instance}"


@dataclass(frozen=True)
class Usage:
    """What one workload used of one GPU; `workload` is None for the time in which the GPU had none.

    `series` has a row per step (index: epoch seconds, multiples of the step) and QUANTITIES as columns, NaN where not
    known. Memory is the workload's own where the source knows it, all else the GPU's: with `is_shared`, of several.
    """

    place: GpuPlace
    workload: str | None
    series: pd.DataFrame
    is_shared: bool = False
    is_spread: bool = False
    """Whether one pod or process of it has other GPUs too."""
    image: str | None = None


@dataclass(frozen=True)
class ObservedUsage:
    """All that a source saw in `hours`, a row of each series every `step_seconds`."""

    source: str
    hours: float
    step_seconds: float
    usages: list[Usage]
