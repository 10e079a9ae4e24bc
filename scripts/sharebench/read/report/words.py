"""Numbers, settings and loads as text for the report."""

import math
from typing import Any, NamedTuple

from sharebench.model.traffic import Load
from sharebench.read.figures.data import Row

SIGNIFICANT_DIGITS = 3


def load_text(load: Load) -> str:
    limit, together = load.in_flight, ""
    if load.concurrency_total is not None:
        together = " at all tenants together, one more at the first where they do not divide"
    if load.arrival == "closed":
        if load.concurrency_total is None and limit in (None, 1):
            return "closed: the next iteration begins when the last has ended"
        return f"closed: always {limit} requests in flight{together}"
    rate = f"{value_text(load.rate_hz)} per second"
    if load.rate_of_capacity is not None:
        rate = f"{value_text(load.rate_of_capacity)} of what one exclusive tenant can do"
    if load.trace is not None:
        rate = f"those of {load.trace}"
    if load.rate_for == "all":
        rate += " for all tenants together"
    at_most = "" if limit is None else f", at most {limit} in flight{together}"
    return f"open: {load.arrival} arrivals, {rate}{at_most}"


def format_number(value: float) -> str:
    """A number with three significant digits, or all digits before the point, without exponent; empty for NaN."""
    return "" if math.isnan(value) else format_fixed(value, _decimals(value))


def _decimals(value: float) -> int:
    return max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))) if value else 0


def format_fixed(value: float, decimals: int) -> str:
    """A number with these decimals, its thousands apart."""
    return f"{value:,.{decimals}f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


class IntervalText(NamedTuple):
    """A metric and its interval as text, all with the decimals of the value; empty where not known."""

    value: str
    low: str
    high: str


def format_interval(row: Row, metric: str, factor: float = 1.0) -> IntervalText:
    """`metric` of a row of a table, times `factor`; not every metric has an interval."""
    ends = [factor * row.get(f"{metric}{end}", math.nan) for end in ("", "_low", "_high")]
    decimals = 0 if math.isnan(ends[0]) else _decimals(ends[0])
    return IntervalText(*("" if math.isnan(end) else format_fixed(end, decimals) for end in ends))


def value_text(value: Any) -> str:
    """A value of config or facts as text: `size 256, dtype float64`, `0, 1`, `yes`, `not known`."""
    match value:
        case dict():
            return ", ".join(f"{key.replace('_', ' ')} {value_text(item)}" for key, item in value.items())
        case list():
            return ", ".join(map(value_text, value))
        case None:
            return "not known"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
    return str(value)
