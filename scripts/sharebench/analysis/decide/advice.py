"""Which strategy to take, from what was measured: a pure rule. docs/advice.md has its decision table in words.

A plan puts the tenants on as few devices as the strategy allows, evenly: on `d` devices the fullest has ceil(N / d).
It is possible where the device can hold so many, their isolation is what was asked for, and their latency is at most
the SLO.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sharebench.analysis.decide.documented import Evidence
from sharebench.analysis.statistics.intervals import Estimate

ISOLATIONS = ("none", "performance", "fault")
ALIKE = 0.02
"""Strategies whose merit differs by less are equal; so are those whose intervals overlap."""


@dataclass(frozen=True)
class Question:
    """What the user wants; no SLO and no price where they are None."""

    tenants: int
    slo_seconds: float | None = None
    isolation: str = "none"
    price_per_hour: float | None = None


@dataclass(frozen=True)
class Level:
    """A strategy with some tenants on one device: measured, or predicted."""

    replicas: int
    is_measured: bool
    percentile: str
    latency: Estimate
    throughput: Estimate | None
    performance: Evidence
    promptness: Estimate | None = None
    """Of an open load one over the mean latency, 1/s: its throughput is what was asked for, with every strategy."""

    @property
    def merit(self) -> Estimate | None:
        """What plans with as many devices are ranked by, more being better."""
        return self.promptness or self.throughput

    @property
    def estimates(self) -> list[Estimate]:
        """All that are known."""
        return [each for each in (self.latency, self.throughput, self.promptness) if each is not None]

    def drawn(self, index: int) -> Level:
        """The level as draw number `index` of each estimate has it."""
        return replace(
            self,
            latency=self.latency.drawn(index),
            throughput=self.throughput and self.throughput.drawn(index),
            promptness=self.promptness and self.promptness.drawn(index),
        )


@dataclass(frozen=True)
class Option:
    """A strategy: its levels, and what is known of it."""

    strategy: str
    levels: Mapping[int, Level]
    fault: Evidence
    effort: int
    is_sharing: bool = True
    infeasible: Mapping[int, str] = field(default_factory=dict)
    """Why so many tenants are impossible."""
    most_by_memory: int | None = None

    def level(self, replicas: int, is_measured: bool) -> Level | None:
        """What was measured with so many tenants, or else with the next more; or what is predicted of so many."""
        sizes = [n for n, level in self.levels.items() if n >= replicas and level.is_measured]
        if is_measured:
            return self.levels[min(sizes)] if sizes else None
        exact = self.levels.get(replicas)
        return None if exact is None or exact.is_measured else exact

    def drawn(self, index: int) -> Option:
        """The option as draw number `index` has it."""
        return replace(self, levels={n: level.drawn(index) for n, level in self.levels.items()})


@dataclass(frozen=True)
class Plan:
    """What the rule says of one strategy; `devices` is None where there is no plan, for that `reason`."""

    option: Option
    devices: int | None
    per_device: int
    level: Level | None
    """What was judged: that of the plan, or else of all tenants on one device, if anything is known of them."""
    reason: str
    is_alike: bool = False
    """Whether its merit cannot be told from the best of the plans with as many devices."""

    def margin_percent(self, slo_seconds: float) -> Estimate | None:
        """By how much the latency may grow until it exceeds the SLO; negative where it does."""
        if self.level is None:
            return None
        ratio = self.level.latency.under(slo_seconds)
        low, high = (None if end is None else 100 * (end - 1) for end in (ratio.low, ratio.high))
        return Estimate(100 * (ratio.value - 1), low, high, ratio.n)


def plan(option: Option, question: Question) -> Plan:
    """The measured plan of the strategy, else the predicted one, else why there is none."""
    return best_of(option, question, True) or best_of(option, question, False) or _no_plan(option, question)


def best_of(option: Option, question: Question, is_measured: bool) -> Plan | None:
    """The plan with the fewest devices that the strategy has for the question, by measured or by predicted levels."""
    for devices, replicas in _splits(option, question.tenants):
        level = option.level(replicas, is_measured)
        if level is not None and _problem(option, replicas, level, question) is None:
            return Plan(option, devices, replicas, level, "")
    return None


def _splits(option: Option, tenants: int) -> Iterable[tuple[int, int]]:
    """Numbers of devices with the tenants on the fullest. Sharing strategies never have one tenant for each device:
    that would be exclusive by another name."""
    for devices in range(1, tenants + 1):
        replicas = math.ceil(tenants / devices)
        if replicas > 1 or tenants == 1 or not option.is_sharing:
            yield devices, replicas


def _no_plan(option: Option, question: Question) -> Plan:
    replicas = question.tenants
    level = option.level(replicas, True) or option.level(replicas, False)
    return Plan(option, None, replicas, level, _problem(option, replicas, level, question) or "no data")


def _problem(option: Option, replicas: int, level: Level | None, question: Question) -> str | None:
    """Why so many tenants on one device are no answer."""
    if replicas in option.infeasible:
        return f"{replicas} tenants: {option.infeasible[replicas]}"
    if option.most_by_memory is not None and replicas > option.most_by_memory:
        return f"memory holds {option.most_by_memory} tenants"
    if level is None:
        return f"{replicas} tenants: no data"
    if question.isolation == "fault" and replicas > 1 and not option.fault.holds:
        return f"fault isolation: {option.fault.text}"
    if question.isolation == "performance" and replicas > 1 and not level.performance.holds:
        return f"performance isolation: {level.performance.text}"
    if question.slo_seconds is not None and level.latency.value > question.slo_seconds:
        return (
            f"{level.percentile} of {level.replicas} tenants is {1e3 * level.latency.value:.3g} ms, "
            f"more than {1e3 * question.slo_seconds:g} ms"
        )
    return None


def advise(options: Iterable[Option], question: Question) -> list[Plan]:
    """All plans, the best first: what was measured before what is predicted, then fewer devices, then more throughput
    for each, or of an open load the shorter mean latency; what cannot be told from the best in that is ordered by
    effort. Strategies without a plan come last."""
    plans = [plan(option, question) for option in options]
    possible = [each for each in plans if each.devices is not None]
    marked = []
    for each in possible:
        rivals = [other for other in possible if _class(other) == _class(each)]
        marked.append(replace(each, is_alike=_is_alike(each, rivals)))
    marked.sort(key=lambda each: (*_class(each), not each.is_alike, each.option.effort * each.is_alike, -_merit(each)))
    return marked + [each for each in plans if each.devices is None]


def _class(each: Plan) -> tuple[bool, int]:
    assert each.level is not None and each.devices is not None
    return not each.level.is_measured, each.devices


def _merit(each: Plan) -> float:
    assert each.level is not None
    return each.level.merit.value if each.level.merit else 0.0


def _is_alike(each: Plan, rivals: Sequence[Plan]) -> bool:
    best = max(rivals, key=_merit)
    if _merit(each) >= (1 - ALIKE) * _merit(best):
        return True
    own, most = (plan.level.merit if plan.level else None for plan in (each, best))
    return own is not None and most is not None and (own.high or 0.0) >= (most.low or math.inf)


def confidence(options: Sequence[Option], question: Question) -> Mapping[str, float] | None:
    """In which share of the draws each strategy is first, the most frequent first; None without draws of the answer.

    In each draw every latency and merit is another one of those that the repeats leave possible. Where nothing is
    possible, the name is empty.
    """
    plans = advise(options, question)
    first = plans[0].level if plans else None
    if first is None or any(each.draws is None for each in first.estimates):
        return None
    sizes = [
        estimate.draws.size
        for option in options
        for level in option.levels.values()
        for estimate in level.estimates
        if estimate.draws is not None
    ]
    counts: dict[str, int] = {}
    relevant = [_relevant(option, question.tenants) for option in options]
    for index in range(min(sizes)):
        answer = answer_of(advise([option.drawn(index) for option in relevant], question))
        name = answer[0] if answer else ""
        counts[name] = counts.get(name, 0) + 1
    return {name: count / min(sizes) for name, count in sorted(counts.items(), key=lambda item: -item[1])}


def _relevant(option: Option, tenants: int) -> Option:
    """The option with those of its levels that decide on a plan for so many tenants."""
    sizes = {tenants, *(replicas for _, replicas in _splits(option, tenants))}
    found = [option.level(replicas, is_measured) for replicas in sizes for is_measured in (True, False)]
    return replace(option, levels={level.replicas: level for level in found if level is not None})


Answer = tuple[str, int]
"""Strategy and devices."""


def answer_of(plans: Sequence[Plan]) -> Answer | None:
    """The first plan; None where there is none."""
    if not plans or plans[0].devices is None:
        return None
    return plans[0].option.strategy, plans[0].devices


@dataclass(frozen=True)
class TurningPoint:
    """Another question with another answer; `what` was changed: slo below, slo above, tenants or isolation."""

    what: str
    question: Question
    answer: Answer | None


def turning_points(options: Sequence[Option], question: Question) -> list[TurningPoint]:
    """What would change the answer: the nearest SLO below and above, the nearest numbers of tenants, other isolation.

    Another strategy that cannot be told from the first is no other answer; another number of devices is, but not where
    the tenants are others too.
    """
    plans = advise(options, question)
    here = answer_of(plans)
    same = {
        (each.option.strategy, each.devices) for each in plans if each.is_alike and here and each.devices == here[1]
    }

    def nearest(what: str, changed: Iterable[Question]) -> Iterable[TurningPoint]:
        for other in changed:
            there = answer_of(advise(options, other))
            is_same = there == here or there in same
            if what == "tenants" and there is not None:
                is_same = there[0] in {name for name, _ in same}
            if not is_same:
                yield TurningPoint(what, other, there)
                return

    def with_slo(seconds: Iterable[float]) -> Iterable[Question]:
        return (replace(question, slo_seconds=each) for each in seconds)

    def with_tenants(numbers: Iterable[int]) -> Iterable[Question]:
        return (replace(question, tenants=n) for n in numbers)

    marks = sorted({level.latency.value for option in options for level in option.levels.values()})
    sizes = range(1, max((n for option in options for n in option.levels), default=1) + 1)
    found: list[TurningPoint] = []
    if question.slo_seconds is not None:
        # Just below a latency its level no longer meets the SLO; at it, it does.
        lower = [math.nextafter(mark, 0.0) for mark in reversed(marks) if mark <= question.slo_seconds]
        found += nearest("slo below", with_slo(lower))
        found += nearest("slo above", with_slo(mark for mark in marks if mark > question.slo_seconds))
    found += nearest("tenants", with_tenants(n for n in reversed(sizes) if n < question.tenants))
    found += nearest("tenants", with_tenants(n for n in sizes if n > question.tenants))
    for isolation in ISOLATIONS:
        if isolation != question.isolation:
            found += nearest("isolation", [replace(question, isolation=isolation)])
    return found
