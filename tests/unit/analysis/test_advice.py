"""The rule of the advice: its decision table row by row, and properties that hold for any data."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from unit.plans import find_plan

from sharebench.model.question import ISOLATIONS
from sharebench.model.strategy import Strategy
from sharebench.read.decide.advice import (
    Demand,
    Level,
    Option,
    Plan,
    advise,
    first_choice,
)
from sharebench.read.decide.advice_text import advice_rows
from sharebench.read.decide.answers import answer_question
from sharebench.read.decide.documented import ALONE, DOCUMENTED, MEASURED, UNKNOWN, Isolation
from sharebench.read.decide.turning import turning_points
from sharebench.read.statistics.intervals import Estimate

YES, NO = Isolation(True, DOCUMENTED, "documented"), Isolation(False, MEASURED, "measured")
NOT_KNOWN = Isolation(None, UNKNOWN, "unknown")


def level(replicas: int, latency: float, hz: float, spread: float = 0.01, isolated: Isolation = NO) -> Level:
    """Latency in seconds and iterations per second, with intervals of `spread` on either side."""

    def interval(value: float) -> Estimate:
        return Estimate(value, value / (1 + spread), value * (1 + spread)) if spread else Estimate(value)

    return Level(replicas, "p99", interval(latency), interval(hz), isolated)


def option(name: str, *levels: Level, fault: Isolation = NO, effort: int = 1, **more: object) -> Option:
    return Option(name, {each.replicas: each for each in levels}, fault, effort, **more)  # type: ignore[arg-type]


EXCLUSIVE = option("exclusive", level(1, 0.09, 11, isolated=ALONE), fault=ALONE, effort=0, is_sharing=False)
MPS = option("mps", *(level(n, 0.05 + 0.04 * n, 20) for n in (1, 3, 5, 7)), effort=2)
SLICING = option("time-slicing", *(level(n, 0.1 * n, 10) for n in (1, 3, 5, 7)), fault=NOT_KNOWN, effort=1)
MIG = option("mig", *(level(n, 0.34, 2.9 * n, isolated=YES) for n in (1, 3, 5, 7)), fault=YES, effort=4)
OPTIONS = [EXCLUSIVE, SLICING, MPS, MIG]


def strategies(plans: list[Plan]) -> list[str]:
    return [each.option.strategy for each in plans if each.devices is not None]


def test_fewest_devices_within_the_slo() -> None:
    for slo_seconds, expected in ((0.3, ("mps", 1)), (0.2, ("mps", 2)), (0.12, ("exclusive", 5)), (0.08, None)):
        assert first_choice(advise(OPTIONS, Demand(5, {"latency": slo_seconds}))) == expected


def test_no_plan_gains_by_the_larger_number_of_tenants_that_it_is_judged_with() -> None:
    alone = replace(EXCLUSIVE.levels[1], gain=Estimate(1.0))
    shared = replace(level(3, 0.1, 25), gain=Estimate(2.3))
    options = [replace(EXCLUSIVE, levels={1: alone}), option("mps-limited", shared, effort=3)]
    assert first_choice(advise(options, Demand(1))) == ("exclusive", 1)
    assert first_choice(advise(options, Demand(2))) == ("mps-limited", 1)


def test_millions_of_tenants_are_judged_at_the_levels_that_were_measured() -> None:
    tried: list[int] = []

    class Counted(Option):
        def level(self, replicas: int) -> Level | None:
            tried.append(replicas)
            return super().level(replicas)

    mps = Counted("mps", MPS.levels, NO, 1)
    assert find_plan(mps, Demand(3_000_000, {"latency": 0.2})).devices == 1_000_000
    assert find_plan(mps, Demand(3_000_000, {"latency": 0.01})).devices is None
    assert len(tried) < 20


def test_tenants_are_spread_evenly() -> None:
    found = find_plan(MPS, Demand(7, {"latency": 0.26}))
    assert (found.devices, found.per_device, found.level and found.level.replicas) == (2, 4, 5), "judged with five"
    assert find_plan(MPS, Demand(7, {"latency": 0.33})).devices == 1


def test_one_tenant_per_device_is_not_sharing() -> None:
    assert strategies(advise(OPTIONS, Demand(5, {"latency": 0.1}))) == ["exclusive"]
    few = advise(OPTIONS, Demand(1, {"latency": 0.1}))
    assert strategies(few) == ["exclusive"], "whatever fewer devices or more throughput the others have"
    assert {each.reason for each in few[1:]} == {"one tenant alone shares nothing"}
    assert find_plan(replace(MPS, infeasible={1: "answers: 400"}), Demand(1)).reason == "1 tenant: answers: 400"


def test_unknown_isolation_does_not_count() -> None:
    assert strategies(advise(OPTIONS, Demand(5, isolation="fault"))) == ["mig", "exclusive"]
    assert strategies(advise(OPTIONS, Demand(5, isolation="performance"))) == ["mig", "exclusive"]
    [slicing] = [each for each in advise(OPTIONS, Demand(5, isolation="fault")) if each.option is SLICING]
    assert slicing.reason == "fault isolation: unknown"


def test_an_impossible_plan_has_a_reason() -> None:
    small = replace(MIG, infeasible={7: "more than 7 MIG slices"})
    assert find_plan(small, Demand(7)).devices == 2
    full = replace(MPS, max_by_memory=4)
    assert find_plan(full, Demand(5)).devices == 2
    assert find_plan(replace(MPS, max_by_memory=1), Demand(5)).reason == "memory holds 1 tenant"
    assert find_plan(option("new", level(1, 0.1, 10)), Demand(9)).reason == "not measured with 9 tenants or more"
    wrong = option("wrong", level(1, 0.1, 10), infeasible={5: "no room", 7: "excluded"})
    assert find_plan(wrong, Demand(6)).reason == "not measured with 6 tenants; 7 tenants: excluded"
    assert find_plan(wrong, Demand(4)).reason == "not measured with 4 tenants; 5 tenants: no room"
    assert find_plan(SLICING, Demand(5, {"latency": 0.2})).reason == "p99 of 5 tenants is 500 ms, more than 200 ms"


def test_tied_plans_are_ordered_by_effort() -> None:
    hard = option("hard", level(5, 0.1, 20.3), effort=5)
    easy = option("easy", level(5, 0.1, 20.0), effort=1)
    poor = option("poor", level(5, 0.1, 15.0), effort=0)
    assert strategies(advise([hard, poor, easy], Demand(5))) == ["easy", "hard", "poor"]
    assert [each.is_tied for each in advise([hard, poor, easy], Demand(5))] == [True, True, False]
    for also, said in (([], "hard is not"), ([replace(hard, strategy="odd")], "none of hard, odd is")):
        [why] = answer_question("w", [easy, hard, *also], Demand(5)).texts("tie")
        assert why == f"In throughput {said} surely better by 5 %; easy is the least effort."


def test_an_interval_excludes_but_never_promotes() -> None:
    """Seven copies of YOLOS on an H200: the plan in the middle was measured with the most noise."""
    mps = Level(7, "p95", Estimate(0.038), Estimate(191.6, 190.1, 193.2), NO)
    noisy = replace(mps, throughput=Estimate(194.5, 186.7, 202.6))
    streams = replace(mps, throughput=Estimate(198.0, 196.5, 199.5))
    options = [
        option("mps-limited-200", noisy, effort=3),
        option("streams", streams, effort=5),
        option("mps", mps, effort=2),
    ]
    assert strategies(advise(options, Demand(7))) == ["mps", "mps-limited-200", "streams"]
    assert strategies(advise(options, Demand(7, margin_percent=2)))[0] == "mps-limited-200"
    surely = replace(mps, throughput=Estimate(230.0, 210.0, 250.0))
    assert strategies(advise([*options, option("surely", surely, effort=9)], Demand(7)))[0] == "surely"


def test_widening_the_interval_of_one_plan_never_moves_it_to_first_place() -> None:
    moved = 0
    for draw, options, demand in cases(600):
        first = first_choice(advise(options, demand))
        for wider in options:
            levels = {n: replace(each, throughput=widened(each.throughput, draw)) for n, each in wider.levels.items()}
            changed = [replace(each, levels=levels) if each is wider else each for each in options]
            now = first_choice(advise(changed, demand))
            if now != first:
                assert now and now[0] != wider.strategy
                moved += 1
    assert moved > 20, "a wider interval may let another plan go first"


def widened(known: Estimate | None, draw: random.Random) -> Estimate | None:
    if known is None or known.low is None or known.high is None:
        return known
    return replace(known, low=known.low / draw.uniform(1, 3), high=known.high * draw.uniform(1, 3))


def test_sharing_that_brings_less_than_the_margin_goes_after_a_gpu_each() -> None:
    alone = replace(EXCLUSIVE, levels={1: replace(EXCLUSIVE.levels[1], gain=Estimate(1.0))})
    vain, gaining = (option(f"× {gain}", replace(level(5, 0.1, 20), gain=Estimate(gain))) for gain in (1.04, 1.06))
    assert strategies(advise([vain, alone], Demand(5))) == ["exclusive", "× 1.04"]
    assert strategies(advise([gaining, alone], Demand(5))) == ["× 1.06", "exclusive"]
    assert strategies(advise([gaining, alone], Demand(5, margin_percent=10))) == ["exclusive", "× 1.06"]
    both = option("both", *vain.levels.values(), replace(level(3, 0.1, 20), gain=Estimate(1.4)))
    assert devices(advise([both, alone], Demand(5)))["both"] == 2, "with fewer tenants on each it brings something"


def test_sharing_whose_gain_may_be_none_is_ahead_but_not_certain() -> None:
    """BERT under time-slicing with fault isolation, whose baseline is noisy."""
    gain = Estimate(1.56, 0.92, 2.63)
    shared = option("time-slicing", replace(level(5, 0.1, 20), gain=gain, slowdown=gain))
    alone = replace(EXCLUSIVE, levels={1: replace(EXCLUSIVE.levels[1], mean=Estimate(0.09))})
    found = answer_question("w", [shared, alone], Demand(5))
    why = "not certain that sharing brings anything (× 1.56, 0.920 to 2.63)"
    assert (found.strategy, found.undecided) == ("time-slicing", why) and found.headline.startswith(f"{why}; ahead: ")
    assert ("per GPU", "20.0/s", "× 1.56 of one alone, 0.920 to 2.63") in found.facts
    (change,) = [text for text in answer_question("w", [shared, alone], Demand(1)).texts("change") if "2 ten" in text]
    assert change == "with 2 tenants it is time-slicing on 1 GPU, not certain"
    surely = replace(shared, levels={5: replace(shared.levels[5], gain=Estimate(1.56, 1.0, 2.4))})
    assert answer_question("w", [surely, alone], Demand(5)).undecided == ""
    more = replace(surely, strategy="mps", effort=shared.effort + 1)
    found = answer_question("w", [shared, more, alone], Demand(5))
    assert (found.strategy, found.undecided) == ("mps", ""), "as good, and sure to bring something"
    (tie,) = found.texts("tie")
    assert tie.endswith("mps is the least effort of what surely gains.")


def test_under_an_open_load_lower_latency_goes_first() -> None:
    late, prompt = level(2, 4.0, 97.0), level(2, 0.02, 96.0)
    served = [
        option("late", replace(late, inverse_latency=Estimate(1 / 4)), effort=1),
        option("prompt", replace(prompt, inverse_latency=Estimate(1 / 0.02)), effort=2),
    ]
    assert strategies(advise(served, Demand(2))) == ["prompt", "late"]
    assert strategies(advise([option("late", late, effort=1), option("prompt", prompt, effort=2)], Demand(2))) == [
        *("late", "prompt")
    ], "throughput as good as the same"


def test_with_an_slo_a_known_tail_goes_before_a_median() -> None:
    fast = option("fast", replace(level(5, 0.1, 40), percentile="p50"))
    slow = option("slow", level(5, 0.15, 20))
    assert strategies(advise([fast, slow], Demand(5))) == ["fast", "slow"], "without an SLO nothing is judged"
    assert strategies(advise([fast, slow], Demand(5, {"latency": 0.2}))) == ["slow", "fast"]
    only = advise([fast, slow], Demand(5, {"latency": 0.12}))
    assert strategies(only) == ["fast"] and first_choice(only) is None, "a median does not keep an SLO"
    more = option("more", level(3, 0.1, 90))
    assert strategies(advise([more, fast], Demand(5, {"latency": 0.2}))) == ["more", "fast"], "on more devices too"
    both = option("both", *fast.levels.values(), *more.levels.values())
    assert devices(advise([both], Demand(5, {"latency": 0.2}))) == {"both": 2}


def test_a_tail_of_more_tenants_holds_for_fewer() -> None:
    few, many = replace(level(3, 0.1, 20), percentile="p50"), level(5, 0.15, 30)
    found = find_plan(option("mps", few, many), Demand(3, {"latency": 0.2}))
    assert found.level is not None and not found.lacks_tail
    assert (found.level.replicas, found.level.tails_of, found.level.latency.value) == (3, 5, 0.15)
    assert found.level.throughput == few.throughput, "it is its own"
    assert find_plan(option("mps", few, many), Demand(3, {"latency": 0.12})).lacks_tail


def test_a_gpu_each_has_no_tail_of_another_strategy() -> None:
    unknown = replace(EXCLUSIVE.levels[1], percentile="p50")
    plans = advise([option("exclusive", unknown, is_sharing=False), SLICING], Demand(5, {"latency": 0.4}))
    assert [(each.option.strategy, each.lacks_tail) for each in plans] == [("time-slicing", False), ("exclusive", True)]


def test_a_borrowed_tail_is_labelled_in_the_table() -> None:
    few, many = replace(level(3, 0.1, 20), percentile="p50"), level(5, 0.15, 30)
    for tenants, expected in ((3, (3, 5)), (5, (5, None))):
        asked = Demand(tenants, {"latency": 0.2})
        [row] = advice_rows("w", [option("mps", few, many)], asked, {"mps": Strategy(name="mps", mechanism=("mps",))})
        assert (row["judged_with_tenants"], row["tail_of_tenants"]) == expected


def test_a_reason_against_fewer_devices_is_of_all_that_was_measured() -> None:
    """Of MPS with five the median is within the SLO; of time-slicing the tail is, but sharing brings nothing."""
    mps = option("mps", level(3, 0.1, 20), replace(level(5, 0.15, 20), percentile="p50"))
    [reason] = answer_question("w", [EXCLUSIVE, mps], Demand(5, {"latency": 0.2})).texts("devices")
    assert reason == "Fewer devices are not known to keep the SLO: mps on 1 (only the p50 is known)."
    mps = option("mps", level(3, 0.1, 20), level(5, 0.3, 20))
    vain = option("time-slicing", replace(level(5, 0.15, 9), gain=Estimate(0.9)))
    [reason] = answer_question("w", [EXCLUSIVE, mps, vain], Demand(5, {"latency": 0.2})).texts("devices")
    assert reason == (
        "Sharing brings nothing with time-slicing on 1. Nothing else that was measured serves 5 tenants on "
        "fewer devices (mps with 5 on one GPU: p99 300 ms)."
    )
    [reason] = answer_question("w", [EXCLUSIVE, mps], Demand(5, {"latency": 0.2})).texts("devices")
    assert reason == "Nothing that was measured serves 5 tenants on fewer devices (mps with 5 on one GPU: p99 300 ms)."


def test_removing_what_is_known_of_the_tail_of_one_plan_never_moves_it_to_first_place() -> None:
    """Latency grows with the tenants, and from the median to the p99; all tails of a plan or some are blanked."""
    moved = 0
    for draw, drawn, demand in cases(900):
        demand = demand.with_limit("latency", draw.lognormvariate(-2, 1))
        options = [with_tails(each, draw) for each in drawn]
        first = first_choice(advise(options, demand))
        for blanked in options:
            levels = {n: coarser(each) if draw.random() < 0.7 else each for n, each in blanked.levels.items()}
            changed = [replace(each, levels=levels) if each is blanked else each for each in options]
            plans = advise(changed, demand)
            now = first_choice(plans)
            if now != first:
                assert now is None or now[0] != blanked.strategy or (first and first[0] == now[0])
                moved += 1
            if first:
                assert first[0] == blanked.strategy or plans[0].option is not changed[options.index(blanked)]
    assert moved > 100


def with_tails(drawn: Option, draw: random.Random) -> Option:
    medians = sorted(each.latency.value for each in drawn.levels.values())
    return replace(
        drawn,
        levels={
            n: replace(each, latency=Estimate(1.5 * median), p99=Estimate(draw.uniform(1.5, 3) * median))
            for (n, each), median in zip(drawn.levels.items(), medians, strict=True)
        },
    )


def coarser(known: Level) -> Level:
    return replace(known, percentile="p50", latency=known.latency.times(1 / 1.5), p99=None)


def test_the_margin_has_an_interval() -> None:
    margin = find_plan(MPS, Demand(3, {"latency": 0.2})).margin_percent(Demand(3, {"latency": 0.2}))
    assert margin is not None
    ends = (margin.value, margin.low, margin.high)
    assert ends == pytest.approx((100 * (0.2 / 0.17 - 1), 100 * (0.2 / 0.1717 - 1), 100 * (0.2 / 0.17 * 1.01 - 1)))


def test_a_latency_that_may_be_zero_leaves_the_margin_without_an_upper_bound() -> None:
    """A quantile in the first bucket of a program's own histogram may be zero."""
    coarse = option("mps", replace(level(3, 0.17, 20), latency=Estimate(0.1, 0.0, 0.2, 3)))
    margin = find_plan(coarse, Demand(3, {"latency": 0.2})).margin_percent(Demand(3, {"latency": 0.2}))
    assert margin is not None and (margin.low, margin.high) == (0.0, None)


def test_turning_points_are_where_the_answer_changes() -> None:
    asked = Demand(5, {"latency": 0.2})
    points = {}
    for each in turning_points(OPTIONS, asked):
        key = {"tenants": "tenants", "isolation": "isolation"}.get(each.what, "limits")
        value = getattr(each.demand, key)
        assert each.demand == replace(asked, **{key: value}), "nothing else was changed"
        points[each.what, value["latency"] if key == "limits" else value] = each.answer
    [(below, there)] = [(value, answer) for (what, value), answer in points.items() if what == "slo below"]
    assert isinstance(below, float) and below == pytest.approx(0.17) and there == ("exclusive", 5)
    assert points["slo above", 0.25] == ("mps", 1)
    assert points["isolation", "fault"] == ("exclusive", 5)
    for (what, value), answer in points.items():
        if what == "slo above":
            assert first_choice(advise(OPTIONS, Demand(5, {"latency": float(value)}))) == answer
            assert first_choice(advise(OPTIONS, Demand(5, {"latency": float(value) - 1e-9}))) == ("mps", 2)


def random_options(seed: int) -> list[Option]:
    """Some strategies with random latencies, throughputs, isolation and effort, some values unknown."""
    draw = random.Random(seed)
    found = []
    for index in range(draw.randint(1, 7)):
        levels = [
            level(
                n,
                draw.lognormvariate(-2, 1),
                draw.lognormvariate(2, 0.3),
                spread=draw.choice([0, 0.01, 0.2]),
                isolated=draw.choice([YES, NO]),
            )
            for n in range(1, 9)
            if draw.random() < 0.7
        ]
        if levels:
            infeasible = {n: "no room" for n in range(1, 9) if draw.random() < 0.1}
            memory = draw.choice([None, None, 3, 6])
            fault = draw.choice([YES, NO, NOT_KNOWN])
            more = {"infeasible": infeasible, "max_by_memory": memory, "is_sharing": index > 0}
            found.append(option(f"s{index}", *levels, fault=fault, effort=draw.randint(0, 5), **more))
    return found


def cases(count: int) -> Iterator[tuple[random.Random, list[Option], Demand]]:
    for seed in range(count):
        draw = random.Random(1000 + seed)
        limits = draw.choice([{}, {"latency": draw.lognormvariate(-2, 1)}])
        price = draw.choice([None, draw.uniform(0.1, 10)])
        yield draw, random_options(seed), Demand(draw.randint(1, 9), limits, draw.choice(ISOLATIONS), price)


def devices(plans: list[Plan]) -> dict[str, int]:
    return {each.option.strategy: each.devices for each in plans if each.devices}


def test_more_slack_never_removes_a_plan_or_makes_it_larger() -> None:
    compared = 0
    for draw, options, demand in cases(600):
        if not demand.limits:
            continue
        tight = advise(options, demand)
        loose = advise(options, demand.with_limit("latency", demand.limits["latency"] * draw.uniform(1, 3)))
        assert set(strategies(tight)) <= set(strategies(loose))
        for name, needed in devices(tight).items():
            assert devices(loose)[name] <= needed
            compared += 1
    assert compared > 300


def test_asking_for_isolation_never_adds_a_strategy() -> None:
    removed = 0
    for _, options, demand in cases(600):
        free = set(strategies(advise(options, replace(demand, isolation="none"))))
        for isolation in ("performance", "fault"):
            asked = set(strategies(advise(options, replace(demand, isolation=isolation))))
            assert asked <= free
            removed += asked < free
    assert removed > 100


def test_every_strategy_has_a_verdict() -> None:
    for _, options, demand in cases(200):
        plans = advise(options, demand)
        assert sorted(each.option.strategy for each in plans) == sorted(each.strategy for each in options)
        assert all((each.devices is None) == bool(each.reason) for each in plans)
        for each in plans:
            if each.devices is not None:
                assert each.per_device * each.devices >= demand.tenants > (each.per_device - 1) * each.devices
                assert each.level is not None and each.level.replicas >= each.per_device
                assert each.level.latency.value <= demand.limits.get("latency", math.inf)
