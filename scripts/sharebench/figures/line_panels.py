"""A metric of tables/summary.csv by number of tenants: one panel per workload, one line per strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from sharebench.figures import data
from sharebench.figures.page import Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, Look, looks

WIDE_RATIO = 16
"""Beyond this ratio of the largest to the smallest number of tenants the axis is logarithmic."""
CROSS_ROW_INCHES = 0.11
"""Height of the row of crosses that a strategy with missing values has below the axis."""


@dataclass(frozen=True)
class Line:
    """One strategy in one panel: its rows, in order of replicas, and where they stand on the axis.

    A row without a value is among them, so that a line stops there instead of running on over it.
    """

    rows: pd.DataFrame
    x: list[float]
    look: Look


@dataclass(frozen=True)
class Panel:
    """One workload: its rows of the summary, its lines, and where a number of tenants is on the axis."""

    rows: pd.DataFrame
    lines: list[Line]
    place: Callable[[float], float]


def panels(
    study: data.DrawnStudy,
    title: str,
    y_label: str,
    metric: str,
    draw: Callable[[Axes, Panel], None],
    legend: Sequence[Line2D] = (),
    table: pd.DataFrame | None = None,
) -> Sheet:
    """One panel per workload, drawn by `draw` from the lines that have values.

    `table` takes the place of the summary, and has its columns of strategy, workload, replicas, n and status. Whatever
    has no value of `metric` is marked by a cross below the axis, with the reason in a word.
    """
    facts, note = (study.facts, study.left_out) if table is None else (study.job_facts, study.not_shown)
    table = study.without_mixes(data.summary(study)) if table is None else table
    names = study.strategies(table)
    style = looks(study.catalogue, names)
    entries = [Line2D([], [], label=name, **style[name].line) for name in names]
    workloads = study.workloads(table)
    rows_of = {workload: table[table["workload"] == workload] for workload in workloads}
    missing = {workload: _missing(rows, metric, names) for workload, rows in rows_of.items()}

    def page_with(lines: int) -> Sheet:
        return sheet(
            title,
            facts,
            max(len(workloads), 1),
            x_label="Number of tenants",
            y_label=y_label,
            legend=[*entries, *legend],
            note=note,
            below_inches=lines * CROSS_ROW_INCHES,
        )

    page, crosses = page_with(0), 0
    if any(missing.values()):
        # How many lines the crosses and their labels need depends on how wide the panels come out.
        for ax, workload in zip(page.axes, workloads, strict=True):
            place = _axis_of_tenants(ax, rows_of[workload])
            labels = [_label(ax, name, words, place) for name, words in missing[workload].items()]
            crosses = max(crosses, sum(1 + label.is_below for label in labels))
        page = page_with(crosses)
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: the summary has no rows.")
    for ax, workload in zip(page.axes, workloads, strict=False):
        rows = rows_of[workload]
        ax.set_title(workload)
        place = _axis_of_tenants(ax, rows)
        valued = rows[rows[metric].notna()]
        drawn = [name for name in names if name in set(valued["strategy"])]
        lines = []
        for i, name in enumerate(drawn):
            own = rows[rows["strategy"] == name].sort_values("replicas")
            aside = (i - (len(drawn) - 1) / 2) * min(0.06, 0.25 / len(drawn))
            lines.append(Line(own, [place(n) + aside for n in own["replicas"]], style[name]))
        if lines:
            draw(ax, Panel(rows, lines, place))
        else:
            ax.set_yticks([])
            ax.text(0.5, 0.5, "no valid measurement", ha="center", color=GREY, transform=ax.transAxes)
        ax.tick_params(axis="x", pad=2 + 72 * CROSS_ROW_INCHES * crosses)
        line = 0
        for name, words in missing[workload].items():
            label = _label(ax, name, words, place)
            _crosses(ax, line, [place(n) for n in words], label, style[name])
            line += 1 + label.is_below
            page.words.extend(f"{workload}: {name} at {n} tenants is {word}" for n, word in words.items())
    return page


def intervals(rows: pd.DataFrame, metric: str) -> list[pd.Series[float]]:
    """Distances from `metric` to both ends of its interval, two of as many as rows; NaN without one."""
    sides = [rows[metric] - rows[f"{metric}_low"], rows[f"{metric}_high"] - rows[metric]]
    # Without any spread, rounding may put an end on the wrong side of the value.
    return [side.clip(lower=0) for side in sides]


def _missing(rows: pd.DataFrame, metric: str, names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Strategy → number of tenants → the word for why `metric` has no value there."""
    found: dict[str, dict[int, str]] = {}
    without = rows.loc[rows[metric].isna(), [*data.OF_ROW]].sort_values("replicas")
    for row in sorted(without.to_dict("records"), key=lambda row: names.index(row["strategy"])):
        found.setdefault(row["strategy"], {})[int(row["replicas"])] = data.absence(row)
    return found


def _axis_of_tenants(ax: Axes, rows: pd.DataFrame) -> Callable[[float], float]:
    """Set up the axis for the numbers of tenants of these rows and return their places on it.

    Places of neighbours are at least 1 apart, so that markers can be set aside by a fraction of that.
    """
    replicas = sorted(set(rows["replicas"]))
    scale: Callable[[float], float] = math.log2 if replicas[-1] / replicas[0] > WIDE_RATIO else float
    gap = min((scale(b) - scale(a) for a, b in pairwise(replicas)), default=1.0)

    def place(n: float) -> float:
        return scale(n) / gap

    ticks = [place(n) for n in replicas]
    room = max(0.4, 0.06 * (ticks[-1] - ticks[0]))
    ax.set_xlim(ticks[0] - room, ticks[-1] + room)
    labels, last = [], -math.inf
    for n, tick in zip(replicas, ticks, strict=True):
        is_clear = tick - last >= 0.05 * (ticks[-1] - ticks[0])
        labels.append(str(n) if is_clear else "")
        last = tick if is_clear else last
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter(labels))
    ax.grid(visible=False, axis="x")
    return place


@dataclass(frozen=True)
class _Label:
    """The name of a row of crosses, and where it stands: in their widest gap, or on a line of its own below them."""

    text: str
    x: float
    side: str
    is_below: bool


def _label(ax: Axes, name: str, words: Mapping[int, str], place: Callable[[float], float]) -> _Label:
    """The label of the crosses at the keys of `words`."""
    text = f"{name} {', '.join(dict.fromkeys(words.values()))}"
    edges = [ax.get_xlim()[0], *map(place, words), ax.get_xlim()[1]]
    left = max(range(len(edges) - 1), key=lambda i: edges[i + 1] - edges[i])
    nudge = 0.015 * (edges[-1] - edges[0])
    room = (edges[left + 1] - edges[left] - nudge) / (edges[-1] - edges[0]) * ax.bbox.width
    figure = cast(Figure, ax.figure)
    if Text(text=text, size=SMALL_POINTS, figure=figure).get_window_extent().width > room:
        return _Label(text, edges[0], "left", is_below=True)
    x, side = (edges[left] + nudge, "left") if left == len(words) else (edges[left + 1] - nudge, "right")
    return _Label(text, x, side, is_below=False)


def _crosses(ax: Axes, line: int, places: Sequence[float], label: _Label, look: Look) -> None:
    """One row of crosses, `line` lines below the axis, and its label."""

    def below(line: int) -> Transform:
        down = ScaledTranslation(0, -(line + 0.6) * CROSS_ROW_INCHES, ax.figure.dpi_scale_trans)
        return blended_transform_factory(ax.transData, ax.transAxes) + down

    ax.plot(
        places,
        [0.0] * len(places),
        ls="",
        marker="x",
        ms=3.6,
        mew=1.2,
        c=look.color,
        transform=below(line),
        clip_on=False,
    )
    ax.text(
        label.x,
        0,
        label.text,
        ha=label.side,
        va="center_baseline",
        size=SMALL_POINTS,
        color=GREY,
        transform=below(line + label.is_below),
    )
