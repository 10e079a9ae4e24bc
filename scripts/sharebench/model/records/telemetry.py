"""telemetry.csv, with one row per sample of the device, and the summary of a window in the record."""

import csv
import io
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

COLUMNS = (
    "t_seconds",
    "gpu_util_percent",
    "memory_used_mib",
    "power_watts",
    "sm_clock_mhz",
    "temperature_celsius",
    "throttle_reasons",
)
# Throttle reasons that make another GPU of it: protection by the hardware, and heat.
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
Row = dict[str, float | str | None]


class ForeignProcesses(TypedDict):
    """Processes on the GPU that are neither tenants nor our MPS servers."""

    compute: int
    graphics: int
    mps: int


def mean(values: Sequence[float], seconds: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, seconds, strict=True)) / sum(seconds)


def largest(values: Sequence[float], seconds: Sequence[float]) -> float:
    return max(values)


def total(values: Sequence[float], seconds: Sequence[float]) -> float:
    return sum(values)


def last(values: Sequence[float], seconds: Sequence[float]) -> float:
    return values[-1]


def listed(values: Sequence[Sequence[float | None]], seconds: Sequence[float]) -> list[float | None]:
    return [value for job in values for value in job]


Mean = Annotated[float | None, mean]
Largest = Annotated[float | None, largest]
Total = Annotated[float | None, total]


class Telemetry(TypedDict):
    """Summary of a window; None where a node does not know the value.

    The function at a key joins the values of a queue's jobs, whose windows last `seconds`, those of a mapping by name;
    without one the first job's value is the queue's.
    """

    source: NotRequired[Literal["nvml", "nvml-in-tenant-0", "host"] | None]
    reason: NotRequired[str | None]
    samples: Annotated[int, total]
    utilisation_mean_percent: Mean
    sm_active_mean_percent: NotRequired[Mean]
    sm_occupancy_mean_percent: NotRequired[Mean]
    dram_active_mean_percent: NotRequired[Mean]
    activity_reason: NotRequired[str | None]
    memory_used_max_mib: Largest
    tenant_memory_mib: Annotated[list[float | None] | None, listed]
    tenant_sm_percent: NotRequired[Annotated[list[float | None] | None, listed]]
    tenant_memory_busy_percent: NotRequired[Annotated[list[float | None] | None, listed]]
    server_memory_mib: Largest
    power_mean_watts: Mean
    energy_joules: Total
    energy_error_joules: Total
    sm_clock_mean_mhz: Mean
    sm_clock_cv: Largest
    memory_clock_mean_mhz: Mean
    temperature_start_celsius: float | None
    temperature_end_celsius: Annotated[float | None, last]
    temperature_max_celsius: Largest
    throttle_reasons: Annotated[dict[str, float] | None, mean]
    foreign_processes: Annotated[ForeignProcesses | None, largest]
    sampler_cpu_percent: Mean
    neighbours: NotRequired[list[dict[str, Any]]]
    """Only in older records."""
    host_steal_percent: Mean
    host_throttled_percent: Mean
    foreign_cpu_percent: Mean


# The telemetry of a node that knows nothing; each sampler fills in the values that it reads.
UNKNOWN_TELEMETRY = cast(Telemetry, dict.fromkeys(Telemetry.__annotations__.keys() - {"neighbours"}) | {"samples": 0})


def to_csv(rows: Sequence[Row]) -> str:
    """The text of telemetry.csv; unknown values stay blank."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
