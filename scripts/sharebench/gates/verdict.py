"""What the checks of a cell have in common: what they look at, and what they find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Record = Mapping[str, Any]
Tenant = Mapping[str, Any]

UNKNOWN = "not known on this node"


class Finding(NamedTuple):
    """What a check found: the value, the limit it was held against, the verdict, and a line on a failure."""

    value: float | None
    limit: float
    passed: bool
    message: str


def at_most(value: float, limit: float, message: str) -> Finding:
    """The finding of a value that must not exceed its limit."""
    return Finding(value, limit, value <= limit, message)


def worst_of(judged: Iterable[tuple[float, float, int]]) -> tuple[float, float, int] | None:
    """Of (value, limit, tenant) the one that exceeds its limit most; None where there is none."""
    return max(judged, key=lambda each: each[0] / each[1], default=None)


def window_seconds(record: Record) -> float:
    """Length of the record's window; of jobs one after another, the sum of their turns."""
    window = record["window"]
    whole = [(window["start_monotonic_seconds"], window["end_monotonic_seconds"])]
    return float(sum(end - start for start, end in window.get("turns", whole)))
