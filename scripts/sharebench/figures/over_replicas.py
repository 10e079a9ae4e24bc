"""Latency, throughput and makespan against the number of tenants."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from sharebench.figures import data, line_panels
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import Sheet
from sharebench.figures.style import GREY, SMALL_POINTS, log_axis

P50, P99 = "latency_p50_seconds", "latency_p99_seconds"
TOTAL = "throughput_total_hz"
MAKESPAN = "makespan_seconds"
THIN: dict[str, Any] = {"lw": 0.6, "ms": 3.0, "mfc": "white", "mew": 0.6}
NAME_INCHES = (0.85, 0.13)
"""Width and height of the ideal line's name, with some air."""
MOST_ON_A_LINEAR_SCALE = 20
"""Makespans further apart than this factor are drawn on a log scale, where the small ones can be told apart."""


def latency(study: data.DrawnStudy) -> Sheet:
    """One panel per workload: p50 with its interval, p99 as a thin line where it exists; log scale."""
    keys = [
        Line2D([], [], color=GREY, marker="o", label="p50, bars: 95 % interval"),
        Line2D([], [], color=GREY, marker="o", label="p99", **THIN),
    ]
    return line_panels.panels(study, ENTRIES["latency"].title, "Latency (ms)", P50, _latency_axes, keys)


def _latency_axes(ax: Axes, panel: line_panels.Panel) -> None:
    for line in panel.lines:
        ax.plot(line.x, 1e3 * line.rows[P99], **line.look.line | THIN)
        _with_interval(ax, line, P50, 1e3)
    shown = 1e3 * panel.rows[[P50, f"{P50}_low", f"{P50}_high", P99]]
    log_axis(ax, "y", shown.min().min() / 1.25, shown.max().max() * 1.25)


def throughput(study: data.DrawnStudy) -> Sheet:
    """One panel per workload: iterations per second of all tenants with their interval; the ideal line."""
    return line_panels.panels(
        study, ENTRIES["throughput"].title, "Total throughput (iterations/s)", TOTAL, _throughput_axes
    )


def _throughput_axes(ax: Axes, panel: line_panels.Panel) -> None:
    rows = panel.rows
    # The ideal line may leave the panel: the room is for the data, with some above it for the line's name.
    top = 1.3 * float(rows[[TOTAL, f"{TOTAL}_high"]].max().max())
    ax.set_ylim(0, top)
    alone = rows.loc[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1), TOTAL].dropna()
    if not alone.empty and rows["replicas"].max() > 1:
        _ideal(ax, panel, float(alone.iloc[0]), top)
    for line in panel.lines:
        _with_interval(ax, line, TOTAL)
    if top >= 1e5:
        ax.yaxis.set_major_formatter(EngFormatter())


def _ideal(ax: Axes, panel: line_panels.Panel, alone_hz: float, top_hz: float) -> None:
    """N times one exclusive tenant, named where it leaves the panel or ends, right of it if that fits."""
    last = float(panel.rows["replicas"].max())
    n = np.geomspace(1, last, 200)
    ax.plot([panel.place(value) for value in n], n * alone_hz, color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=1)
    end = min(last, top_hz / alone_hz)
    left, right = ax.get_xlim()
    width_inches, height_inches = ax.bbox.width / ax.figure.dpi, ax.bbox.height / ax.figure.dpi
    is_room = (right - panel.place(end)) / (right - left) * width_inches > NAME_INCHES[0]
    # The name must be clear of the line: to its right at the name's top, to its left at the name's bottom.
    foot = end - (0 if is_room else NAME_INCHES[1] / height_inches * top_hz / alone_hz)
    ax.annotate(
        "ideal: N devices",
        (panel.place(max(foot, 1)), end * alone_hz),
        xytext=(5 if is_room else -3, -1),
        textcoords="offset points",
        ha="left" if is_room else "right",
        va="top",
        size=SMALL_POINTS,
        color=GREY,
    )


def jobs(study: data.DrawnStudy) -> Sheet:
    """One panel per job: seconds until the last is done, with their interval; a line per strategy, one for a queue."""
    catalogue = study.config["strategy_catalogue"]
    queues = {name for name, entry in catalogue.items() if entry["mechanism"] == ["sequential"]}

    def panel(ax: Axes, panel: line_panels.Panel) -> None:
        rows = panel.rows
        if queues.isdisjoint(rows.loc[rows[MAKESPAN].notna(), "strategy"]):
            _one_by_one(ax, panel)
        for line in panel.lines:
            _with_interval(ax, line, MAKESPAN)
        shown = rows[[MAKESPAN, f"{MAKESPAN}_low", f"{MAKESPAN}_high"]]
        low, high = float(shown.min().min()), float(shown.max().max())
        if high > MOST_ON_A_LINEAR_SCALE * low:
            log_axis(ax, "y", low / 1.25, high * 1.25)
        else:
            ax.set_ylim(0, 1.08 * high)

    return line_panels.panels(study, ENTRIES["jobs"].title, "Makespan (s)", MAKESPAN, panel, table=data.jobs(study))


def _one_by_one(ax: Axes, panel: line_panels.Panel) -> None:
    """N times one exclusive job, where no queue was measured."""
    rows = panel.rows
    alone = rows.loc[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1), MAKESPAN].dropna()
    if not alone.empty:
        n = np.geomspace(1, float(rows["replicas"].max()), 100)
        places = [panel.place(value) for value in n]
        ax.plot(places, n * float(alone.iloc[0]), color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=1)


def _with_interval(ax: Axes, line: line_panels.Line, metric: str, factor: float = 1.0) -> None:
    bars = [factor * side for side in line_panels.intervals(line.rows, metric)]
    values = factor * line.rows[metric]
    ax.errorbar(line.x, values, yerr=bars, capsize=1.8, capthick=0.8, elinewidth=0.8, **line.look.line)
