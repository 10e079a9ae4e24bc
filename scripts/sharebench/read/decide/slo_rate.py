"""The highest rate within an SLO, interpolated between two loads of a sweep."""

import math
from collections.abc import Sequence

from sharebench.read.columns import TableRow
from sharebench.read.decide.advice import Demand, Level
from sharebench.read.statistics.intervals import Estimate


def highest_rate(within: Level, beyond: Level | None, demand: Demand) -> TableRow:
    """Columns of tables/capacity.csv: requests and tokens per second at which the first part reaches its limit.

    `within` holds the SLO by its tails, and `beyond` is the next load, with as many tenants. Between the two the
    logarithm of a time is taken as linear in the rate. Empty unless the higher load exceeds the SLO, serves more,
    and has the same percentile of each part. An end of the interval is blank where the ends of the times are not on
    both sides of the limit.
    """
    if beyond is None:
        return {}
    at_beyond = {(each.part, each.percentile): each for each in beyond.slo_parts(demand)}
    parts = within.slo_parts(demand)
    pairs = [(each, at_beyond[key]) for each in parts if (key := each[:2]) in at_beyond]
    if len(pairs) < len(parts):
        # The part that is not known may reach its limit first.
        return {}
    share = _share([(a.limit_seconds, a.time.value, b.time.value) for a, b in pairs])
    if share is None:
        return {}
    # Where times are at their upper ends, the limit is reached sooner.
    least = _share([(a.limit_seconds, a.time.high, b.time.high) for a, b in pairs])
    most = _share([(a.limit_seconds, a.time.low, b.time.low) for a, b in pairs])
    rates = {"rate_within_slo_hz": (within.throughput, beyond.throughput)}
    rates |= {"tokens_within_slo_hz": (within.tokens, beyond.tokens)}
    row: TableRow = {}
    for name, (lower, higher) in rates.items():
        # An overloaded server may serve less.
        if lower and higher and higher.value > lower.value:
            low = _between(lower.low, higher.low, least)
            high = _between(lower.high, higher.high, most)
            row |= Estimate(_between(lower.value, higher.value, share) or 0.0, low, high).columns(name)
    return row


def _share(parts: Sequence[tuple[float, float | None, float | None]]) -> float | None:
    """How far from the lower load to the higher one the first part reaches its limit; None unless that is between."""
    shares = []
    for limit, at, beyond in parts:
        if at is None or beyond is None or at > limit:
            return None
        if beyond > limit:
            shares.append(math.log(limit / at) / math.log(beyond / at))
    return min(shares, default=None)


def _between(lower: float | None, higher: float | None, share: float | None) -> float | None:
    return None if lower is None or higher is None or share is None else lower + share * (higher - lower)
