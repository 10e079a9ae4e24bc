"""The rule of the advice, a pure function of the measurements; docs/advice.md has its decision table as text.

A plan spreads N tenants evenly over as few devices as the strategy allows: the fullest of `d` devices has ceil(N / d).
It is possible if a device can hold that number, with the isolation that was asked for, and within the SLO. Documents,
report, terminal and closing lines all show the first plan of `advise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sharebench.core.console import format_count
from sharebench.model.question import MARGIN_PERCENT
from sharebench.read.decide.documented import Isolation
from sharebench.read.decide.rows import MAX
from sharebench.read.grouping import group_by
from sharebench.read.harm import Harm
from sharebench.read.slo import LATENCY, PART_LABELS, dollars_per_million, percentile_label
from sharebench.read.statistics.intervals import Estimate

LOWER_END = "lower end of the p95"
TAIL_PERCENTILES = ("p95", "p99", MAX)
"""Percentiles that hold for nearly all requests; half of the requests exceed a p50."""
NO_BASELINE = "without a valid baseline its latency over that of one alone is not known"


@dataclass(frozen=True)
class Demand:
    """The user's requirements; `limits` are the seconds of each part of the SLO, and no price is None."""

    tenants: int
    limits: Mapping[str, float] = field(default_factory=dict)
    isolation: str = "none"
    price_per_hour: float | None = None
    margin_percent: float = MARGIN_PERCENT

    @property
    def least_gain(self) -> float:
        """The throughput over that of one tenant alone from which on sharing brings something."""
        return 1 + self.margin_percent / 100

    def with_limit(self, part: str, seconds: float) -> Demand:
        return replace(self, limits={**self.limits, part: seconds})


class JudgedPart(NamedTuple):
    """A part of an SLO, and the percentile that is compared with its limit; infinite where there is no SLO."""

    part: str
    percentile: str
    time: Estimate
    limit_seconds: float = math.inf

    @property
    def name(self) -> str:
        return percentile_label(self.part, self.percentile)

    @property
    def excess(self) -> str:
        """`60 ms, more than 50 ms`."""
        return f"{1e3 * self.time.value:.3g} ms, more than {1e3 * self.limit_seconds:g} ms"


@dataclass(frozen=True)
class Level:
    """The measurement of a strategy with `replicas` tenants on one device."""

    replicas: int
    percentile: str
    latency: Estimate
    throughput: Estimate | None
    performance: Isolation
    tails_of: int = 0
    """The larger number of tenants of which the tails are, where those of this one are not known; 0 if they are."""
    p99: Estimate | None = None
    """The p99 of the latency, if it is known; the `latency` is of the `percentile`."""
    longest: Estimate | None = None
    """The longest latency, if it bounds the p95 (`rows.with_longest`)."""
    p95_at_least: Estimate | None = None
    """A lower bound on the p95, where that is not known."""
    inverse_latency: Estimate | None = None
    """1 / mean latency in 1/s, for open loads only, whose throughput is the same under every strategy."""
    stream: Mapping[str, tuple[str, Estimate]] = field(default_factory=dict)
    """Percentile and time of the other parts of an SLO, for servers that stream."""
    tokens: Estimate | None = None
    """Output tokens per second, for servers that stream."""
    mean: Estimate | None = None
    slowdown: Estimate | None = None
    """Mean latency over that of one exclusive tenant."""
    gain: Estimate | None = None
    """Throughput of all tenants over that of one exclusive tenant, of replicas under an open load its latency over
    theirs; None where either is not known."""
    harms: Sequence[Harm] = ()
    """What happened to its tenants in repeats that its numbers are not of."""

    def slo_parts(self, demand: Demand) -> list[JudgedPart]:
        known = {LATENCY: (self.percentile, self.latency), **self.stream}
        return [JudgedPart(part, *known[part], limit) for part, limit in demand.limits.items() if part in known]

    def by_bounds(self, demand: Demand) -> Level:
        """The level, if the tail of its latency is not known by a bound that decides about the limit."""
        limit = demand.limits.get(LATENCY)
        if limit is None or self.percentile in TAIL_PERCENTILES:
            return self
        if self.longest and self.longest.value <= limit:
            return replace(self, percentile=MAX, latency=self.longest)
        if self.p95_at_least and self.p95_at_least.value > limit:
            return replace(self, percentile=LOWER_END, latency=self.p95_at_least)
        return self

    def coarse_parts(self, demand: Demand) -> list[JudgedPart]:
        """The parts of the SLO of which no tail is known."""
        return [each for each in self.slo_parts(demand) if each.percentile not in TAIL_PERCENTILES]

    def lacking(self, demand: Demand) -> str:
        """What of the SLO's parts is not known, if their tails are not; empty if they are."""
        known = {each.part for each in self.slo_parts(demand)}
        if unknown := [PART_LABELS[part] for part in demand.limits if part not in known]:
            return f"{', '.join(unknown)} not known"
        coarse = [each.name for each in self.coarse_parts(demand)]
        return f"only the {' and the '.join(coarse)} {'is' if len(coarse) == 1 else 'are'} known" if coarse else ""

    def exceeding_part(self, demand: Demand) -> JudgedPart | None:
        """The part that is furthest beyond its limit, by what is known of it; None if all are within."""
        judged = self.by_bounds(demand).tightest_part(demand)
        return judged if judged.time.value > judged.limit_seconds else None

    def tightest_part(self, demand: Demand) -> JudgedPart:
        """The part that is nearest to its limit or furthest beyond it; the latency without an SLO."""
        parts = self.slo_parts(demand) or [JudgedPart(LATENCY, self.percentile, self.latency)]
        return max(parts, key=lambda each: each.time.value / each.limit_seconds)

    @property
    def merit(self) -> Estimate | None:
        """The measure by which plans with as many devices are ranked; higher is better.

        It is of one tenant, so that no plan gains by being judged with more tenants than another one.
        """
        return self.inverse_latency or (self.throughput and self.throughput.times(1 / self.replicas))


@dataclass(frozen=True)
class Option:
    strategy: str
    levels: Mapping[int, Level]
    fault: Isolation
    effort: int
    is_sharing: bool = True
    infeasible: Mapping[int, str] = field(default_factory=dict)
    max_by_memory: int | None = None
    memory_basis: str = ""
    """The other studies that know it; empty if this one does."""
    unavailable: str = ""
    """Why the asker cannot have the strategy; empty if he can."""
    instead: str = ""
    """The strategy that he has in its place."""
    beyond_limits: str = ""
    """Which tenants of a mix exceed their limits, or are not known to hold them; empty if none does."""
    hazards: Mapping[int, str] = field(default_factory=dict)
    """What is known to go wrong with this many tenants, apart from faults."""
    has_one_load: bool = False
    """Whether its tenants are replicas, which carry one load together; so any number of them serves the demand."""

    def level(self, replicas: int) -> Level | None:
        """The level with this number of tenants, or else with the next larger one."""
        sizes = [n for n in self.levels if n >= replicas]
        return self.levels[min(sizes)] if sizes else None


@dataclass(frozen=True)
class Plan:
    """The result of the rule for one strategy; `devices` is None where there is no plan, with the `reason`."""

    option: Option
    devices: int | None
    per_device: int
    level: Level | None
    """The level that was judged: the plan's, or else that of all tenants on one device if it was measured."""
    reason: str
    lacks_tail: bool = False
    """Whether there is an SLO that only the median or mean is known to meet, so that it is not known to be kept."""
    brings_nothing: bool = False
    """Whether its tenants together do no more than one tenant alone."""
    is_tied: bool = False
    """Whether no plan of its rank is better by the margin."""

    @property
    def unsure_gain(self) -> Estimate | None:
        """What its tenants together do over one alone, if by its interval that may be less than one alone does."""
        gain = self.level.gain if self.level and self.per_device > 1 and not self.brings_nothing else None
        return gain if gain and gain.low is not None and gain.low < 1 else None

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Sharing that brings nothing goes last; then a tail within the SLO goes first, then fewer devices."""
        return self.brings_nothing, self.lacks_tail, self.devices or 0

    @property
    def merit(self) -> Estimate:
        """The measure by which plans of one rank are ordered; higher is better.

        Of replicas under a closed load it is of all together, in tokens if they stream.
        """
        found = self.level and self.level.merit
        if self.level and self.option.has_one_load and not self.level.inverse_latency:
            found = self.level.tokens or self.level.throughput
        return found or Estimate(0.0)

    def total_rate(self, per_device: float, demand: Demand) -> float:
        """The rate of all tenants together, from that of the level's tenants on one device."""
        if self.option.has_one_load:
            return per_device
        return per_device * demand.tenants / self.level.replicas if self.level else 0.0

    def dollars_per_million(self, per_device: Estimate | None, demand: Demand) -> float | None:
        """The price of a million of what a device does at this rate; None without a price or a plan."""
        if not (demand.price_per_hour and self.devices and per_device and per_device.value):
            return None
        return dollars_per_million(self.devices * demand.price_per_hour, self.total_rate(per_device.value, demand))

    def margin_percent(self, demand: Demand) -> Estimate | None:
        """By how many percent the tightest part may grow until it exceeds the SLO; negative where it does."""
        if self.level is None or not self.level.slo_parts(demand):
            return None
        judged = self.level.tightest_part(demand)
        ratio = judged.time.inverse_times(judged.limit_seconds)
        low, high = (None if end is None else 100 * (end - 1) for end in (ratio.low, ratio.high))
        return Estimate(100 * (ratio.value - 1), low, high, ratio.n)


def _first_plans(option: Option, demand: Demand) -> list[Plan]:
    """The strategy's plans of the first rank that meets the demand, several of replicas; else why there is none."""
    if found := possible_plans(option, demand):
        first = min(each.rank for each in found)
        return [each for each in found if each.rank == first][: None if option.has_one_load else 1]
    fewest = [replicas for _, replicas in _splits(option, demand.tenants)][-1:] if option.has_one_load else []
    replicas = (fewest or [demand.tenants])[0] if option.is_sharing else 1
    level = option.level(replicas)
    return [Plan(option, None, replicas, level, _problem(option, replicas, level, demand) or "not measured")]


def possible_plans(option: Option, demand: Demand) -> list[Plan]:
    """The strategy's plans that meet the demand, as far as their tails are known; the fewest devices first."""
    found = []
    for devices, replicas in _splits(option, demand.tenants):
        level = option.level(replicas)
        if level is not None and _problem(option, replicas, level, demand) is None:
            level = _with_tails(option, level, demand)
            brings_nothing = replicas > 1 and level.gain is not None and level.gain.value < demand.least_gain
            found.append(Plan(option, devices, replicas, level, "", bool(level.coarse_parts(demand)), brings_nothing))
    return found


def _with_tails(option: Option, level: Level, demand: Demand) -> Level:
    """The level, where its tails are not known with those of the next larger one that meets the SLO by its own.

    More tenants are not faster, so fewer meet it too; but more replicas may be.
    """
    level = level.by_bounds(demand)
    if level.coarse_parts(demand) and not option.has_one_load:
        for replicas, larger in sorted((n, each.by_bounds(demand)) for n, each in option.levels.items()):
            if replicas > level.replicas and not larger.lacking(demand) and not larger.exceeding_part(demand):
                tails = {"percentile": larger.percentile, "latency": larger.latency, "stream": larger.stream}
                return replace(level, **tails, tails_of=replicas)  # type: ignore[arg-type]
    return level


def could_gain(option: Option, demand: Demand) -> bool:
    """Whether its tenants together do more than one alone, with any split, also one that does not meet the demand."""
    levels = [option.level(replicas) for _, replicas in _splits(option, demand.tenants) if replicas > 1]
    return any(each and each.gain is not None and each.gain.value >= demand.least_gain for each in levels)


def _splits(option: Option, tenants: int) -> Iterable[tuple[int, int]]:
    """Numbers of devices, each with the tenants on the fullest; one tenant per device would not be sharing.

    More devices with as many tenants on the fullest are no other plan. Of replicas, all are on one device.
    """
    if option.has_one_load:
        sizes = [n for n in option.levels if n <= tenants and option.is_sharing == (n > 1)]
        yield from ((1, n) for n in sorted(sizes, reverse=True))
        return
    for most in range(min(tenants, max(option.levels, default=0)), 0, -1):
        devices = math.ceil(tenants / most)
        replicas = math.ceil(tenants / devices)
        if replicas > 1 or not option.is_sharing:
            yield devices, replicas


def _problem(option: Option, replicas: int, level: Level | None, demand: Demand) -> str | None:
    """The reason why this number of tenants on one device does not meet the demand; None if it does."""
    if option.unavailable:
        return option.unavailable
    if replicas in option.infeasible:
        return f"{format_count(replicas, 'tenant', 'tenants')}: {option.infeasible[replicas]}"
    if replicas == 1 and option.is_sharing:
        return "one tenant alone shares nothing"
    if option.max_by_memory is not None and replicas > option.max_by_memory:
        holds = f"memory holds {option.max_by_memory} tenant{'s' * (option.max_by_memory != 1)}"
        return f"{holds}, {option.memory_basis}" if option.memory_basis else holds
    if level is None:
        larger = min((n for n in option.infeasible if n > replicas), default=None)
        more = f"; {larger} tenants: {option.infeasible[larger]}" if larger else " or more"
        return f"not measured with {format_count(replicas, 'tenant', 'tenants')}{more}"
    if option.has_one_load and level.inverse_latency and level.gain is None:
        return NO_BASELINE
    if demand.isolation == "fault" and replicas > 1 and not option.fault.holds:
        return f"fault isolation: {option.fault.text}"
    if demand.isolation == "performance" and replicas > 1 and not level.performance.holds:
        return f"performance isolation: {level.performance.text}"
    tenants = f"{level.replicas} tenant{'s' * (level.replicas != 1)}"
    if len(level.slo_parts(demand)) < len(demand.limits):
        return f"{tenants}: {level.lacking(demand)}"
    if judged := level.exceeding_part(demand):
        return f"{judged.name} of {tenants} is {judged.excess}"
    return option.beyond_limits or None


def advise(options: Iterable[Option], demand: Demand) -> list[Plan]:
    """All plans, the best first: by rank, then by throughput per tenant, or under an open load by mean latency.

    Tied plans are ordered by effort, then by the number of replicas. Strategies without a plan come last.
    """
    plans = [_first_plans(option, demand) for option in options]
    possible = [own for own in plans if own[0].devices is not None]
    rivals = group_by((each for own in possible for each in own), lambda each: each.rank)
    least = {rank: _least_merit(those, demand) for rank, those in rivals.items()}
    marked = []
    for own in possible:
        is_tied = max(each.merit.value for each in own) >= least[own[0].rank]
        enough = least[own[0].rank] if is_tied else _least_merit(own, demand)
        fewest = min((each for each in own if each.merit.value >= enough), key=lambda each: each.per_device)
        marked.append(replace(fewest, is_tied=is_tied))
    marked.sort(key=_order)
    return marked + [own[0] for own in plans if own[0].devices is None]


def _order(plan: Plan) -> tuple[float, ...]:
    """Of tied plans those that surely gain, the least effort, and then the fewest replicas go before more merit.

    Merit goes last, since a wider interval of one plan may tie more plans, but takes none away.
    """
    replicas = plan.per_device * plan.option.has_one_load
    effort = (plan.unsure_gain is not None, plan.option.effort, replicas) if plan.is_tied else (0, 0, 0)
    return (*plan.rank, not plan.is_tied, *effort, -plan.merit.value)


def _least_merit(plans: Sequence[Plan], demand: Demand) -> float:
    """The merit from which on none of these plans of one rank is surely better by the margin.

    Only the lower ends of intervals count, so that a wider interval of a plan excludes no other one: a plan never wins
    because it was measured with more noise. Without any interval the largest merit counts.
    """
    ends = [each.merit.low for each in plans if each.merit.low is not None]
    return (1 - demand.margin_percent / 100) * max(ends or [each.merit.value for each in plans])


Choice = tuple[str, int]
"""Strategy and devices."""


def first_choice(plans: Sequence[Plan]) -> Choice | None:
    """Strategy and devices of the plan to take; None without one, or if it is not known to keep the SLO."""
    if not plans or plans[0].devices is None or plans[0].lacks_tail:
        return None
    return plans[0].option.strategy, plans[0].devices
