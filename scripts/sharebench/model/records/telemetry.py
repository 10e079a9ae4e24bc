"""telemetry.csv, with one row per sample of the device, and the summary of a window in the record."""

import csv
import io
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict, cast

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


class Telemetry(TypedDict):
    """Summary of a window; None where a node does not know the value."""

    source: NotRequired[Literal["nvml", "nvml-in-tenant-0", "host"] | None]
    reason: NotRequired[str | None]
    samples: int
    utilisation_mean_percent: float | None
    sm_active_mean_percent: NotRequired[float | None]
    sm_occupancy_mean_percent: NotRequired[float | None]
    dram_active_mean_percent: NotRequired[float | None]
    activity_reason: NotRequired[str | None]
    memory_used_max_mib: float | None
    tenant_memory_mib: list[float | None] | None
    server_memory_mib: float | None
    power_mean_watts: float | None
    energy_joules: float | None
    energy_error_joules: float | None
    sm_clock_mean_mhz: float | None
    sm_clock_cv: float | None
    memory_clock_mean_mhz: float | None
    temperature_start_celsius: float | None
    temperature_end_celsius: float | None
    temperature_max_celsius: float | None
    throttle_reasons: dict[str, float] | None
    foreign_processes: ForeignProcesses | None
    sampler_cpu_percent: float | None
    neighbours: NotRequired[list[dict[str, Any]]]
    host_steal_percent: float | None
    host_throttled_percent: float | None
    foreign_cpu_percent: float | None


# The telemetry of a node that knows nothing; each sampler fills in the values that it reads.
UNKNOWN_TELEMETRY = cast(Telemetry, dict.fromkeys(Telemetry.__annotations__.keys() - {"neighbours"}) | {"samples": 0})


def to_csv(rows: Sequence[Row]) -> str:
    """The text of telemetry.csv; unknown values stay blank."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
