"""Windows from two scrapes of a program's own metrics: parsing, subtraction, and error bounds."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.metrics import MissingSeries, Scrape, parse_metrics, subtract_scrapes
from sharebench.model.workload import Metrics

MS = 1_000_000
BUCKETS = (0.01, 0.1, 0.25)


def metrics(**given: Any) -> Metrics:
    """A workload's `metrics` with these keys."""
    return Metrics(**given)


def page(latencies: dict[str, list[float]], buckets: tuple[float, ...] = BUCKETS) -> str:
    """A page of prometheus_client with these latencies by the label `stage`, as a histogram and a summary."""
    registry = CollectorRegistry()
    histogram = Histogram("work", "Work", ["stage"], buckets=buckets, registry=registry)
    summary = Summary("same", "The same", ["stage"], registry=registry)
    Counter("others", "Something else", registry=registry).inc()
    for stage, values in latencies.items():
        # Without a call a series with labels is not there.
        histogram.labels(stage)
        summary.labels(stage)
        for value in values:
            histogram.labels(stage).observe(value)
            summary.labels(stage).observe(value)
    return generate_latest(registry).decode()


def state(latencies: list[float], at_ms: int = 0, took_ms: int = 0, buckets: tuple[float, ...] = BUCKETS) -> Scrape:
    """A scrape of a program after these iterations."""
    text = page({"a": latencies}, buckets)
    return parse_metrics(text, metrics(histogram="work"), at_ms * MS, (at_ms + took_ms) * MS)


@pytest.mark.parametrize(
    ("unit", "seconds"), [("seconds", 1.0), ("milliseconds", 1e-3), ("microseconds", 1e-6), ("nanoseconds", 1e-9)]
)
def test_the_unit_applies_to_sum_and_buckets(unit: str, seconds: float) -> None:
    text = page({"a": [4, 40]}, buckets=(5, 50))
    found = parse_metrics(text, metrics(histogram="work", unit=unit))
    assert found.sum_seconds == pytest.approx(44 * seconds)
    assert found.upper_seconds[:2] == pytest.approx((5 * seconds, 50 * seconds))


def test_a_summary_has_a_count_and_a_sum_only() -> None:
    found = parse_metrics(page({"a": [0.5, 1.5]}), metrics(summary="same"))
    assert (found.count, found.sum_seconds, found.upper_seconds) == (2, 2.0, ())


def test_labels_pick_a_series() -> None:
    text = page({"load": [1.0], "infer": [0.02, 0.03]})
    found = parse_metrics(text, metrics(histogram="work", labels={"stage": "infer"}))
    assert (found.count, found.cumulative) == (2, (0, 2, 2, 2))
    with pytest.raises(MissingSeries, match=r"has 2 series with metrics.labels \{\}; name one of \{'stage': 'load'\}"):
        parse_metrics(text, metrics(histogram="work"))
    with pytest.raises(
        MissingSeries, match=r"has no series with metrics.labels .*blur.*; name one of \{'stage': 'load'\}"
    ):
        parse_metrics(text, metrics(histogram="work", labels={"stage": "blur"}))


def test_a_missing_series_is_reported_with_those_that_exist() -> None:
    text = page({"a": [1.0]})
    with pytest.raises(MissingSeries, match=r"there is no histogram 'wrok'; this page has: work"):
        parse_metrics(text, metrics(histogram="wrok"))
    with pytest.raises(MissingSeries, match=r"there is no summary 'wrok'; this page has: same, work"):
        parse_metrics(text, metrics(summary="wrok"))
    with pytest.raises(MissingSeries, match=r"same has no classic buckets"):
        parse_metrics(text, metrics(histogram="same"))


def test_a_window_is_the_difference_of_two_scrapes() -> None:
    before = [0.02] * 30 + [5.0]
    inside = [0.005] * 10 + [0.05] * 40 + [0.2] * 5
    found = subtract_scrapes(state(before, at_ms=1000, took_ms=4), state(before + inside, at_ms=3002, took_ms=8))
    assert found.count == 55
    assert found.counts == (10, 40, 5, 0)
    assert found.mean_seconds == pytest.approx(np.mean(inside))
    assert found.seconds == pytest.approx(2.004)
    assert found.seconds_error == pytest.approx(0.006)
    assert found.rate_hz == pytest.approx(55 / 2.004)
    assert found.longest_seconds == 0.25


def relative_to_truth(ratio: float) -> float:
    """A bound relative to the measurement, converted to one relative to the truth."""
    return ratio / (1 - ratio) if ratio < 1 else math.inf


@pytest.mark.parametrize("seed", range(40))
def test_the_truth_is_within_the_bounds_wherever_the_edges_fall(seed: int) -> None:
    """A closed loop is scraped at unknown moments; the iterations that began in the window are the truth."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(latencies := rng.lognormal(-3.3, 0.6, 400))
    starts = ends - latencies
    at, to = sorted(rng.uniform(1.0, ends[-1] - 1.0, 2))
    took = rng.uniform(0, 0.05, 2)
    # Each page was made somewhere between its request and its answer, its sum and its counts not at once.
    counted, summed = (np.array([at, to]) + rng.uniform(0, 1, 2) * took for _ in range(2))

    def taken(edge: int) -> Scrape:
        has_counted, has_summed = ends <= counted[edge], ends <= summed[edge]
        cumulative = (*(int((latencies[has_counted] <= upper).sum()) for upper in BUCKETS), int(has_counted.sum()))
        begun = [at, to][edge]
        return Scrape(
            round(begun * 1e9),
            round((begun + took[edge]) * 1e9),
            cumulative[-1],
            float(latencies[has_summed].sum()),
            (*BUCKETS, math.inf),
            cumulative,
        )

    found = subtract_scrapes(taken(0), taken(1))
    began = (starts >= counted[0]) & (starts < counted[1])
    assert began.sum() >= 5, "a window to speak of"
    true_rate = began.sum() / (counted[1] - counted[0])
    assert abs(found.rate_hz / true_rate - 1) <= relative_to_truth(found.rate_error_ratio)
    assert found.longest_seconds is None or found.longest_seconds >= latencies[began].max()
    if found.longest_seconds is not None:
        true_mean = latencies[began].mean()
        assert abs(found.mean_seconds / true_mean - 1) <= relative_to_truth(found.mean_error_ratio)


def test_error_bounds_match_a_calculation_by_hand() -> None:
    found = subtract_scrapes(state([], at_ms=0, took_ms=10), state([0.05] * 100, at_ms=5000, took_ms=10))
    assert found.rate_error_ratio == pytest.approx(0.01 / 5 + 2 / 100)
    # An edge's iteration may be 0.1 s, that is 0.05 s off the mean of 0.05 s, and the page may be torn by 10 ms twice.
    assert found.mean_error_ratio == pytest.approx(2 / 100 * 0.05 / 0.05 + 2 * 0.01 / 5)
    slow = subtract_scrapes(state([]), state([0.011] * 100, at_ms=5000))
    assert slow.mean_error_ratio == pytest.approx(2 / 100 * (0.1 - 0.011) / 0.011)


def test_a_window_without_iterations_has_no_mean_and_no_error() -> None:
    found = subtract_scrapes(state([0.1]), state([0.1], at_ms=1000))
    assert (found.count, found.mean_seconds, found.rate_error_ratio, found.mean_error_ratio) == (0, None, None, None)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (state([0.02] * 3, at_ms=1000), "its counters went backwards from 10 to 3 iterations"),
        (state([0.2] * 20, at_ms=1000), "the bucket up to 0.1 s lost 10 iterations"),
        (state([0.001] * 11, at_ms=1000), "its sum went backwards from 0.2 to 0.011 s"),
        (state([0.02] * 20, at_ms=1000, buckets=(0.01, 0.5)), r"the bounds of its buckets changed from \(0.01, 0.1,"),
    ],
    ids=["fewer", "another distribution", "a smaller sum", "other buckets"],
)
def test_a_program_that_restarted_has_no_window(after: Scrape, what: str) -> None:
    with pytest.raises(NodeError, match=f"^{what}.*: it restarted$"):
        subtract_scrapes(state([0.02] * 10), after)


def test_a_sum_may_lose_its_last_digits_only() -> None:
    """A server of several processes adds their sums, in any order."""
    before = state([0.1] * 3)
    after = dataclasses.replace(before, sum_seconds=before.sum_seconds * (1 - 1e-15), begun_ns=10**9, ended_ns=10**9)
    assert subtract_scrapes(before, after).sum_seconds == 0


def test_a_window_of_a_summary_has_a_mean_and_no_buckets() -> None:
    states = [
        parse_metrics(page({"a": latencies}), metrics(summary="same"), at_ms * MS, at_ms * MS)
        for latencies, at_ms in (([0.1], 0), ([0.1, 0.3], 1000))
    ]
    found = subtract_scrapes(*states)
    assert (found.count, found.counts, found.upper_seconds, found.longest_seconds) == (1, (), (), None)
    assert found.mean_seconds == pytest.approx(0.3)
    assert found.mean_error_ratio == pytest.approx(2.0)
