"""Capacity within an SLO: against numpy's interpolation, scipy's t, and planted scaling."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sharebench.analysis.decide.capacity import capacity, capacity_table
from sharebench.analysis.decide.rows import metric_draws, summary_rows
from sharebench.analysis.statistics.intervals import log_interval

SIZES = (1, 3, 5, 7)


@pytest.mark.parametrize("slo_seconds", [0.1, 0.15, 0.2, 0.333, 0.5, 0.7])
def test_between_measured_numbers_it_is_linear_on_log_scales(slo_seconds: float) -> None:
    seconds = [0.1, 0.2, 0.5, 0.7001]
    expected = math.exp(np.interp(math.log(slo_seconds), np.log(seconds), np.log(SIZES)))
    assert capacity(SIZES, seconds, slo_seconds) == pytest.approx(expected)


def test_time_slicing_is_interpolated_exactly() -> None:
    """N times s is a line on log scales."""
    assert capacity(SIZES, [0.09 * n for n in SIZES], 0.4) == pytest.approx(0.4 / 0.09)


def test_ends() -> None:
    assert capacity(SIZES, [0.1] * 4, 0.05) == 0
    assert math.isinf(capacity(SIZES, [0.1] * 4, 0.1))
    # What comes after a number that exceeds the SLO does not count.
    assert 1 < capacity(SIZES, [0.1, 0.3, 0.1, 0.1], 0.2) < 3


def test_draws_have_the_interval_that_they_come_from() -> None:
    values = [0.10, 0.11, 0.105, 0.098]
    estimate = log_interval(values)
    draws = metric_draws(estimate, np.random.default_rng(1), 40_000)
    assert draws is not None
    assert np.quantile(draws, [0.025, 0.5, 0.975]) == pytest.approx(
        [estimate.low, estimate.value, estimate.high], rel=2e-3
    )
    # Student's over the logs of the repeats, tails included.
    error = np.log(values).std(ddof=1) / math.sqrt(len(values))
    standard = np.log(draws / estimate.value) / error
    assert stats.kstest(standard, stats.t(len(values) - 1).cdf).pvalue > 1e-4
    for low in (None, 0.0):
        assert metric_draws(replace(estimate, low=low), np.random.default_rng(1)) is None


def test_draws_of_repeats_that_share_devices_are_of_the_devices() -> None:
    values, devices = [0.1, 0.10001, 0.1001, 0.10011], ["a", "a", "b", "b"]
    interval = log_interval(values, devices)
    name = "throughput_total_hz"
    table = pd.DataFrame([row("mps", 2, 0.1) | interval.columns(name) | {f"{name}_n": len(values)}])
    [read] = summary_rows(table, {("mps", "matmul", 2): 2})
    draws = metric_draws(read.metrics[name], np.random.default_rng(1), 40_000)
    assert draws is not None and interval.log_variance is not None
    standard = np.log(draws / interval.value) / math.sqrt(interval.log_variance)
    assert stats.kstest(standard, stats.t(1).cdf).pvalue > 1e-4


def row(strategy: str, replicas: int, seconds: float, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"strategy": strategy, "workload": "matmul", "replicas": replicas, "n": 5}
    found |= {"status": "ok", "reason": ""}
    for name in ("p99", "p95", "p50", "mean"):
        metric = f"latency_{name}_seconds"
        found |= {metric: seconds, f"{metric}_low": 0.98 * seconds, f"{metric}_high": seconds / 0.98, f"{metric}_n": 5}
    return found | {"memory_per_tenant_mib": 600.0 + replicas, "tenants_that_fit": 40 - replicas} | more


CELLS = pd.DataFrame([{"strategy": "mps", "workload": "matmul", "server_memory_mib": 66.0}])


def test_rows() -> None:
    rows = [row("mps", n, 0.05 + 0.04 * n) for n in SIZES]
    rows += [row("mig", 1, 0.3), row("mig", 9, math.nan, n=0, status="infeasible")]
    rows += [row("time-slicing", 1, 0.1), row("time-slicing", 3, 0.3, latency_p99_seconds=math.nan)]
    table = capacity_table(summary_rows(pd.DataFrame(rows)), CELLS, {"latency": 0.2}, ["matmul"]).set_index("strategy")
    mps = table.loc["mps"]
    assert mps["capacity_tenants"] == 3 and 3.5 < mps["capacity_interpolated"] < 3.8
    assert mps["capacity_interpolated_low"] < mps["capacity_interpolated"] < mps["capacity_interpolated_high"]
    # 2 % of the latency are 2 % over the slope (by logs) of the capacity.
    slope = math.log(0.25 / 0.17) / math.log(5 / 3)
    width = math.log(mps["capacity_interpolated_high"] / mps["capacity_interpolated_low"])
    assert width == pytest.approx(2 * 0.02 / slope, rel=0.35)
    assert (mps["percentile"], mps["max_tenants_by_memory"], mps["memory_per_tenant_mib"]) == ("p99", 33, 607)
    assert mps["memory_overhead_mib"] == 66
    assert table.loc["mig", "capacity_tenants"] == 0 and table.loc["mig", "bound"] == "none"
    assert table.loc["time-slicing", "percentile"] == "p95", "the p99 of three tenants is blank"


def test_what_never_exceeds_the_slo_has_at_least_that() -> None:
    rows = [row("mig", n, 0.1) for n in SIZES] + [row("mig", 8, math.nan, n=0, status="infeasible")]
    [found] = capacity_table(summary_rows(pd.DataFrame(rows)), CELLS, {"latency": 0.2}, ["matmul"]).to_dict("records")
    assert (found["capacity_tenants"], found["bound"], found["reason"]) == (7, "at least", "8 tenants: infeasible")


def test_tenants_that_ran_but_could_not_be_judged_have_a_reason() -> None:
    growing = "queue_growth: tenant 0: requests came 60% faster than they were served"
    rows = [row("mps", 2, 0.1), row("mps", 4, math.nan, n=0, reason=growing)]
    [found] = capacity_table(summary_rows(pd.DataFrame(rows)), CELLS, {"latency": 0.2}, ["matmul"]).to_dict("records")
    assert (found["capacity_tenants"], found["bound"], found["reason"]) == (2, "at least", f"4 tenants: {growing}")


def test_without_an_slo_memory_is_left() -> None:
    [found] = capacity_table(summary_rows(pd.DataFrame([row("mps", 2, 0.1)])), CELLS, {}, ["matmul"]).to_dict("records")
    assert pd.isna(found["capacity_tenants"]) and found["max_tenants_by_memory"] == 38
    assert found["reason"] == "no SLO is set (slo)"


def streaming(workload: str, replicas: int, ttft: float, tpot: float, hz: float = 10.0) -> dict[str, Any]:
    """A row of a server that streams ten tokens a request."""
    made = row("mps", replicas, 1.0, workload=workload) | {"throughput_total_hz": hz, "output_tokens_total_hz": 10 * hz}
    for metric, seconds in ((f"{part}_p99_seconds", own) for part, own in (("ttft", ttft), ("tpot", tpot))):
        made |= {metric: seconds, f"{metric}_low": 0.98 * seconds, f"{metric}_high": 1.02 * seconds}
    return made


SLO = {"ttft": 0.5, "tpot": 0.05}


def test_every_part_that_applies_must_hold_by_its_own_percentile() -> None:
    rows = [streaming("chat", n, ttft=0.1 * n, tpot=0.02 * n, hz=9.0 - n) for n in (1, 2, 4)]
    [found] = capacity_table(
        summary_rows(pd.DataFrame(rows)), CELLS, SLO, ["chat"], studies=("streams", "slo")
    ).to_dict("records")
    # TTFT would allow all four.
    assert (found["capacity_tenants"], found["capacity_interpolated"]) == (2, pytest.approx(2.5))
    assert found["capacity_interpolated_low"] < 2.5 < found["capacity_interpolated_high"]
    assert (found["percentile"], found["slo"]) == ("TTFT p99, TPOT p99", "TTFT 500 ms, TPOT 50 ms")
    assert (found["capacity_hz"], found["capacity_tokens_hz"]) == (7.0, 70.0) and pd.isna(found["slo_ms"])


def test_the_best_level_of_a_sweep_serves_most_within_the_slo() -> None:
    levels = {"chat-1": (0.1, 5.0), "chat-4": (0.3, 15.0), "chat-16": (0.9, 40.0)}
    rows = [streaming(name, n, ttft * n, 0.01, hz * n) for name, (ttft, hz) in levels.items() for n in (1, 2)]
    sweeps = dict.fromkeys(levels, "chat")
    table = capacity_table(
        summary_rows(pd.DataFrame(rows)), CELLS, SLO, list(levels), sweeps, ("streams", "slo")
    ).set_index("workload")
    assert table["capacity_tenants"].tolist() == [2, 1, 0]
    assert table["best_of_sweep"].tolist() == [False, True, False], "150 tokens a second for one against 100 for two"


def test_one_level_alone_is_the_best_of_no_sweep() -> None:
    rows = summary_rows(pd.DataFrame([streaming("chat-4", n, 0.1, 0.01) for n in (1, 2)]))
    asked = {"chat-4": "chat"}, ("streams", "slo")
    [found] = capacity_table(rows, CELLS, SLO, ["chat-4"], *asked).to_dict("records")
    assert found["capacity_tenants"] == 2 and not found["best_of_sweep"]


def test_a_part_that_a_workload_does_not_have_asks_nothing_of_it() -> None:
    table = summary_rows(pd.DataFrame([row("mps", n, 0.1 * n) for n in (1, 2)]))
    [found] = capacity_table(table, CELLS, {"latency": 0.15, "ttft": 0.01}, ["matmul"]).to_dict("records")
    assert (found["capacity_tenants"], found["percentile"]) == (1, "p99")
    [found] = capacity_table(table, CELLS, {"ttft": 0.01}, ["matmul"]).to_dict("records")
    assert pd.isna(found["capacity_tenants"]) and found["reason"] == "no part of the SLO applies to it"


def test_a_part_that_is_not_known_everywhere_has_no_capacity() -> None:
    rows = [streaming("chat", 1, 0.1, 0.01), row("mps", 2, 1.0, workload="chat")]
    [found] = capacity_table(summary_rows(pd.DataFrame(rows)), CELLS, SLO, ["chat"]).to_dict("records")
    assert found["reason"] == "TTFT, TPOT: not known with every number of tenants"
