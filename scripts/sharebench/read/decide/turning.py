"""What would change an answer: the nearest questions that have another one."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sharebench.model.question import ISOLATIONS
from sharebench.read.decide.advice import Choice, Demand, Option, advise, first_choice
from sharebench.read.harm import brief
from sharebench.read.slo import LATENCY


@dataclass(frozen=True)
class TurningPoint:
    """The nearest demand with another answer; `what` names the change: slo below or above, tenants, isolation."""

    what: str
    demand: Demand
    answer: Choice | None
    part: str = LATENCY
    is_sure: bool = True
    """Whether sharing surely brings something, if the answer shares."""
    harm: str = ""
    """What happened to tenants under it, in brief."""


def turning_points(options: Sequence[Option], demand: Demand) -> list[TurningPoint]:
    """What would change the answer: the nearest SLO below and above, the nearest numbers of tenants, other isolation.

    A strategy tied with the first is the same answer. Another number of devices is another answer, unless the number of
    tenants differs too.
    """
    plans = advise(options, demand)
    current = first_choice(plans)
    tied = (each for each in plans if current and each.is_tied and each.rank == plans[0].rank)
    same = {(each.option.strategy, each.devices) for each in tied}

    def nearest(what: str, changed: Iterable[Demand], part: str = LATENCY) -> Iterable[TurningPoint]:
        for other in changed:
            found = advise(options, other)
            choice = first_choice(found)
            is_same = choice == current or choice in same
            if what == "tenants" and choice is not None:
                is_same = choice[0] in {name for name, _ in same}
            if not is_same:
                is_sure, level = not (choice and found[0].unsure_gain), found[0].level if choice else None
                yield TurningPoint(what, other, choice, part, is_sure, brief(level.harms) if level else "")
                return

    # One replica alone shares nothing, under any strategy.
    least = 2 if any(option.has_one_load for option in options) else 1
    sizes = range(least, max((n for option in options for n in option.levels), default=1) + 1)
    tenants = demand.tenants
    changes: list[tuple[str, Iterable[Demand]]] = [
        ("tenants", (replace(demand, tenants=n) for n in reversed(sizes) if n < tenants)),
        ("tenants", (replace(demand, tenants=n) for n in sizes if n > tenants)),
        *(("isolation", [replace(demand, isolation=each)]) for each in ISOLATIONS if each != demand.isolation),
    ]
    points = []
    for part, limit in demand.limits.items():
        levels = [level for option in options for level in option.levels.values()]
        levels += [level.by_bounds(demand.with_limit(LATENCY, end)) for level in levels for end in (0.0, math.inf)]
        judged = (each for level in levels for each in level.slo_parts(demand))
        times = sorted({each.time.value for each in judged if each.part == part})
        # A level meets an SLO equal to its time, but not one just below it.
        lower = [demand.with_limit(part, math.nextafter(mark, 0.0)) for mark in reversed(times) if mark <= limit]
        higher = [demand.with_limit(part, mark) for mark in times if mark > limit]
        points += [*nearest("slo below", lower, part), *nearest("slo above", higher, part)]
    return [*points, *(point for what, questions in changes for point in nearest(what, questions))]
