"""Metrics by number of tenants: one panel per workload and metric, one line per strategy."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter, FixedFormatter, FixedLocator
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from sharebench.figures.data import OF_ROW, DrawnStudy, absence, rows_of
from sharebench.figures.page import Sheet, study_sheet
from sharebench.figures.panels import (
    DASHED,
    MOST_OF_BARS,
    STREAMED,
    THIN,
    ends_of,
    intervals,
    label_point,
    legend_of,
    percentile_keys,
    slo_keys,
    times_axis,
)
from sharebench.figures.style import GREY, SMALL_POINTS, Look, log_axis, looks

TOTAL = "throughput_total_hz"
MAKESPAN = "makespan_seconds"
ACTIVITY = {
    "sm_active_percent": "SMs active",
    "sm_occupancy_percent": "occupancy",
    "dram_active_percent": "DRAM traffic",
}
NAME_INCHES = (0.85, 0.13)
"""Width and height of the ideal line's name, with some air."""
MOST_ON_A_LINEAR_SCALE = 20
"""Makespans further apart than this factor are drawn on a log scale, which keeps the small ones apart."""
WIDE_RATIO = 16
"""Beyond this ratio of the largest to the smallest number of tenants the axis is logarithmic."""
CROSS_ROW_INCHES = 0.11
"""Height of the row of crosses that a strategy with missing values has below the axis."""

Place = Callable[[float], float]
"""Where a number of tenants is on the axis."""


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
    """One workload: its rows of the table, and its lines."""

    rows: pd.DataFrame
    lines: list[Line]
    place: Place


@dataclass(frozen=True)
class Shown:
    """What a panel shows of a workload: how its lines are drawn, and the metric that is marked where it is missing."""

    metric: str
    draw: Callable[[Axes, Panel], None]
    title: str = ""
    """Follows the workload, where there are several."""


def latency(study: DrawnStudy) -> Sheet:
    """p50 with its interval, p99 as a thin line where it exists; log scale."""
    return _page(study, "latency", "Latency (ms)", [_percentiles("latency", most_of_bars=math.inf)], percentile_keys())


def serving(study: DrawnStudy) -> Sheet:
    """TTFT and TPOT of streams, each like `latency`, with its SLO."""
    slo = study.slo_ms
    shown = [_percentiles(part, title, slo.get(part)) for part, title in STREAMED.items()]
    table = study.plain_summary()
    table = table[table["workload"].map(study.is_stream).astype(bool)]
    legend = [*percentile_keys(), *slo_keys(slo, STREAMED)]
    return _page(study, "serving", "Time (ms)", shown, legend, table=table, columns=2)


def utilisation(study: DrawnStudy) -> Sheet:
    """Activity of the device, in percent, by each counter."""
    known = study.plain_summary().columns
    shown = [_share(name, title) for name, title in ACTIVITY.items() if name in known]
    return _page(study, "utilisation", "Share (%)", shown, nothing="the device does not count its activity")


def _share(metric: str, title: str) -> Shown:
    def draw(ax: Axes, panel: Panel) -> None:
        for line in panel.lines:
            _with_interval(ax, line, metric)
        ax.set_ylim(0, 105)

    return Shown(metric, draw, title)


def _percentiles(stem: str, title: str = "", slo_ms: float | None = None, most_of_bars: float = MOST_OF_BARS) -> Shown:
    p50, p99 = f"{stem}_p50_seconds", f"{stem}_p99_seconds"

    def draw(ax: Axes, panel: Panel) -> None:
        for line in panel.lines:
            ax.plot(line.x, 1e3 * line.rows[p99], **line.look.line | THIN)
            _with_interval(ax, line, p50, 1e3)
        times_axis(ax, panel.rows, stem, slo_ms, most_of_bars)

    return Shown(p50, draw, title)


def throughput(study: DrawnStudy) -> Sheet:
    """Iterations per second of all tenants with their interval; the ideal line."""

    def draw(ax: Axes, panel: Panel) -> None:
        # The ideal line may leave the panel: the room is for the data, with some above it for the line's name.
        top = 1.3 * float(panel.rows[[TOTAL, f"{TOTAL}_high"]].max().max())
        ax.set_ylim(0, top)
        if panel.rows["replicas"].max() > 1 and (alone_hz := _multiples_of_one(ax, panel, TOTAL)):
            _name_ideal(ax, panel, alone_hz, top)
        for line in panel.lines:
            _with_interval(ax, line, TOTAL)
        if top >= 1e5:
            ax.yaxis.set_major_formatter(EngFormatter())

    return _page(study, "throughput", "Total throughput (iterations/s)", [Shown(TOTAL, draw)])


def jobs(study: DrawnStudy) -> Sheet:
    """Seconds until the last job is done, with their interval; a queue is one of the lines."""
    catalogue = study.config["strategy_catalogue"]
    queues = {name for name, entry in catalogue.items() if entry["mechanism"] == ["sequential"]}

    def draw(ax: Axes, panel: Panel) -> None:
        rows = panel.rows
        if queues.isdisjoint(rows.loc[rows[MAKESPAN].notna(), "strategy"]):
            _multiples_of_one(ax, panel, MAKESPAN)
        for line in panel.lines:
            _with_interval(ax, line, MAKESPAN)
        shown = rows[ends_of(MAKESPAN)]
        low, high = float(shown.min().min()), float(shown.max().max())
        if high > MOST_ON_A_LINEAR_SCALE * low:
            log_axis(ax, "y", low / 1.25, high * 1.25)
        else:
            ax.set_ylim(0, 1.08 * high)

    shown, table = [Shown(MAKESPAN, draw)], study.table("jobs")
    return _page(study, "jobs", "Makespan (s)", shown, table=table, facts=study.job_facts, note=study.not_shown)


def _with_interval(ax: Axes, line: Line, metric: str, factor: float = 1.0) -> None:
    bars = [factor * side for side in intervals(line.rows, metric)]
    values = factor * line.rows[metric]
    ax.errorbar(line.x, values, yerr=bars, capsize=1.8, capthick=0.8, elinewidth=0.8, **line.look.line)


def _multiples_of_one(ax: Axes, panel: Panel, metric: str) -> float | None:
    """Draw N times the metric of one exclusive tenant, and return that; None where it was not measured."""
    rows = panel.rows
    alone = rows.loc[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1), metric].dropna()
    if alone.empty:
        return None
    n = np.geomspace(1, float(rows["replicas"].max()), 200)
    ax.plot(list(map(panel.place, n)), n * float(alone.iloc[0]), **DASHED)
    return float(alone.iloc[0])


def _name_ideal(ax: Axes, panel: Panel, alone_hz: float, top_hz: float) -> None:
    """Name the ideal line where it leaves the panel or ends, right of it if that fits."""
    end = min(float(panel.rows["replicas"].max()), top_hz / alone_hz)
    left, right = ax.get_xlim()
    width_inches, height_inches = ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi
    is_room = (right - panel.place(end)) / (right - left) * width_inches > NAME_INCHES[0]
    # The name must be clear of the line: to its right at the name's top, to its left at the name's bottom.
    foot = end - (0 if is_room else NAME_INCHES[1] / height_inches * top_hz / alone_hz)
    at, offset = (panel.place(max(foot, 1)), end * alone_hz), (5 if is_room else -3, -1)
    label_point(ax, "ideal: N devices", at, offset, ha="left" if is_room else "right", va="top")


def _page(
    study: DrawnStudy,
    name: str,
    y_label: str,
    shown: Sequence[Shown],
    legend: Sequence[Line2D] = (),
    *,
    table: pd.DataFrame | None = None,
    facts: Sequence[str] | None = None,
    note: str | None = None,
    nothing: str = "the summary has no rows",
    columns: int = 3,
) -> Sheet:
    """A panel for each workload of `table` (the summary) and each of `shown`, drawn from the lines that have values.

    Whatever has no value is marked by a cross below the axis, with the reason in a word.
    """
    table = study.plain_summary() if table is None else table
    names = study.strategies(table)
    style = looks(study.catalogue, names)
    panels = {
        "\n".join(filter(None, [workload, each.title])): (rows, each, _missing(rows, each.metric, names))
        for workload, rows in study.by_workload(table).items()
        for each in shown
    }

    def page_with(lines: int) -> Sheet:
        return study_sheet(
            study,
            name,
            len(panels),
            nothing,
            facts=facts,
            note=note,
            x_label="Number of tenants",
            y_label=y_label,
            legend=[*legend_of(style, names), *legend],
            below_inches=lines * CROSS_ROW_INCHES,
            columns=columns,
            title_lines=2 if any(each.title for each in shown) else 1,
        )

    page, crosses = page_with(0), 0
    if any(missing for *_, missing in panels.values()):
        # How many lines the crosses and their labels need depends on how wide the panels come out.
        for ax, (rows, _, missing) in zip(page.axes, panels.values(), strict=True):
            place = _axis_of_tenants(ax, rows)
            labels = [_label(ax, name, words, place) for name, words in missing.items()]
            crosses = max(crosses, sum(1 + label.is_below for label in labels))
        page = page_with(crosses)
    for ax, (title, (rows, each, missing)) in zip(page.axes, panels.items(), strict=False):
        ax.set_title(title)
        place = _axis_of_tenants(ax, rows)
        drawn = study.strategies(rows[rows[each.metric].notna()])
        lines = []
        for i, name in enumerate(drawn):
            own = rows[rows["strategy"] == name].sort_values("replicas")
            aside = (i - (len(drawn) - 1) / 2) * min(0.06, 0.25 / len(drawn))
            lines.append(Line(own, [place(n) + aside for n in own["replicas"]], style[name]))
        if lines:
            each.draw(ax, Panel(rows, lines, place))
        else:
            ax.set_yticks([])
            ax.text(0.5, 0.5, "no valid measurement", ha="center", color=GREY, transform=ax.transAxes)
        ax.tick_params(axis="x", pad=2 + 72 * CROSS_ROW_INCHES * crosses)
        line = 0
        for name, words in missing.items():
            label = _label(ax, name, words, place)
            _crosses(ax, line, [place(n) for n in words], label, style[name])
            line += 1 + label.is_below
            in_line = title.replace("\n", ", ")
            page.words.extend(f"{in_line}: {name} at {n} tenants is {word}" for n, word in words.items())
    return page


def _missing(rows: pd.DataFrame, metric: str, names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Strategy → number of tenants → the word for why `metric` has no value there."""
    found: dict[str, dict[int, str]] = {}
    without = rows.loc[rows[metric].isna(), [*OF_ROW]].sort_values("replicas")
    for row in sorted(rows_of(without), key=lambda row: names.index(row["strategy"])):
        found.setdefault(row["strategy"], {})[int(row["replicas"])] = absence(row)
    return found


def _axis_of_tenants(ax: Axes, rows: pd.DataFrame) -> Place:
    """Set up the axis for the numbers of tenants of these rows and return their places on it.

    Places of neighbours are at least 1 apart, so that markers can be set aside by a fraction of that.
    """
    replicas = sorted(set(rows["replicas"]))
    scale: Place = math.log2 if replicas[-1] / replicas[0] > WIDE_RATIO else float
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


def _label(ax: Axes, name: str, words: Mapping[int, str], place: Place) -> _Label:
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

    marks: dict[str, Any] = {"ls": "", "marker": "x", "ms": 3.6, "mew": 1.2, "c": look.color, "clip_on": False}
    ax.plot(places, [0.0] * len(places), transform=below(line), **marks)
    small: dict[str, Any] = {"va": "center_baseline", "size": SMALL_POINTS, "color": GREY}
    ax.text(label.x, 0, label.text, ha=label.side, transform=below(line + label.is_below), **small)
