"""What the checks of a cell have in common: the verdict, and the parts that every cell with status `ok` has."""

from collections.abc import Iterable
from typing import NamedTuple

from sharebench.records.telemetry import UNKNOWN_TELEMETRY, Telemetry
from sharebench.records.types import CellRecord, TenantRecord, Window
from tenant.contract import AchievedLoad

UNKNOWN = "not known on this node"


class Verdict(NamedTuple):
    """A measured value, its limit, whether it passed, and a line on a failure."""

    value: float | None
    limit: float
    passed: bool
    message: str


def at_most(value: float, limit: float, message: str) -> Verdict:
    return Verdict(value, limit, value <= limit, message)


def at_most_if_known(value: float | None, limit: float, message: str) -> Verdict:
    """As `at_most`; `message` shows the value as `{}`, and a value that the node does not know passes."""
    return Verdict(None, limit, True, UNKNOWN) if value is None else at_most(value, limit, message.format(value))


def worst_verdict(
    judged: Iterable[tuple[float, float, int]], message: str, without: Verdict | None = None
) -> Verdict | None:
    """Of (value, limit, tenant) the verdict on the value that exceeds its limit most; `without` any.

    `message` shows `{value}` and `{tenant}`.
    """
    worst = max(judged, key=lambda each: each[0] / each[1], default=None)
    if worst is None:
        return without
    value, limit, tenant = worst
    return at_most(value, limit, message.format(value=value, tenant=tenant))


def load_of(tenant: TenantRecord) -> AchievedLoad:
    load = tenant["load"]
    assert load is not None
    return load


def window_of(record: CellRecord) -> Window:
    window = record["window"]
    assert window is not None
    return window


def telemetry_of(record: CellRecord) -> Telemetry:
    """The record's telemetry; where nothing was sampled, that of a node that knows nothing."""
    return record["telemetry"] or UNKNOWN_TELEMETRY


def window_seconds(record: CellRecord) -> float:
    """Length of the record's window; of jobs one after another, the sum of their turns."""
    window = window_of(record)
    whole = [[window["start_monotonic_seconds"], window["end_monotonic_seconds"]]]
    return float(sum(end - start for start, end in window.get("turns", whole)))
