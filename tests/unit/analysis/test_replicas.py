"""Advice on replicas of one server, which carry one load together."""

import random
from dataclasses import replace

import pytest
from unit.plans import find_plan

from sharebench.read.decide.advice import Demand, Level, Option, advise
from sharebench.read.decide.answers import answer_question
from sharebench.read.decide.documented import DOCUMENTED, Isolation
from sharebench.read.decide.turning import turning_points
from sharebench.read.statistics.intervals import Estimate

NO = Isolation(False, DOCUMENTED, "documented")
ALONE_SECONDS, ALONE_HZ = 0.1, 100.0


def near(value: float) -> Estimate:
    return Estimate(value, 0.99 * value, 1.01 * value, 3)


def option(name: str, gains: dict[int, float], *, is_open: bool = False) -> Option:
    """A strategy whose replicas together do this many times what one does, or under an open load are as much faster."""
    levels = {
        n: Level(
            n,
            "p99",
            near(ALONE_SECONDS / gain),
            near(ALONE_HZ if is_open else ALONE_HZ * gain),
            NO,
            inverse_latency=near(gain / ALONE_SECONDS) if is_open else None,
            gain=Estimate(gain),
        )
        for n, gain in gains.items()
    }
    is_sharing = name != "exclusive"
    return Option(name, levels, NO, 2 * is_sharing, is_sharing=is_sharing, has_one_load=True)


def with_ends(option: Option, widths: dict[int, float]) -> Option:
    """The option with intervals that reach these shares to either side of its merits."""

    def widened(known: Estimate | None, share: float) -> Estimate | None:
        return known and replace(known, low=known.value * (1 - share), high=known.value * (1 + share))

    levels = {
        n: replace(
            level,
            throughput=widened(level.throughput, widths[n]),
            inverse_latency=widened(level.inverse_latency, widths[n]),
        )
        if n in widths
        else level
        for n, level in option.levels.items()
    }
    return replace(option, levels=levels)


def options(mps: dict[int, float], *, is_open: bool = False) -> list[Option]:
    sliced = {2: 0.9, 4: 0.8}
    return [
        option("exclusive", {1: 1.0}, is_open=is_open),
        option("time-slicing", sliced, is_open=is_open),
        option("mps", {1: 1.0} | mps, is_open=is_open),
    ]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(
    ("mps", "headline"),
    [
        ({2: 1.5, 4: 1.4}, "take 2 replicas: mps on 1 GPU"),
        ({2: 1.3, 4: 1.7}, "take 4 replicas: mps on 1 GPU"),
        ({2: 1.02, 4: 0.7}, "more replicas bring nothing; take 1 replica: exclusive on 1 GPU"),
    ],
)
def test_the_number_of_replicas_is_that_which_does_most(mps: dict[int, float], headline: str, is_open: bool) -> None:
    answer = answer_question("chat", options(mps, is_open=is_open), Demand(4))
    assert answer.headline == headline
    assert [each.devices for each in answer.plans] == [1, 1, 1]


@pytest.mark.parametrize("is_open", [False, True])
def test_the_fewest_are_taken_of_which_no_other_is_surely_better_by_the_margin(is_open: bool) -> None:
    close = options({2: 1.64, 4: 1.7}, is_open=is_open)
    assert answer_question("chat", close, Demand(4)).headline == "take 2 replicas: mps on 1 GPU"
    assert answer_question("chat", close, Demand(4, margin_percent=1)).headline == "take 4 replicas: mps on 1 GPU"
    noisy = [with_ends(each, {4: 0.1}) for each in options({2: 1.55, 4: 1.7}, is_open=is_open)]
    assert advise(noisy, Demand(4))[0].per_device == 2


def test_a_strategy_of_less_effort_goes_before_one_with_fewer_replicas_and_the_answer_says_so() -> None:
    alone, *_ = options({2: 1.3})
    for effort, first in ((2, "mps-limited"), (3, "mps")):
        rivals = [alone, option("mps", {4: 1.6}), replace(option("mps-limited", {2: 1.6}), effort=effort)]
        answer = answer_question("chat", rivals, Demand(4))
        assert answer.strategy == first
        assert answer.texts("tie")[0].endswith(f"; {first} goes first by effort, then by replicas.")
        assert "of each strategy the fewest count" in " ".join(answer.texts("scope"))


def test_another_strategy_with_fewer_replicas_hides_no_number_that_is_as_good() -> None:
    rivals = [with_ends(option("mps", {2: 1.45, 4: 1.7}), {4: 0.12}), option("mps-limited", {4: 1.6})]
    best = advise(rivals, Demand(4))[0]
    assert (best.option.strategy, best.per_device) == ("mps", 4), "two are 5 % worse than what is surely reached"


def test_a_wider_interval_of_one_number_never_moves_it_to_first_place() -> None:
    draw, moved = random.Random(7), 0
    for number in range(200):
        found = []
        for name in ("time-slicing", "mps", "mig"):
            gains = {n: draw.uniform(1.1, 1.6) for n in (2, 3, 4)}
            drawn = with_ends(option(name, gains, is_open=number % 2 == 1), {n: draw.uniform(0, 0.2) for n in gains})
            found.append(replace(drawn, effort=draw.randint(1, 2)))
        for k, each in enumerate(found):
            for n in each.levels:
                wider = [*found[:k], with_ends(each, {n: 0.6}), *found[k + 1 :]]
                before, after = (advise(those, Demand(4))[0] for those in (found, wider))
                was, now = ((plan.option.strategy, plan.per_device) for plan in (before, after))
                assert now == was or now != (each.strategy, n)
                moved += now != was
    assert moved > 20, "a wider interval may let another plan go first"


def test_of_an_open_load_without_a_baseline_there_is_no_answer() -> None:
    unknown = [
        replace(each, levels={n: replace(level, gain=None) for n, level in each.levels.items()})
        for each in options({2: 1.3}, is_open=True)
    ]
    answer = answer_question("chat", unknown, Demand(4))
    assert (answer.strategy, answer.headline) == ("", "no answer for 4 tenants without a valid baseline")
    why = "without a valid baseline its latency over that of one alone is not known"
    assert answer.texts("no plan") == [f"No plan with exclusive, time-slicing, mps: {why}."]


def test_the_question_bounds_their_number() -> None:
    assert [each.per_device for each in advise(options({2: 1.3, 4: 1.7}), Demand(2))] == [2, 1, 2]


def test_a_reason_names_what_was_compared() -> None:
    answer = answer_question("chat", options({2: 1.02, 4: 0.7}, is_open=True), Demand(4))
    assert answer.texts("gain") == [
        "Mean latency of one alone over theirs: mps × 1.02 with 2 tenants, time-slicing × 0.900 with 2 tenants."
    ]


def test_more_replicas_may_be_faster_so_their_tail_is_not_that_of_fewer() -> None:
    unknown = option("mps", {2: 1.3, 4: 1.7})
    levels = {2: replace(unknown.levels[2], percentile="p50"), 4: unknown.levels[4]}
    plan = find_plan(replace(unknown, levels=levels), Demand(2, {"latency": 1.0}))
    assert plan.lacks_tail and plan.level is not None and plan.level.tails_of == 0


def test_replicas_that_exceed_the_slo_are_named_with_the_least_number() -> None:
    plan = find_plan(option("mps", {2: 1.3, 4: 1.7}), Demand(4, {"latency": 0.01}))
    assert (plan.devices, plan.reason) == (None, "p99 of 2 tenants is 76.9 ms, more than 10 ms")


def test_one_replica_is_no_other_answer() -> None:
    assert [each.what for each in turning_points(options({2: 1.5, 4: 1.7}), Demand(4))] == ["isolation", "isolation"]
