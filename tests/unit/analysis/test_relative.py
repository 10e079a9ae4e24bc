"""Advice on what runs together is for a measured number of tenants, and names what of the question did not enter."""

from collections.abc import Mapping

import pytest

from sharebench.model.strategy import Strategy
from sharebench.read.decide.advice import Demand, Level, Option
from sharebench.read.decide.answers import Answer
from sharebench.read.decide.documented import UNKNOWN, Isolation
from sharebench.read.decide.relative import mix_answer
from sharebench.read.decide.rows import SLOWDOWN, STP, SummaryRow
from sharebench.read.statistics.intervals import Estimate

STRATEGIES = {name: Strategy(name=name, mechanism=(name,)) for name in ("mps", "streams", "time-slicing")}
WORK = {("mps", 3): 2.5, ("mps", 6): 3.5, ("time-slicing", 3): 1.5, ("time-slicing", 6): 2.0}
FAULT = Isolation(None, UNKNOWN, "")


def summary(work: Mapping[tuple[str, int], float] = WORK) -> list[SummaryRow]:
    return [
        SummaryRow(
            strategy,
            "lab",
            tenant,
            replicas,
            "ok",
            "",
            3,
            0,
            None,
            {
                STP: Estimate(work, 0.99 * work, 1.01 * work, 3),
                SLOWDOWN: Estimate(replicas / work, replicas / work, replicas / work, 3),
            },
        )
        for (strategy, replicas), work in work.items()
        for tenant in ("front", "back", "training")
    ]


def option(strategy: Strategy, levels: Mapping[int, Level]) -> Option:
    return Option(strategy.name, levels, FAULT, 0)


def answered(demand: Demand, rows: list[SummaryRow] | None = None) -> Answer:
    found = mix_answer("lab", rows or summary(), STRATEGIES, option, demand, is_gpu=True)
    assert found is not None
    return found


@pytest.mark.parametrize(("asked", "size"), [(2, 3), (3, 3), (5, 3), (6, 6), (7, 6)])
def test_a_mix_is_judged_with_one_measured_number_of_tenants(asked: int, size: int) -> None:
    answer = answered(Demand(asked))
    assert (answer.strategy, answer.devices) == ("mps", 1)
    assert {each.per_device for each in answer.plans if each.strategy != "exclusive"} == {size}
    facts = {fact.name: fact.value for fact in answer.facts}
    assert facts["work per GPU"] == f"× {WORK['mps', size]:.2f}"
    assert len([name for name in facts if name.startswith("latency of ")]) == 3
    said = [text for text in answer.texts("scope") if "measured together" in text]
    assert said == ([] if asked == size else [f"For {size} tenants, as measured together, not for {asked}."])


def test_an_slo_and_a_price_that_do_not_enter_are_named() -> None:
    texts = answered(Demand(3, limits={"latency": 0.001}, price_per_hour=4.0)).texts("scope")
    assert any(text.startswith("The SLO and the price did not enter") for text in texts)
    assert not any("did not enter" in text for text in answered(Demand(3)).texts("scope"))


@pytest.mark.parametrize(("left_out", "named"), [(("mps",), "mps has"), (("streams", "mps"), "mps, streams have")])
def test_a_strategy_without_a_valid_cell_of_that_number_is_named(left_out: tuple[str, ...], named: str) -> None:
    failed = {**{(name, 3): 2.5 for name in left_out}, ("time-slicing", 6): 1.0}
    answer = answered(Demand(6), summary(failed))
    assert answer.strategy == "" or answer.undecided
    said = f"{named} no valid cell with 6 tenants, but with other numbers"
    assert said in answer.undecided and f"{said}." in answer.texts("scope")
    assert answered(Demand(6), summary(failed | {("time-slicing", 6): 2.0})).strategy == "time-slicing"
