"""Which strategy to take, from what was measured: a pure rule. docs/advice.md has its decision table as text.

A plan puts the tenants on as few devices as the strategy allows, evenly: on `d` devices the fullest has ceil(N / d).
It is possible where the device can hold that number, their isolation is what was asked for, and their latency is at
most the SLO.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sharebench.analysis.cells.rows import group_by
from sharebench.analysis.decide.documented import Isolation
from sharebench.analysis.slo import LATENCY, PART_LABELS
from sharebench.analysis.statistics.intervals import Estimate

ISOLATIONS = ("none", "performance", "fault")
EQUAL_RATIO = 0.02
"""Strategies whose merit differs by less are equal; so are those whose intervals overlap."""
TAIL_PERCENTILES = ("p99", "p95")
"""Percentiles that answer for (nearly) all requests; half of them exceed a p50."""


@dataclass(frozen=True)
class Demand:
    """What the user wants; no SLO and no price where they are None."""

    tenants: int
    slo_seconds: float | None = None
    isolation: str = "none"
    price_per_hour: float | None = None
    stream_slo: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the parts of the SLO that are of streams only; `slo_seconds` is that of the latency."""

    @property
    def limits(self) -> dict[str, float]:
        """Seconds by part of the SLO."""
        return ({} if self.slo_seconds is None else {LATENCY: self.slo_seconds}) | dict(self.stream_slo)

    def with_limit(self, part: str, seconds: float) -> Demand:
        if part == LATENCY:
            return replace(self, slo_seconds=seconds)
        return replace(self, stream_slo={**self.stream_slo, part: seconds})


class JudgedPart(NamedTuple):
    """A part of an SLO, the percentile that is compared with it, and its limit; None where there is no SLO."""

    part: str
    percentile: str
    time: Estimate
    limit_seconds: float | None

    @property
    def name(self) -> str:
        """Such as `p99`, which is of the latency, or `TTFT p99`."""
        return self.percentile if self.part == LATENCY else f"{PART_LABELS[self.part]} {self.percentile}"


@dataclass(frozen=True)
class Level:
    """A strategy with some tenants on one device, as it was measured."""

    replicas: int
    percentile: str
    latency: Estimate
    throughput: Estimate | None
    performance: Isolation
    inverse_latency: Estimate | None = None
    """Of an open load one over the mean latency, 1/s: its throughput is what was asked for, with every strategy."""
    stream: Mapping[str, tuple[str, Estimate]] = field(default_factory=dict)
    """Of a server that streams the other parts of an SLO, each with its percentile."""
    tokens: Estimate | None = None
    """Of these output tokens per second."""

    def slo_parts(self, demand: Demand) -> list[JudgedPart]:
        known = {LATENCY: (self.percentile, self.latency), **self.stream}
        return [JudgedPart(part, *known[part], limit) for part, limit in demand.limits.items() if part in known]

    def tightest_part(self, demand: Demand) -> JudgedPart:
        """The part that is nearest to its limit or furthest beyond it; the latency where there is no SLO."""
        parts = self.slo_parts(demand) or [JudgedPart(LATENCY, self.percentile, self.latency, None)]
        return max(parts, key=lambda each: each.time.value / (each.limit_seconds or 1.0))

    @property
    def merit(self) -> Estimate | None:
        """What plans with as many devices are ranked by, more being better."""
        return self.inverse_latency or self.throughput


@dataclass(frozen=True)
class Option:
    strategy: str
    levels: Mapping[int, Level]
    fault: Isolation
    effort: int
    is_sharing: bool = True
    infeasible: Mapping[int, str] = field(default_factory=dict)
    max_by_memory: int | None = None
    streams: bool = False
    """Whether parts of an SLO that are of streams only apply to the workload."""

    def level(self, replicas: int) -> Level | None:
        """What was measured with this number of tenants, or else with the next more."""
        sizes = [n for n in self.levels if n >= replicas]
        return self.levels[min(sizes)] if sizes else None


@dataclass(frozen=True)
class Plan:
    """What the rule says of one strategy; `devices` is None where there is no plan, for that `reason`."""

    option: Option
    devices: int | None
    per_device: int
    level: Level | None
    """What was judged: that of the plan, or else of all tenants on one device, if anything is known of them."""
    reason: str
    lacks_tail: bool = False
    """Whether an SLO is asked, and only the median or mean is known to meet it."""
    is_tied: bool = False
    """Whether its merit cannot be distinguished from the best of the plans of its rank."""

    @property
    def rank(self) -> tuple[int, bool]:
        """Fewer devices go first, then a tail within the SLO."""
        return self.devices or 0, self.lacks_tail

    @property
    def merit(self) -> Estimate:
        """What plans of one rank are ordered by, more being better."""
        return (self.level and self.level.merit) or Estimate(0.0)

    def margin_percent(self, demand: Demand) -> Estimate | None:
        """By how much what is judged may grow until it exceeds the SLO; negative where it does."""
        judged = self.level.tightest_part(demand) if self.level else None
        if judged is None or judged.limit_seconds is None:
            return None
        ratio = judged.time.inverse_times(judged.limit_seconds)
        low, high = (None if end is None else 100 * (end - 1) for end in (ratio.low, ratio.high))
        return Estimate(100 * (ratio.value - 1), low, high, ratio.n)


def find_plan(option: Option, demand: Demand) -> Plan:
    """The plan with the fewest devices that the strategy has for the question, or why there is none."""
    for devices, replicas in _splits(option, demand.tenants):
        level = option.level(replicas)
        if level is not None and _problem(option, replicas, level, demand) is None:
            is_typical = any(each.percentile not in TAIL_PERCENTILES for each in level.slo_parts(demand))
            return Plan(option, devices, replicas, level, "", is_typical)
    replicas = demand.tenants if option.is_sharing else 1
    level = option.level(replicas)
    return Plan(option, None, replicas, level, _problem(option, replicas, level, demand) or "no data")


def _splits(option: Option, tenants: int) -> Iterable[tuple[int, int]]:
    """Numbers of devices with the tenants on the fullest; one tenant for each device would not be sharing."""
    for devices in range(1, tenants + 1):
        replicas = math.ceil(tenants / devices)
        if replicas > 1 or tenants == 1 or not option.is_sharing:
            yield devices, replicas


def _problem(option: Option, replicas: int, level: Level | None, demand: Demand) -> str | None:
    """Why this number of tenants on one device does not answer the question."""
    if replicas in option.infeasible:
        return f"{replicas} tenants: {option.infeasible[replicas]}"
    if option.max_by_memory is not None and replicas > option.max_by_memory:
        return f"memory holds {option.max_by_memory} tenant{'s' * (option.max_by_memory != 1)}"
    if level is None:
        return f"{replicas} tenants: no data"
    if demand.isolation == "fault" and replicas > 1 and not option.fault.holds:
        return f"fault isolation: {option.fault.text}"
    if demand.isolation == "performance" and replicas > 1 and not level.performance.holds:
        return f"performance isolation: {level.performance.text}"
    tenants = f"{level.replicas} tenant{'s' * (level.replicas != 1)}"
    if option.streams and (unknown := [PART_LABELS[part] for part in demand.stream_slo if part not in level.stream]):
        return f"{', '.join(unknown)} of {tenants}: no data"
    judged = level.tightest_part(demand)
    if judged.limit_seconds is not None and judged.time.value > judged.limit_seconds:
        found, limit = f"{1e3 * judged.time.value:.3g} ms", f"{1e3 * judged.limit_seconds:g} ms"
        return f"{judged.name} of {tenants} is {found}, more than {limit}"
    return None


def advise(options: Iterable[Option], demand: Demand) -> list[Plan]:
    """All plans, the best first: by rank, then by throughput for each device, or of an open load by the shorter mean
    latency; plans that cannot be distinguished in that are ordered by effort. Strategies without a plan come last."""
    plans = [find_plan(option, demand) for option in options]
    possible = [each for each in plans if each.devices is not None]
    best = {
        rank: max(rivals, key=lambda each: each.merit.value)
        for rank, rivals in group_by(possible, lambda each: each.rank).items()
    }
    marked = [replace(each, is_tied=_is_tied(each.merit, best[each.rank].merit)) for each in possible]
    marked.sort(key=lambda each: (*each.rank, not each.is_tied, each.option.effort * each.is_tied, -each.merit.value))
    return marked + [each for each in plans if each.devices is None]


def _is_tied(own: Estimate, most: Estimate) -> bool:
    return own.value >= (1 - EQUAL_RATIO) * most.value or (own.high or 0.0) >= (most.low or math.inf)


Choice = tuple[str, int]
"""Strategy and devices."""


def first_choice(plans: Sequence[Plan]) -> Choice | None:
    """The first plan; None where there is none."""
    if not plans or plans[0].devices is None:
        return None
    return plans[0].option.strategy, plans[0].devices


@dataclass(frozen=True)
class TurningPoint:
    """Another question with another answer; `what` was changed: slo below or above (of `part`), tenants, isolation."""

    what: str
    demand: Demand
    answer: Choice | None
    part: str = LATENCY


def turning_points(options: Sequence[Option], demand: Demand) -> list[TurningPoint]:
    """What would change the answer: the nearest SLO below and above, the nearest numbers of tenants, other isolation.

    A strategy that cannot be distinguished from the first is the same answer; another number of devices is another
    answer, but not where the number of tenants is different too.
    """
    plans = advise(options, demand)
    here = first_choice(plans)
    same = {(each.option.strategy, each.devices) for each in plans if each.is_tied and each.rank == plans[0].rank}

    def nearest(what: str, changed: Iterable[Demand], part: str = LATENCY) -> Iterable[TurningPoint]:
        for other in changed:
            there = first_choice(advise(options, other))
            is_same = there == here or there in same
            if what == "tenants" and there is not None:
                is_same = there[0] in {name for name, _ in same}
            if not is_same:
                yield TurningPoint(what, other, there, part)
                return

    sizes = range(1, max((n for option in options for n in option.levels), default=1) + 1)
    tenants = demand.tenants
    changes: list[tuple[str, Iterable[Demand]]] = [
        ("tenants", (replace(demand, tenants=n) for n in reversed(sizes) if n < tenants)),
        ("tenants", (replace(demand, tenants=n) for n in sizes if n > tenants)),
        *(("isolation", [replace(demand, isolation=each)]) for each in ISOLATIONS if each != demand.isolation),
    ]
    found = []
    for part, limit in demand.limits.items():
        judged = (each for option in options for level in option.levels.values() for each in level.slo_parts(demand))
        marks = sorted({each.time.value for each in judged if each.part == part})
        # Just below a time its level no longer meets the SLO; at it, it does.
        lower = [demand.with_limit(part, math.nextafter(mark, 0.0)) for mark in reversed(marks) if mark <= limit]
        higher = [demand.with_limit(part, mark) for mark in marks if mark > limit]
        found += [*nearest("slo below", lower, part), *nearest("slo above", higher, part)]
    return [*found, *(point for what, questions in changes for point in nearest(what, questions))]
