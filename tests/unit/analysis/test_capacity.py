"""Capacity within an SLO, from planted scaling."""

import math
from typing import Any

import pandas as pd
import pytest
from unit.plans import find_plan

from sharebench.read.decide.advice import Demand, Option
from sharebench.read.decide.capacity import capacity_table
from sharebench.read.decide.documented import ALONE
from sharebench.read.decide.options import measured_level
from sharebench.read.decide.rows import summary_rows

SIZES = (1, 3, 5, 7)


def row(strategy: str, replicas: int, seconds: float, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"strategy": strategy, "workload": "matmul", "replicas": replicas, "n": 5}
    found |= {"status": "ok", "reason": ""}
    for name in ("p99", "p95", "p50", "mean"):
        metric = f"latency_{name}_seconds"
        found |= {metric: seconds, f"{metric}_low": 0.98 * seconds, f"{metric}_high": seconds / 0.98, f"{metric}_n": 5}
    return found | {"tenants_that_fit": 40 - replicas} | more


def table(rows: list[dict[str, Any]], limits: dict[str, float], *workloads: str, **more: Any) -> list[dict[str, Any]]:
    made = capacity_table(summary_rows(pd.DataFrame(rows)), lambda _: limits, workloads or ("matmul",), **more)
    return [{str(column): value for column, value in row.items()} for row in made.to_dict("records")]


def test_rows() -> None:
    rows = [row("mps", n, 0.05 + 0.04 * n) for n in SIZES]
    # Numbers of tenants beyond the first that exceeds the SLO do not count.
    rows += [row("streams", n, seconds) for n, seconds in zip(SIZES, (0.1, 0.3, 0.1, 0.1), strict=True)]
    rows += [row("mig", 1, 0.3), row("mig", 9, math.nan, n=0, status="infeasible")]
    no_tail = {"latency_p95_seconds": math.nan, "latency_p99_seconds": math.nan}
    rows += [row("time-slicing", 1, 0.1), row("time-slicing", 3, 0.2, **no_tail)]
    mps, streams, mig, sliced = table(rows, {"latency": 0.2})
    assert [each["capacity_tenants"] for each in (mps, streams, mig, sliced)] == [3, 1, 0, 1], "at the SLO is within it"
    assert (mps["percentile"], mps["max_tenants_by_memory"], mps["bound"]) == ("p95", 33, "")
    assert (mig["bound"], mig["reason"]) == ("none", "1 tenant exceeds it already")
    assert (sliced["percentile"], sliced["bound"]) == ("p95", "at least")
    assert sliced["reason"] == "3 tenants: only the p50 is known", "not known to keep the SLO, as the advice says"


NO_TAIL = {f"latency_{name}_seconds": math.nan for name in ("p95", "p99")}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, 0.1, NO_TAIL), (3, 0.15, {})], (3, "at least", "")),
        ([(1, 0.1, {}), (3, 0.15, NO_TAIL), (5, 0.3, {})], (1, "at least", "3 tenants: only the p50 is known")),
        ([(1, 0.1, NO_TAIL), (3, 0.3, {})], (None, "", "1 tenant: only the p50 is known")),
        ([(1, 0.3, NO_TAIL)], (0, "none", "1 tenant exceeds it already")),
        ([(1, 0.1, {}), (3, 0.1, {"n": 0, "status": "failed"}), (5, 0.3, {})], (1, "at least", "3 tenants: failed")),
    ],
)
def test_a_number_of_tenants_of_which_no_tail_is_known_does_not_count(
    rows: list[tuple[int, float, dict[str, Any]]], expected: tuple[int | None, str, str]
) -> None:
    measured = [row("mps", replicas, seconds, **more) for replicas, seconds, more in rows]
    [found] = table(measured, {"latency": 0.2})
    tenants = None if pd.isna(found["capacity_tenants"]) else found["capacity_tenants"]
    assert (tenants, found["bound"], "" if pd.isna(found["reason"]) else found["reason"]) == expected
    levels = {each.replicas: made for each in summary_rows(pd.DataFrame(measured)) if (made := measured_level(each))}
    plans = {n: find_plan(Option("mps", levels, ALONE, 1), Demand(n, {"latency": 0.2})) for n in (2, 3, 5)}
    served = [n for n, plan in plans.items() if plan.devices == 1 and not plan.lacks_tail]
    assert max(served, default=0) == (tenants if tenants and tenants > 1 else 0), "the advice counts the same"


def test_tenants_that_never_exceed_the_slo_are_a_lower_bound() -> None:
    rows = [row("mig", n, 0.1) for n in SIZES] + [row("mig", 8, math.nan, n=0, status="infeasible")]
    [found] = table(rows, {"latency": 0.2})
    assert (found["capacity_tenants"], found["bound"], found["reason"]) == (7, "at least", "8 tenants: infeasible")


def test_tenants_that_ran_but_could_not_be_judged_have_a_reason() -> None:
    growing = "queue_growth: tenant 0: requests came 60% faster than they were served"
    rows = [row("mps", 2, 0.1), row("mps", 4, math.nan, n=0, reason=growing)]
    [found] = table(rows, {"latency": 0.2})
    assert (found["capacity_tenants"], found["bound"], found["reason"]) == (2, "at least", f"4 tenants: {growing}")


def test_without_an_slo_only_memory_limits_tenants() -> None:
    [found] = table([row("mps", 2, 0.1)], {})
    assert pd.isna(found["capacity_tenants"]) and found["max_tenants_by_memory"] == 38
    assert found["reason"] == "no SLO is set (slo)"


def streaming(workload: str, replicas: int, ttft: float, tpot: float, hz: float = 10.0) -> dict[str, Any]:
    """A row of a server that streams ten tokens a request."""
    made = row("mps", replicas, 1.0, workload=workload) | {"throughput_total_hz": hz, "output_tokens_total_hz": 10 * hz}
    for metric, seconds in ((f"{part}_p99_seconds", own) for part, own in (("ttft", ttft), ("tpot", tpot))):
        made |= {metric: seconds, f"{metric}_low": 0.98 * seconds, f"{metric}_high": 1.02 * seconds}
    return made


SLO = {"ttft": 0.5, "tpot": 0.05}


def test_every_applicable_part_must_hold_by_its_own_percentile() -> None:
    rows = [streaming("chat", n, ttft=0.1 * n, tpot=0.02 * n, hz=9.0 - n) for n in (1, 2, 4)]
    [found] = table(rows, SLO, "chat", studies=("streams", "slo"))
    assert found["capacity_tenants"] == 2, "TTFT would allow all four"
    assert (found["percentile"], found["slo"]) == ("TTFT p99, TPOT p99", "TTFT 500 ms, TPOT 50 ms")
    assert (found["capacity_hz"], found["capacity_tokens_hz"]) == (7.0, 70.0) and pd.isna(found["slo_ms"])


def test_a_part_that_does_not_apply_is_ignored() -> None:
    rows = [row("mps", n, 0.1 * n) for n in (1, 2)]
    [found] = table(rows, {"latency": 0.15, "ttft": 0.01})
    assert (found["capacity_tenants"], found["percentile"]) == (1, "p95")
    [found] = table(rows, {"ttft": 0.01})
    assert pd.isna(found["capacity_tenants"]) and found["reason"] == "no part of the SLO applies to it"


def test_a_number_of_tenants_of_which_a_part_is_not_known_does_not_count() -> None:
    rows = [streaming("chat", 1, 0.1, 0.01), row("mps", 2, 1.0, workload="chat")]
    [found] = table(rows, SLO, "chat")
    assert (found["capacity_tenants"], found["reason"]) == (1, "2 tenants: TTFT, TPOT not known")


def swept(*times: float, hz: tuple[float, ...] = (10.0, 20.0, 30.0)) -> list[dict[str, Any]]:
    """A server with two tenants, whose TTFT grows over a sweep of loads."""
    return [
        streaming(f"chat-{n}", 2, ttft, 0.01, rate)
        | {f"throughput_total_hz{end}": factor * rate for end, factor in (("_low", 0.9), ("_high", 1.1))}
        for n, (ttft, rate) in enumerate(zip(times, hz, strict=False))
    ]


SWEEPS = {"chat-0": "chat", "chat-1": "chat", "chat-2": "chat"}


def test_the_highest_rate_within_the_slo_lies_between_two_loads() -> None:
    rows = table(swept(0.1, 0.25, 1.0), SLO, *SWEEPS, sweeps=SWEEPS, studies=("streams", "slo"))
    assert [each["best_of_sweep"] for each in rows] == [False, True, False]
    # 0.5 is half-way from 0.25 to 1 on a log scale, so the rate half-way from 20 to 30.
    best = rows[1]
    assert best["rate_within_slo_hz"] == pytest.approx(25) and best["tokens_within_slo_hz"] == pytest.approx(250)
    up, down = math.log(1.02) / math.log(4), math.log(0.98) / math.log(4)
    assert best["rate_within_slo_hz_low"] == pytest.approx(0.9 * (20 + 10 * (0.5 - up)))
    assert best["rate_within_slo_hz_high"] == pytest.approx(1.1 * (20 + 10 * (0.5 - down)))
    assert pd.isna(best["tokens_within_slo_hz_low"]), "the rows have no interval of the tokens"
    assert all(pd.isna(each["rate_within_slo_hz"]) for each in (rows[0], rows[2]))


@pytest.mark.parametrize(
    ("times", "has"),
    [
        ((0.1, 0.2, 0.3), (False, False, False)),
        ((0.1, 0.2), (False, False, False)),
        # The lower load is not surely within, the higher one not surely beyond.
        ((0.1, 0.495, 1.0), (True, False, True)),
        ((0.1, 0.3, 0.505), (True, True, False)),
    ],
)
def test_a_rate_needs_loads_on_both_sides_of_the_slo(times: tuple[float, ...], has: tuple[bool, ...]) -> None:
    names = [*SWEEPS][: len(times)]
    rows = table(swept(*times), SLO, *names, sweeps=SWEEPS, studies=("streams", "slo"))
    [best] = [each for each in rows if each["best_of_sweep"]]
    assert tuple(not pd.isna(best[f"rate_within_slo_hz{end}"]) for end in ("", "_low", "_high")) == has


def test_a_median_and_a_tail_are_not_two_points_of_one_curve() -> None:
    rows = swept(0.1, 0.25, 1.0)
    rows[2] |= {"ttft_p99_seconds": math.nan, "ttft_p50_seconds": 1.0}
    [best] = [each for each in table(rows, SLO, *SWEEPS, sweeps=SWEEPS, studies=("slo",)) if each["best_of_sweep"]]
    assert pd.isna(best["rate_within_slo_hz"])


def test_a_part_that_is_not_known_of_the_heavier_load_may_reach_its_limit_first() -> None:
    rows = swept(0.1, 0.25, 1.0)
    rows[2] |= {"tpot_p99_seconds": math.nan, "tpot_p50_seconds": 0.01}
    [best] = [each for each in table(rows, SLO, *SWEEPS, sweeps=SWEEPS, studies=("slo",)) if each["best_of_sweep"]]
    assert pd.isna(best["rate_within_slo_hz"])


def test_an_overloaded_server_that_serves_less_gives_no_rate() -> None:
    rows = table(swept(0.1, 0.25, 1.0, hz=(10.0, 20.0, 15.0)), SLO, *SWEEPS, sweeps=SWEEPS, studies=("streams", "slo"))
    [best] = [each for each in rows if each["best_of_sweep"]]
    assert best["capacity_hz"] == 20
    assert pd.isna(best["rate_within_slo_hz"]) and pd.isna(best["tokens_within_slo_hz"])
