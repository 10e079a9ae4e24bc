"""The options of the advice: measured levels, infeasible numbers of tenants, and fault isolation."""

import math
from typing import Any

import pandas as pd
import pytest

from sharebench.model.strategy import MECHANISMS, Strategy
from sharebench.read.decide import documented, elsewhere
from sharebench.read.decide.device import DeviceLimits, device_limits
from sharebench.read.decide.options import strategy_options
from sharebench.read.decide.rows import summary_rows
from sharebench.read.statistics.intervals import Estimate

A100 = DeviceLimits("nvidia", 7)


def strategy(name: str, *mechanisms: str, **more: Any) -> Strategy:
    return Strategy.model_construct(name=name, mechanism=mechanisms or (name,), **more)


MIG_MPS = strategy("mig-mps", "mig", "mps", profile="3g", instances=2)
NOTHING = elsewhere.Known({}, {}, {})
REFUSED = "the device plugin refuses MPS on MIG instances"


def row(replicas: int, status: str) -> dict[str, object]:
    named = {"strategy": "mig-mps", "workload": "w", "replicas": replicas, "tenants_that_fit": None}
    is_ok = status == "ok"
    values = {"latency_mean_seconds": 0.01 if is_ok else float("nan"), "throughput_total_hz": 100.0}
    spans = {f"{name}{end}": float("nan") for name in values for end in ("_low", "_high")}
    return named | values | spans | {"n": int(is_ok), "status": status, "reason": "" if is_ok else REFUSED}


def infeasible(*measured: tuple[int, str]) -> dict[int, str]:
    summary = pd.DataFrame([row(*each) for each in measured])
    (option,) = strategy_options("w", summary_rows(summary), {"mig-mps": MIG_MPS}, A100, NOTHING)
    return {n: reason for n, reason in option.infeasible.items() if reason == REFUSED}


@pytest.mark.parametrize("is_open_load", [True, False])
def test_latency_decides_under_an_open_load(is_open_load: bool) -> None:
    mean = {"latency_mean_seconds_low": 0.008, "latency_mean_seconds_high": 0.0125}
    unknown = {f"latency_{name}_seconds": float("nan") for name in ("p99", "p95", "p50")}
    counts = {"latency_mean_seconds_n": 1, "throughput_total_hz_n": 1}
    summary = pd.DataFrame([row(2, "ok") | mean | unknown | counts])
    (option,) = strategy_options("w", summary_rows(summary), {"mig-mps": MIG_MPS}, A100, NOTHING, is_open_load)
    merit = option.levels[2].merit
    assert merit is not None
    assert (merit.value, merit.low, merit.high) == ((100, 80, 125) if is_open_load else (50, None, None))
    assert (option.levels[2].inverse_latency is not None) == is_open_load


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        # what is refused to one tenant and to four is refused to two
        (((1, "infeasible"), (4, "infeasible")), {1, 2, 3, 4}),
        # too many for the node: fewer may do
        (((4, "infeasible"),), {4}),
        (((1, "infeasible"), (4, "failed")), {1, 4}),
        (((1, "not-measured"), (4, "not-measured")), {1, 2, 3, 4}),
    ],
)
def test_numbers_between_two_infeasible_ones_are_infeasible(
    measured: tuple[tuple[int, str], ...], expected: set[int]
) -> None:
    assert set(infeasible(*measured)) == expected


@pytest.mark.parametrize(
    ("asked", "replicas", "node", "units", "why"),
    [
        (strategy("exclusive", replicas=(1,)), 2, {"kind": "nvidia", "product": "NVIDIA H200"}, 132, "one tenant"),
        (strategy("mps", thread_percent=(60, 20)), 3, {"kind": "nvidia", "product": "NVIDIA H200"}, 132, "another"),
        (strategy("mps"), 49, {"kind": "nvidia", "product": "NVIDIA H200"}, 132, "48 MPS clients"),
        (strategy("mps"), 49, {"kind": "cpu", "product": "a CPU"}, 4, None),
        (strategy("mig", profile="1g"), 7, {"kind": "kubernetes", "product": "NVIDIA A100"}, None, None),
        (strategy("mig", profile="1g"), 8, {"kind": "kubernetes", "product": "NVIDIA A100"}, None, "7 MIG slices"),
        (strategy("mig", profile="1g"), 5, {"kind": "nvidia", "product": "NVIDIA A30"}, 56, "4 MIG slices"),
        (strategy("mig", profile="1g"), 8, {"kind": "cpu", "product": "a CPU"}, 4, "4 MIG slices"),
        (strategy("mig", profiles=("3g", "2g", "1g")), 4, {"kind": "nvidia", "product": "NVIDIA A100"}, 108, "3"),
    ],
)
def test_a_device_without_room_has_a_reason(
    asked: Strategy, replicas: int, node: Any, units: int | None, why: str | None
) -> None:
    found = device_limits(node, {}, units).infeasible(asked, replicas)  # type: ignore[typeddict-item]
    assert found is None if why is None else why in str(found)


def test_surviving_a_device_fault_proves_isolation() -> None:
    isolation = pd.DataFrame(
        [
            {"strategy": "mps", "fault": "oom", "n": 3, "failed": 0},
            {"strategy": "mps", "fault": "illegal-address", "n": 3, "failed": 2},
            {"strategy": "time-slicing", "fault": "assert", "n": 3, "failed": 0},
            {"strategy": "streams", "fault": "killed", "n": 3, "failed": 0},
            {"strategy": "mig", "fault": "oom", "n": 0, "failed": 0},
        ]
    )
    faults = elsewhere.measured_faults({"": isolation})
    assert {name: each.holds for name, each in faults.items()} == {"mps": False, "time-slicing": True}
    assert faults["mps"].text == "2 of 3 neighbours died after illegal-address"
    assert elsewhere.measured_faults({}) == {}


@pytest.mark.parametrize(
    ("is_open_load", "one_load", "gain"), [(False, False, 4), (False, True, 1.2), (True, True, 2.5)]
)
def test_replicas_gain_by_requests_or_by_latency(is_open_load: bool, one_load: bool, gain: float) -> None:
    # Each of four has a quarter of the load of one alone: even as fast as it, they would have an stp of 4.
    four = row(4, "ok") | {"strategy": "mps", "stp": 4.0, "slowdown": 0.4}
    over_one = {("mps", "w", 4): Estimate(1.2)}
    (mps,) = strategy_options(
        "w",
        summary_rows(pd.DataFrame([four])),
        {"mps": strategy("mps")},
        A100,
        NOTHING,
        is_open_load,
        one_load=one_load,
        over_one=over_one,
    )
    found = mps.levels[4].gain
    assert found is not None and found.value == pytest.approx(gain) and mps.has_one_load == one_load


def test_replicas_under_an_open_load_have_no_gain_by_requests() -> None:
    alone = row(1, "ok") | {"strategy": "exclusive", "throughput_total_hz": 10.0, "slowdown": math.nan}
    four = alone | {"strategy": "mps", "replicas": 4}
    strategies = {name: strategy(name) for name in ("exclusive", "mps")}
    summary = summary_rows(pd.DataFrame([alone, four]))
    over_one = {(name, "w", n): Estimate(1.0) for name, n in (("exclusive", 1), ("mps", 4))}
    found = strategy_options("w", summary, strategies, A100, NOTHING, True, one_load=True, over_one=over_one)
    assert [level.gain for each in found for level in each.levels.values()] == [None, None]


@pytest.mark.parametrize(("one_load", "holds"), [(False, True), (True, False)])
def test_replicas_that_are_faster_with_less_load_each_are_not_thereby_isolated(one_load: bool, holds: bool) -> None:
    rows = [row(n, "ok") | {"strategy": "mps", "latency_mean_seconds": 0.04 / n} for n in (1, 4)]
    summary = summary_rows(pd.DataFrame(rows))
    (mps,) = strategy_options("w", summary, {"mps": strategy("mps")}, A100, NOTHING, True, one_load=one_load)
    assert mps.levels[4].performance.holds == holds


def test_every_mechanism_that_shares_has_its_effort() -> None:
    assert {kind[0] for kind in documented.EFFORTS} == {*MECHANISMS} - {"sequential"}, "a queue shares nothing"
