"""The verdict of a gate, and access to the parts of a record that every cell with status `ok` has."""

from collections.abc import Iterable
from typing import NamedTuple

from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, Telemetry
from sharebench.model.records.types import CellRecord, TenantRecord, Window
from tenant.contract import AchievedLoad

UNKNOWN = "not known on this node"


class Verdict(NamedTuple):
    """A measured value, its limit, whether it passed, and a line about a failure."""

    value: float | None
    limit: float
    passed: bool
    message: str


def at_most(value: float, limit: float, message: str) -> Verdict:
    return Verdict(value, limit, value <= limit, message)


def at_most_if_known(value: float | None, limit: float, message: str) -> Verdict:
    """As `at_most`, with `{}` for the value in `message`; an unknown value passes."""
    return Verdict(None, limit, True, UNKNOWN) if value is None else at_most(value, limit, message.format(value))


def worst_verdict(
    judged: Iterable[tuple[float, float, int]], message: str, default: Verdict | None = None
) -> Verdict | None:
    """The verdict on the (value, limit, tenant) that exceeds its limit most; `default` if there is none.

    `message` has `{value}` and `{tenant}`.
    """
    worst = max(judged, key=lambda item: item[0] / item[1], default=None)
    if worst is None:
        return default
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
    """The record's telemetry, of which all is unknown where nothing was sampled."""
    return record["telemetry"] or UNKNOWN_TELEMETRY
