"""telemetry.csv: one row per sample of the device."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

COLUMNS = (
    "t_seconds",
    "gpu_util_percent",
    "memory_used_mib",
    "power_watts",
    "sm_clock_mhz",
    "temperature_celsius",
    "throttle_reasons",
)
Row = dict[str, float | None]


def to_csv(rows: Sequence[Row]) -> str:
    """The text of telemetry.csv; what a node cannot know stays blank."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
