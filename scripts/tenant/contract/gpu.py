"""Types of GPU samples, shared by the driver and its tenants."""

from typing import NamedTuple, NotRequired, TypedDict


class GpuSample(NamedTuple):
    """One reading of a GPU through NVML, with None for values that it does not report. Printed as a JSON array.

    `cpu_seconds` is the sampler's own CPU time, `reasons` NVML's mask of clock throttling reasons. The last three are
    cumulative, as energy is: the active share of SMs, of warp slots, and of memory cycles, integrated over time.
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
    """A process on the GPU: its kind, readings [monotonic seconds, bytes] of its memory, and its ancestors' pids.

    `use` has readings [monotonic seconds, percent of SM time, percent of memory time], each over the time since the
    last reading of any process; a process that NVML did not list in one used nothing.
    """

    kind: str
    memory: list[tuple[float, int]]
    ancestors: list[int]
    use: list[tuple[float, int, int]]


class GpuSamples(TypedDict):
    """The final output of a sampling process; `processes` by pid, if it reads them.

    `activity_reason` explains why the samples have no activity, None if they have it.
    """

    samples: list[GpuSample]
    activity_reason: str | None
    processes: NotRequired[dict[str, GpuProcess]]
