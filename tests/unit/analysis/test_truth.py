"""The truth test: intervals of studies drawn from planted parameters have their nominal coverage.

`benchmarks/truth.py` does it with thousands of studies; here are so few that it takes seconds, with bounds that follow
from their number.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from sharebench.model.workload import Model

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import truth

pytestmark = pytest.mark.thorough
STUDIES = 120
FAILS_BY_CHANCE = 0.001
"""How often a correct program may fail all of these tests together."""
Found = Counter[tuple[str, str, bool]]


@pytest.fixture(scope="module")
def intervals() -> list[truth.Interval]:
    """All intervals of all studies."""
    studies = map(truth.planted, range(STUDIES))
    return [each for study in studies for each in truth.intervals(study, truth.simulate(study, truth.POINTS, 5))]


@pytest.fixture(scope="module")
def found(intervals: list[truth.Interval]) -> Found:
    """Hits and misses by quantity and point."""
    return count(intervals)


def count(intervals: Iterable[truth.Interval]) -> Found:
    return Counter((each.quantity, each.point, each.covers) for each in intervals)


def bounds(count: int, share: float, tests: int) -> tuple[int, int]:
    """Bounds of a number of successes, exceeded with its share of FAILS_BY_CHANCE among this number of tests."""
    tail = FAILS_BY_CHANCE / tests / 2
    return int(stats.binom.ppf(tail, count, share)), int(stats.binom.ppf(1 - tail, count, share))


def quantities(found: Found) -> set[tuple[str, str]]:
    return {(quantity, point) for quantity, point, _ in found}


def test_every_interval_has_its_nominal_coverage(found: Found) -> None:
    kinds = quantities(found)
    assert len(kinds) >= 20
    low, high = bounds(STUDIES, 0.95, len(kinds) + 2)
    # Intervals that share a baseline are dependent; only those of one point in different studies count together.
    for quantity, point in kinds:
        hits = found[quantity, point, True]
        assert hits + found[quantity, point, False] == STUDIES
        assert low <= hits <= high, (quantity, point)


def test_intervals_of_means_are_not_too_wide(found: Found) -> None:
    # Cells are independent of each other, so that these may be counted together.
    points = [point for quantity, point in quantities(found) if quantity == "latency_mean_seconds"]
    low, high = bounds(STUDIES * len(points), 0.95, len(quantities(found)) + 2)
    assert high < STUDIES * len(points), "too few to see intervals that are too wide"
    assert low <= sum(found["latency_mean_seconds", point, True] for point in points) <= high


def test_where_hosts_differ_intervals_cover_if_records_name_them() -> None:
    def hits(condition: truth.Condition, quantity: str, point: str) -> int:
        found = sum((truth.count_covered(seed, condition) for seed in range(STUDIES)), Found())
        return found[quantity, point, True]

    different, _, not_recorded = truth.ON_HOSTS.values()
    low, high = bounds(STUDIES, 0.95, 2)
    assert low <= hits(different, "latency_mean_seconds", "exclusive × 1") <= high
    assert hits(not_recorded, "latency_mean_seconds", "exclusive × 1") < low


def test_a_planted_difference_is_found_with_the_theoretical_power(found: Found) -> None:
    theory = truth.power(0.03, 0.015, truth.REPEATS)
    assert theory == pytest.approx(0.90, abs=0.01)
    low, high = bounds(STUDIES, theory, len(quantities(found)) + 2)
    assert low <= sum(map(truth.is_difference_found, range(STUDIES))) <= high


def test_the_truth_of_a_drifting_cell_is_the_mean_of_its_iterations() -> None:
    drifting = truth.Planted(1, {**NODE, "noise": truth.SILENT | {"drift": 0.1}}, WORK)
    (cell,) = truth.simulate(drifting, [("exclusive", 1)], 1)
    mean = cell.latency_mean_seconds
    assert mean == pytest.approx(drifting.mean_seconds("exclusive", 1), rel=2e-3)
    # This would be the mean if iterations were not more numerous while they are fast.
    assert drifting.mean_seconds("exclusive", 1) < 0.05 + 4.0 / 108


NODE = {"sms": 108, "mig_slice_sms": 14, "time_slicing_overhead": 0.1, "noise": truth.SILENT}
WORK = Model(serial_seconds=0.05, parallel_sm_seconds=4.0)


@pytest.mark.parametrize(
    ("stretch", "shift"),
    # Normal quantiles in place of Student's, intervals twice as wide, and a bias of half an interval's side.
    [(stats.norm.ppf(0.975) / stats.t.ppf(0.975, 4), 0.0), (2.0, 0.0), (1.0, 0.5)],
    ids=["too narrow", "too wide", "biased"],
)
def test_wrong_intervals_fail_these_tests(
    stretch: float, shift: float, intervals: list[truth.Interval], found: Found
) -> None:
    def spoiled(each: truth.Interval) -> truth.Interval:
        middle, half = math.sqrt(each.low * each.high), math.sqrt(each.high / each.low)
        return replace(each, low=middle * half ** (shift - stretch), high=middle * half ** (shift + stretch))

    of_means = [each for each in intervals if each.quantity == "latency_mean_seconds"]
    low, high = bounds(len(of_means), 0.95, len(quantities(found)) + 2)
    assert low <= sum(each.covers for each in of_means) <= high
    assert not low <= sum(spoiled(each).covers for each in of_means) <= high
