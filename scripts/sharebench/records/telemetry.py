"""telemetry.csv, one row per sample of the device, and the summary of a window that goes into the record."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = (
    "t_seconds",
    "gpu_util_percent",
    "memory_used_mib",
    "power_watts",
    "sm_clock_mhz",
    "temperature_celsius",
    "throttle_reasons",
    "gr_engine_active_percent",
    "sm_active_percent",
    "dram_active_percent",
)
Row = dict[str, float | str | None]

# The record's `telemetry` of a node that knows nothing of itself; each sampler fills in what it can tell.
NOTHING_KNOWN: Mapping[str, Any] = {
    "samples": 0,
    **dict.fromkeys(
        (
            "source",
            "reason",
            "utilisation_mean_percent",
            "memory_used_max_mib",
            "tenant_memory_mib",
            "server_memory_mib",
            "power_mean_watts",
            "energy_joules",
            "energy_error_joules",
            "sm_clock_mean_mhz",
            "sm_clock_cv",
            "memory_clock_mean_mhz",
            "temperature_start_celsius",
            "temperature_end_celsius",
            "temperature_max_celsius",
            "throttle_reasons",
            "foreign_processes",
            "sampler_cpu_percent",
            "host_steal_percent",
            "host_throttled_percent",
            "foreign_cpu_percent",
        )
    ),
}


def to_csv(rows: Sequence[Row]) -> str:
    """The text of telemetry.csv; what a node cannot know stays blank."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
