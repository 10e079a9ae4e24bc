"""What panels of several figures share: legends, intervals, rows with labels, and values with intervals in rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.figures.style import BLUE, GREY, SMALL_POINTS, Look, log_axis

DASHED: dict[str, Any] = {"color": GREY, "lw": 0.8, "ls": (0, (4, 3)), "zorder": 1}
"""A line to compare with: what would be without sharing."""


def legend_of(style: dict[str, Look], names: Iterable[str]) -> list[Line2D]:
    """One entry per strategy."""
    return [Line2D([], [], label=name, **style[name].line) for name in names]


def intervals(rows: pd.DataFrame, metric: str) -> list[pd.Series[float]]:
    """Distances from `metric` to both ends of its interval, two of as many as rows; NaN without one."""
    sides = [rows[metric] - rows[f"{metric}_low"], rows[f"{metric}_high"] - rows[metric]]
    # Without any spread, rounding may put an end on the wrong side of the value.
    return [side.clip(lower=0) for side in sides]


def ends_of(metric: str) -> list[str]:
    """Columns of a metric and of both ends of its interval."""
    return [metric, f"{metric}_low", f"{metric}_high"]


def label_point(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **other: Any) -> None:
    """A small text next to a point, `offset` points away from it."""
    look: dict[str, Any] = {"size": SMALL_POINTS, "color": GREY} | other
    ax.annotate(text, at, offset, textcoords="offset points", **look)


def row_axis(ax: Axes, labels: Sequence[str], rows: float = 0) -> None:
    """A row for each label, from the top on, in a panel with room for this many, or just for them."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim((rows or len(labels)) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


class Ratio(NamedTuple):
    """A value of a row with the ends of its interval."""

    value: float
    low: float | None = None
    high: float | None = None
    color: str = BLUE


def ratio_axes(ax: Axes, labels: Sequence[str], low: float, high: float) -> None:
    """A row for each label on a log scale from `low` to `high`, with a line at 1."""
    row_axis(ax, labels)
    log_axis(ax, "x", low, high)
    ax.axvline(1, color=GREY, lw=0.8, zorder=1)


def draw_ratio(ax: Axes, y: float, ratio: Ratio) -> None:
    """A mark and a bar, in a row."""
    if ratio.low is not None and ratio.high is not None:
        ax.plot([ratio.low, ratio.high], [y, y], color=ratio.color, lw=1.2, solid_capstyle="butt")
    ax.plot([ratio.value], [y], marker="o", ms=4, color=ratio.color)


def known(value: float) -> float | None:
    """None for NaN."""
    return None if math.isnan(value) else value
