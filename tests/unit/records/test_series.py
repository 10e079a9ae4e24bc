"""Sampled counters: interpolation, resets, gaps."""

import pytest

from sharebench.measure.nodes import counters

STEADY = [(10.0 + each, 50.0 * each) for each in range(8)]


def test_the_increase_is_interpolated_at_both_ends() -> None:
    assert counters.increase(STEADY, 11.25, 15.5) == pytest.approx(50 * 4.25)
    assert counters.increase(STEADY, 11.0, 15.0) == pytest.approx(200)


@pytest.mark.parametrize(("start", "end"), [(9.5, 12.0), (12.0, 17.5), (20.0, 21.0)])
def test_the_increase_is_unknown_without_samples_on_both_sides(start: float, end: float) -> None:
    assert counters.increase(STEADY, start, end) is None
    assert counters.increase([], start, end) is None


def test_a_counter_continues_after_a_reset() -> None:
    counter = [(0.0, 5.0), (1.0, 9.0), (2.0, 2.0), (3.0, 6.0), (4.0, 1.0)]
    assert counters.count_resets(counter) == 2
    assert [value for _, value in counters.undo_resets(counter)] == [5.0, 9.0, 11.0, 15.0, 16.0]
    assert counters.increase(counter, 0.0, 4.0) == pytest.approx(11.0)


def test_only_gaps_that_touch_the_window_count() -> None:
    samples = [(0.0, 1.0), (6.0, 1.0), (7.0, 1.0), (10.0, 1.0), (11.0, 1.0), (20.0, 1.0)]
    assert counters.longest_gap(samples, 6.5, 10.5) == pytest.approx(3.0)
    assert counters.longest_gap(samples, 5.0, 10.5) == pytest.approx(6.0)
    assert counters.longest_gap(samples, 6.5, 12.0) == pytest.approx(9.0)
    assert counters.count_between(samples, 6.5, 10.5) == 2


def test_missing_samples_at_the_ends_of_the_window_are_gaps() -> None:
    assert counters.longest_gap([(3.0, 0.0), (4.0, 0.0)], 0.0, 9.0) == pytest.approx(5.0)
    assert counters.longest_gap([], 0.0, 9.0) is None
