"""Samples of a GPU, as the driver and a tenant share them."""

from typing import NamedTuple, NotRequired, TypedDict


class GpuSample(NamedTuple):
    """One reading of a GPU through NVML, None for what it does not report. Samplers print it as a JSON array.

    `cpu_seconds` is the sampler's own CPU time, `reasons` NVML's mask of why the clock is held back. The last three
    grow as energy does: the active share of the GPU (SMs, places for warps, cycles of the memory) times the time.
    """

    t_seconds: float
    cpu_seconds: float
    energy_joules: float | None
    power_watts: float | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_celsius: float | None
    gpu_util_percent: float | None
    memory_used_bytes: int | None
    reasons: int | None
    sm_active_seconds: float | None
    sm_occupancy_seconds: float | None
    dram_active_seconds: float | None


class GpuProcess(TypedDict):
    """A process on the GPU: `kind`, its ancestors, and readings [monotonic seconds, bytes] of its memory."""

    kind: str
    memory: list[tuple[float, int]]
    ancestors: list[int]


class GpuSamples(TypedDict):
    """What a sampling process prints at its end; `processes` by pid, where it reads them.

    `activity_reason` is why the samples have no activity, None where they have.
    """

    samples: list[GpuSample]
    activity_reason: str | None
    processes: NotRequired[dict[str, GpuProcess]]
