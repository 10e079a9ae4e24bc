"""Parts that panels of several figures share: legends, axes, intervals, labels, and ratios in rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from sharebench.read.figures.data import DrawnStudy, Row, table_rows
from sharebench.read.figures.looks import BLUE, StrategyLook, bar_label, strategy_label
from sharebench.read.figures.page import POINTS
from sharebench.read.figures.style import GREY, SMALL_POINTS, set_log_axis
from sharebench.read.quantity import format_quantity

REFERENCE_LINE: dict[str, Any] = {"color": GREY, "lw": 0.8, "ls": (0, (4, 3)), "zorder": 1}
"""A line for comparison, such as the value without sharing."""

P99_LINE: dict[str, Any] = {"lw": 0.6, "ms": 3.0, "mfc": "white", "mew": 0.6}
"""The line of a p99, next to that of a median."""
BARS: dict[str, Any] = {"capsize": 1.8, "capthick": 0.8, "elinewidth": 0.8}
THIN_BARS: dict[str, Any] = {"capsize": 1.2, "capthick": 0.6, "elinewidth": 0.6}
MAX_BAR_RATIO = 3
"""An axis reaches beyond its values by at most this factor for intervals; longer ones leave the panel."""
STREAM_PARTS = {"ttft": "TTFT", "tpot": "TPOT"}
"""The parts of a streamed answer that figures show, by the prefix of their columns in the summary."""


class Quantity(NamedTuple):
    """A column of a table, the factor to the unit of its text, and the text, whose `{}` is the value."""

    column: str
    text: str
    factor: float = 1.0

    def describe(self, row: Row) -> str:
        value, low, high = (row.get(f"{self.column}{end}", math.nan) * self.factor for end in ("", "_low", "_high"))
        interval = "" if math.isnan(low) else f" ({format_quantity(low)} to {format_quantity(high)})"
        return self.text.format(format_quantity(value)) + interval


def percentiles(stem: str) -> tuple[Quantity, Quantity]:
    """The p50 and the p99 of a part of a request."""
    p50, p99 = (Quantity(f"{stem}_{name}_seconds", f"{name} {{}} ms", 1e3) for name in ("p50", "p99"))
    return p50, p99


def name_points(line: Line2D, rows: pd.DataFrame, quantities: Sequence[Quantity]) -> None:
    """Let each point of a line, which has one for each row, say its numbers; rows without a value have no point."""
    known = rows[rows[[each.column for each in quantities]].notna().all(axis="columns")]
    texts = [
        f"{bar_label(row['strategy'], row['replicas'])}: {', '.join(each.describe(row) for each in quantities)}"
        for row in table_rows(known)
    ]
    if texts:
        line.set_gid(POINTS + " | ".join(texts))


def draw_line(
    ax: Axes,
    rows: pd.DataFrame,
    look: StrategyLook,
    x: pd.Series[float] | Sequence[float],
    y: Quantity,
    *,
    tail: Quantity | None = None,
    across: str = "",
    said: Sequence[Quantity] = (),
    bars: dict[str, Any] = BARS,
) -> Line2D:
    """Draw `y` of each row at `x` with its interval, that of the column `across`, and a thin line of `tail`.

    A point says its value, after what is `said` of both lines.
    """
    if tail:
        (thin,) = ax.plot(x, tail.factor * rows[tail.column], **look.line | P99_LINE)
        name_points(thin, rows, [*said, tail])
    xerr = error_bars(rows, across) if across else None
    yerr = [y.factor * side for side in error_bars(rows, y.column)]
    line: Line2D = ax.errorbar(x, y.factor * rows[y.column], xerr=xerr, yerr=yerr, **bars, **look.line).lines[0]
    name_points(line, rows, [*said, y])
    return line


def strategy_keys(looks: Mapping[str, StrategyLook]) -> list[Line2D]:
    return [Line2D([], [], label=strategy_label(name), **look.line) for name, look in looks.items()]


def percentile_keys(table: pd.DataFrame, stems: Iterable[str]) -> list[Line2D]:
    """The legend entries for what is drawn of these parts of a request."""
    known = table.notna().any()
    has_bars, has_p99 = (
        any(known.get(f"{stem}_{end}_seconds{low}", False) for stem in stems)
        for end, low in (("p50", "_low"), ("p99", ""))
    )
    p50 = Line2D([], [], color=GREY, marker="o", label=f"p50{', bars: 95 % interval' if has_bars else ''}")
    return [p50, *([Line2D([], [], color=GREY, marker="o", label="p99", **P99_LINE)] if has_p99 else [])]


def slo_keys(study: DrawnStudy, workloads: Iterable[str], parts: Mapping[str, str]) -> list[Line2D]:
    """The legend entry for the line of an SLO, if any of these parts of a request has one."""
    asked = dict.fromkeys(
        ", ".join(f"{name} {slo_ms[part]:g} ms" for part, name in parts.items() if part in slo_ms)
        for slo_ms in map(study.slo_ms, workloads)
    )
    text = f": {next(iter(asked))}" if len(asked) == 1 else " of each workload"
    return [Line2D([], [], label=f"SLO{text}", **REFERENCE_LINE)] if any(asked) else []


def set_time_axis(
    ax: Axes, rows: pd.DataFrame, stem: str, slo_ms: float | None, most_of_bars: float = MAX_BAR_RATIO
) -> None:
    """Set a log scale in ms for the p50 and p99 of a part of a request, and draw the line of its SLO."""
    shown = 1e3 * rows[percentile_columns(stem)]
    # The first bucket of a program's own histogram begins at 0, and so may an interval.
    shown = shown[shown > 0]
    points = 1e3 * rows[[f"{stem}_p50_seconds", f"{stem}_p99_seconds"]]
    # The interval of two different repeats may span decades, on which nothing else could be seen.
    low = max(shown.min().min(), points.min().min() / most_of_bars)
    high = min(shown.max().max(), points.max().max() * most_of_bars)
    slo = [] if slo_ms is None else [slo_ms]
    set_log_axis(ax, "y", min([low, *slo]) / 1.25, max([high, *slo]) * 1.25)
    if slo_ms is not None:
        ax.axhline(slo_ms, **REFERENCE_LINE)


def set_rate_axis(ax: Axes, rates: pd.Series[float]) -> None:
    """Set the axis across from 0 to beyond the largest of these rates; many are counted in thousands."""
    ax.set_xlim(0, 1.12 * rates.max())
    if ax.get_xlim()[1] >= 1e4:
        ax.xaxis.set_major_formatter(EngFormatter())


def error_bars(rows: pd.DataFrame, metric: str) -> list[pd.Series[float]]:
    """Distances from `metric` to both ends of its interval, two series with a value per row; NaN without interval."""
    sides = [rows[metric] - rows[f"{metric}_low"], rows[f"{metric}_high"] - rows[metric]]
    # Without spread, rounding may put an end on the wrong side of the value.
    return [side.clip(lower=0) for side in sides]


def interval_columns(metric: str) -> list[str]:
    return [metric, f"{metric}_low", f"{metric}_high"]


def percentile_columns(stem: str) -> list[str]:
    return [*interval_columns(f"{stem}_p50_seconds"), f"{stem}_p99_seconds"]


def label_point(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **other: Any) -> None:
    """Write a small text next to a data point, `offset` typographic points away."""
    look: dict[str, Any] = {"size": SMALL_POINTS, "color": GREY} | other
    ax.annotate(text, at, offset, textcoords="offset points", **look)


def set_row_axis(ax: Axes, labels: Sequence[str], rows: float = 0) -> None:
    """Set a row for each label, from the top, in a panel with room for `rows`, or for the labels."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim((rows or len(labels)) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")


def set_ratio_axes(ax: Axes, labels: Sequence[str], low: float, high: float) -> None:
    """Set a row for each label on a log scale from `low` to `high`, with a line at 1."""
    set_row_axis(ax, labels)
    set_log_axis(ax, "x", low, high)
    ax.axvline(1, color=GREY, lw=0.8, zorder=1)


def draw_ratio(ax: Axes, y: float, value: float, ends: Sequence[float], color: str = BLUE) -> None:
    """Draw a value with the `ends` of its interval, if it has one."""
    if ends:
        ax.plot(ends, [y, y], color=color, lw=1.2, solid_capstyle="butt")
    ax.plot([value], [y], marker="o", ms=4, color=color)
