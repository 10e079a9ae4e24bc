"""Observed GPU usage of workloads, the input of a survey from any source. It is never written to a file."""

from dataclasses import dataclass

import pandas as pd

SM, ENGINE, UTIL = "sm_active_percent", "gr_engine_active_percent", "gpu_util_percent"
ACTIVITIES = (SM, ENGINE, UTIL)
"""Measures of how busy a GPU is, the best first: SM is the share that is used, the others the share of the time."""
DRAM, MEMORY, POWER = "dram_active_percent", "memory_used_mib", "power_watts"
QUANTITIES = (*ACTIVITIES, DRAM, MEMORY, POWER)
"""Columns of `Usage.series`."""


@dataclass(frozen=True)
class GpuPlace:
    """A GPU, or one of its MIG instances (`instance` and its profile)."""

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
    """Usage of one GPU by one workload; `workload` is None for the time in which the GPU had none.

    `series` has a row per step (index: epoch seconds, multiples of the step) and the columns QUANTITIES, NaN where
    unknown. Memory is the workload's own where the source knows it; everything else is the whole GPU's, even if shared.
    """

    place: GpuPlace
    workload: str | None
    series: pd.DataFrame
    is_shared: bool = False
    is_spread: bool = False
    """Whether one of its pods or processes uses other GPUs too."""
    image: str | None = None
    may_be_shared: bool = False
    """Whether others may be on the GPU that the source does not name."""


@dataclass(frozen=True)
class ObservedUsage:
    """All usage that a source observed in `hours`; each series has a row every `step_seconds`."""

    source: str
    hours: float
    step_seconds: float
    usages: list[Usage]
