"""The verdict of a gate, and access to the parts of a record that every cell with status `ok` has."""

from collections.abc import Callable, Iterable
from functools import wraps
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


Check = Callable[[CellRecord], Verdict | None]
Judged = tuple[float, float] | None
"""Value and limit of a tenant, if they are known."""


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


def judge_tenants(
    message: str, of: Callable[[TenantRecord], bool] = lambda _: True, unknown: Verdict | None = None
) -> Callable[[Callable[[CellRecord, TenantRecord], Judged]], Check]:
    """Makes a gate of a function of a tenant, by the `worst_verdict`.

    Only tenants are judged for which `of` is true. `unknown` is the verdict where no value of these is known.
    """

    def decorate(judge: Callable[[CellRecord, TenantRecord], Judged]) -> Check:
        @wraps(judge)
        def check(record: CellRecord) -> Verdict | None:
            tenants = [tenant for tenant in record["tenants"] if of(tenant)]
            judged = ((*found, tenant["index"]) for tenant in tenants if (found := judge(record, tenant)))
            return worst_verdict(judged, message, unknown) if tenants else None

        return check

    return decorate


def is_open_load(tenant: TenantRecord) -> bool:
    return load_of(tenant)["planned_rate_hz"] is not None


def is_closed_loop(tenant: TenantRecord) -> bool:
    """Whether it has a closed load; a job, which ends its own window, is none."""
    return load_of(tenant)["arrival"] == "closed" and not tenant.get("job")


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
