"""Advice on replicas of one server, which carry one load together."""

from dataclasses import replace

import pytest

from sharebench.read.decide.advice import Demand, Level, Option, advise, find_plan, turning_points
from sharebench.read.decide.answers import answer_question
from sharebench.read.decide.documented import DOCUMENTED, Isolation
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
            gain=gain,
        )
        for n, gain in gains.items()
    }
    is_sharing = name != "exclusive"
    return Option(name, levels, NO, 2 * is_sharing, is_sharing=is_sharing, has_one_load=True)


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
