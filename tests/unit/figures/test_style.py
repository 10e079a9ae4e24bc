"""Scales, ticks and the theme of figures."""

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sharebench.read.figures.data import format_factor
from sharebench.read.figures.style import THEME, log_ticks, set_log_axis, theme


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (3.5, 25, [5, 10, 20]),
        (0.9, 250, [1, 3, 10, 30, 100]),
        (0.5, 2e6, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
        (4.1, 5.2, [4.2, 4.4, 4.6, 4.8, 5.0, 5.2]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == ticks


@given(st.floats(1e-3, 1e6), st.floats(1.3, 1e8))
def test_every_range_has_ticks_inside_it(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 10
    assert ticks == sorted(ticks)
    assert low <= ticks[0] and ticks[-1] <= low * ratio


def test_log_axis_names_its_ticks_in_plain_numbers() -> None:
    ax = Figure().add_subplot()
    set_log_axis(ax, "y", 0.4, 30)
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.5", "1", "2", "5", "10", "20"]
    assert not any(label.get_text() for label in ax.get_yticklabels(minor=True))
    assert ax.get_ylim() == (0.4, 30)


def test_the_theme_ignores_the_user_and_leaves_no_trace() -> None:
    with mpl.rc_context({"lines.linewidth": 9.0, "axes.facecolor": "pink"}):
        with theme():
            assert mpl.rcParams["lines.linewidth"] == THEME["lines.linewidth"]
            assert mpl.rcParams["axes.facecolor"] == "white"
        assert mpl.rcParams["lines.linewidth"] == 9.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.50"),
        (9.99, "9.99"),
        (9.996, "10.0"),
        (28.21, "28.2"),
        (99.96, "100"),
        (211.5, "212"),
        (29362.9, "29,400"),
    ],
)
def test_a_factor_has_no_exponent(value: float, text: str) -> None:
    assert format_factor(value) == text
