"""What the cells say of an SLO where the sample is too small for a p95."""

import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from unit.plans import find_plan

from sharebench.read.decide.advice import Demand, Level, Option
from sharebench.read.decide.answers import answer_question
from sharebench.read.decide.capacity import capacity_table
from sharebench.read.decide.documented import ALONE
from sharebench.read.decide.rows import summary_rows, with_longest
from sharebench.read.decide.turning import turning_points
from sharebench.read.statistics.intervals import Estimate

KEY = {"strategy": "mps", "workload": "w", "tenant_workload": "w", "replicas": 2}


def summary(p95: float = math.nan) -> pd.DataFrame:
    times = {"latency_p50_seconds": 0.1, "latency_p95_seconds": p95}
    return pd.DataFrame([KEY | {"status": "ok", "reason": "", "n": 3} | times])


def tenants(**first: Any) -> pd.DataFrame:
    """Three repeats with two tenants each, of 40 and 20 independent iterations; `first` changes the first row."""
    rows = [
        KEY
        | {"device": "d", "repeat": repeat, "valid": True, "errors": 0, "censored": 0}
        | {"latency_max_seconds": 0.1 + repeat / 10, "effective_count": 40 / tenant}
        for repeat in (1, 2, 3)
        for tenant in (1, 2)
    ]
    return pd.DataFrame([rows[0] | first, *rows[1:]])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 0.4),
        ({"latency_max_seconds": 0.5}, 0.5),
        ({"effective_count": 18}, None),
        ({"errors": 1}, None),
        ({"censored": 1}, None),
        ({"errors": math.nan}, None),
        ({"latency_max_seconds": math.nan}, None),
    ],
)
def test_the_longest_latency_bounds_the_p95_where_59_independent_ones_did_not_fail(
    changed: dict[str, Any], expected: float | None
) -> None:
    """Of the tenants of a cell the least effective sample size counts: 3 x 20."""
    [row] = with_longest(summary_rows(summary()), tenants(**changed))
    found = row.percentile("max")
    assert (found and found.value) == expected


def test_cells_that_are_not_valid_or_of_others_do_not_count() -> None:
    rows = tenants(latency_max_seconds=9.0)
    rows["valid"] = rows["repeat"] > 1
    more = rows.assign(repeat=rows["repeat"] + 3)
    [row] = with_longest(summary_rows(summary()), pd.concat([rows, more]))
    assert row.percentile("max") == Estimate(0.4, 0.4, 0.4, 4)
    [row] = with_longest(summary_rows(summary()), tenants().assign(replicas=3))
    assert row.percentile("max") is None


MEDIAN = Level(1, "p50", Estimate(0.1, 0.09, 0.11), Estimate(10, 9, 11), ALONE, longest=Estimate(0.2, 0.2, 0.2))


def exclusive(level: Level) -> Option:
    return Option("exclusive", {1: level}, ALONE, 0, is_sharing=False)


@pytest.mark.parametrize(
    ("limit", "percentile", "is_known"), [(0.2, "max", True), (0.15, "p50", False), (math.inf, "max", True)]
)
def test_a_plan_keeps_the_slo_with_its_longest_latency(limit: float, percentile: str, is_known: bool) -> None:
    found = find_plan(exclusive(MEDIAN), Demand(1, {"latency": limit}))
    assert found.level is not None
    assert (found.level.percentile, found.lacks_tail) == (percentile, not is_known)


def test_a_known_tail_and_a_question_without_an_slo_need_no_longest_latency() -> None:
    for known, demand in ((replace(MEDIAN, percentile="p95"), Demand(1, {"latency": 0.3})), (MEDIAN, Demand(1))):
        found = find_plan(exclusive(known), demand)
        assert found.level == known


def test_the_answer_says_that_every_request_was_within() -> None:
    asked = Demand(1, {"latency": 0.3})
    found = answer_question("w", [exclusive(MEDIAN)], asked)
    assert (found.strategy, found.undecided) == ("exclusive", "")
    assert found.plans[0].verdict == "meets the SLO by its max" and ("max", "200 ms", "") in found.facts
    assert found.texts("certainty") == ["How sure: within the SLO with every request that was measured."]
    [point] = turning_points([exclusive(MEDIAN)], asked)
    assert point.answer is None and point.demand.limits["latency"] == pytest.approx(0.2)


TOO_LONG = replace(MEDIAN, longest=None, p95_at_least=Estimate(0.2))


def test_a_p95_that_is_surely_too_long_exceeds_the_slo() -> None:
    found = find_plan(exclusive(TOO_LONG), Demand(1, {"latency": 0.15}))
    assert found.devices is None and found.reason == "lower end of the p95 of 1 tenant is 200 ms, more than 150 ms"
    for limit in (0.2, 0.3):
        found = find_plan(exclusive(TOO_LONG), Demand(1, {"latency": limit}))
        assert found.devices and found.lacks_tail, "it may be shorter or longer"


def test_with_such_a_p95_the_capacity_has_an_end() -> None:
    rows = summary_rows(summary().assign(latency_p95_at_least_seconds=0.3))
    [row] = capacity_table(rows, lambda _: {"latency": 0.2}, ["w"]).to_dict("records")
    assert (row["capacity_tenants"], row["bound"], row["percentile"]) == (0, "none", "lower end of the p95")


def test_the_capacity_counts_it_too() -> None:
    for longest, expected in ((0.2, 2), (0.3, None)):
        rows = with_longest(summary_rows(summary()), tenants().assign(latency_max_seconds=longest))
        [row] = capacity_table(rows, lambda _: {"latency": 0.2}, ["w"]).to_dict("records")
        assert (None if pd.isna(row["capacity_tenants"]) else row["capacity_tenants"]) == expected
        assert row["percentile"] == ("max" if expected else "p50")
