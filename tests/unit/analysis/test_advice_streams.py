"""Advice on servers that stream: every part of an SLO must hold, and the answer names the one nearest to its limit."""

from dataclasses import replace

import pandas as pd
import pytest
from unit.plans import find_plan

from sharebench.model.strategy import Strategy
from sharebench.read.decide.advice import Demand, Level, Option, advise, first_choice
from sharebench.read.decide.advice_text import advice_rows
from sharebench.read.decide.answers import Answer, answer_question
from sharebench.read.decide.documented import DOCUMENTED, Isolation
from sharebench.read.decide.rows import applying_limits, summary_rows
from sharebench.read.decide.turning import turning_points
from sharebench.read.statistics.intervals import Estimate

NO = Isolation(False, DOCUMENTED, "documented")


def near(value: float) -> Estimate:
    return Estimate(value, 0.99 * value, 1.01 * value, 3)


def server(name: str, ttft: float, tpot: float, percentile: str = "p99") -> Option:
    """A strategy whose times grow in proportion to one, two and four tenants; a request takes a second for each."""
    levels = {
        n: Level(
            replicas=n,
            percentile="p99",
            latency=near(1.0 * n),
            throughput=near(10.0),
            performance=NO,
            stream={"ttft": (percentile, near(ttft * n)), "tpot": (percentile, near(tpot * n))},
            tokens=near(1000.0),
        )
        for n in (1, 2, 4)
    }
    return Option(name, levels, NO, 1)


MPS, SLICING = server("mps", 0.1, 0.01), server("time-slicing", 0.05, 0.02)
SLO = {"ttft": 0.3, "tpot": 0.03}


def asked(tenants: int, **limits: float) -> Demand:
    return Demand(tenants, limits or SLO, price_per_hour=3.6)


def said(answer: Answer) -> list[str]:
    return [reason.text for reason in answer.reasons]


def test_the_part_nearest_to_its_limit_decides() -> None:
    assert find_plan(MPS, asked(4)).devices == 2, "TTFT of four is 400 ms, TPOT 40 ms"
    assert find_plan(MPS, asked(4, ttft=0.5)).devices == 1 and find_plan(SLICING, asked(4, ttft=0.5)).devices == 1
    assert find_plan(MPS, asked(4, tpot=0.05)).devices == 1 and find_plan(SLICING, asked(4, tpot=0.05)).devices == 2
    strict = find_plan(SLICING, asked(2, ttft=0.5, latency=1.5))
    assert strict.reason == "p99 of 2 tenants is 2e+03 ms, more than 1500 ms"
    assert find_plan(SLICING, asked(2)).reason == "TPOT p99 of 2 tenants is 40 ms, more than 30 ms"
    margin = find_plan(MPS, asked(4)).margin_percent(asked(4))
    assert margin is not None and margin.value == pytest.approx(50), "200 of 300 ms, and 20 of 30 ms"


def test_an_unknown_part_of_a_stream_does_not_hold() -> None:
    only = replace(MPS, levels={4: replace(MPS.levels[4], stream={})})
    assert find_plan(only, asked(4)).reason == "4 tenants: TTFT, TPOT not known"
    assert find_plan(only, Demand(4)).devices == 1


def test_stream_parts_of_an_slo_do_not_apply_to_a_loop() -> None:
    seconds = {"latency_p95_seconds": 0.1, "ttft_p99_seconds": 0.1, "n": 3, "replicas": 1, "status": "ok", "reason": ""}
    rows = pd.DataFrame([{"strategy": "mps", "workload": "w"} | seconds])
    limits = {"latency": 1.0, "ttft": 0.3, "tpot": 0.03}
    assert applying_limits(summary_rows(rows), limits) == limits
    assert applying_limits(summary_rows(rows.drop(columns="ttft_p99_seconds")), limits) == {"latency": 1.0}


def test_a_median_of_any_part_goes_after_a_tail() -> None:
    coarse = server("coarse", 0.05, 0.005, "p50")
    assert [each.option.strategy for each in advise([coarse, MPS], asked(2))] == ["mps", "coarse"]
    found = answer_question("chat", [coarse], asked(2))
    assert found.headline.startswith("not known to keep the SLO (only the TTFT p50 and the TPOT p50 are known); ahead")
    assert said(found)[-1].startswith("How sure: only the TTFT p50 and the TPOT p50 are known;")
    [row] = advice_rows("chat", [coarse], asked(2), {"coarse": Strategy(name="coarse", mechanism=("mps",))})
    assert row["verdict"] == "not known: only TTFT p50 and TPOT p50"


def test_the_answer_names_part_tokens_and_turning_points() -> None:
    found = answer_question("chat", [MPS, SLICING], asked(4, ttft=0.45, tpot=0.05))
    assert found.sentence.startswith("chat: take mps on 1 GPU instead of 4: a month $2,592 (720 hours, 10.0/s")
    assert "TTFT p99 400 ms (396 to 404)" in found.sentence and "TPOT p99 40.0 ms (39.6 to 40.4)" in found.sentence
    assert found.sentence.endswith("per GPU 10.0/s, tokens per GPU 1,000/s.") and "mean" not in found.sentence
    changes = found.texts("change")
    assert any(each.startswith("with TTFT below 400 ms it is") for each in changes)
    assert any(each.startswith("with TPOT below 40.0 ms it is") for each in changes)
    assert said(found)[-1] == "How sure: within the SLO with the whole 95 % interval."
    close = answer_question("chat", [MPS, SLICING], asked(4, ttft=0.402, tpot=0.05))
    assert said(close)[-1] == "How sure: the 95 % interval of TTFT p99 reaches beyond the SLO."


def test_turning_points_change_the_part_that_they_name() -> None:
    demand = asked(4, ttft=0.45, tpot=0.05)
    parts = set()
    for point in turning_points([MPS, SLICING], demand):
        assert first_choice(advise([MPS, SLICING], point.demand)) == point.answer
        if point.what.startswith("slo"):
            parts.add(point.part)
            other = {part for part, limit in point.demand.limits.items() if limit != demand.limits[part]}
            assert other == {point.part}
    assert parts == {"ttft", "tpot"}


def test_rows_have_the_slo_that_applies_and_the_price_of_tokens() -> None:
    [row] = advice_rows("chat", [MPS], asked(4, ttft=0.5), {"mps": Strategy(name="mps", mechanism=("mps",))})
    assert (row["slo"], row["slo_ms"], row["percentile"]) == ("TTFT 500 ms", None, "TTFT p99")
    assert row["verdict"] == "meets the SLO by its TTFT p99" and row["latency_ms"] == pytest.approx(400)
    assert row["dollars_per_million_tokens"] == pytest.approx(1.0) and row["output_tokens_per_device_hz"] == 1000
