"""Median and 99th percentile latency against the number of tenants."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.figures import NAMES, line_panels
from sharebench.figures.data import Study
from sharebench.figures.page import Sheet
from sharebench.figures.style import GREY, log_axis

P50, P99 = "latency_p50_seconds", "latency_p99_seconds"
THIN: dict[str, Any] = {"lw": 0.6, "ms": 3.0, "mfc": "white", "mew": 0.6}


def draw(study: Study) -> Sheet:
    """One panel per workload: p50 with its interval, p99 as a thin line where it exists; log scale."""
    keys = [
        Line2D([], [], color=GREY, marker="o", label="p50, bars: 95 % interval"),
        Line2D([], [], color=GREY, marker="o", label="p99", **THIN),
    ]
    return line_panels.panels(study, NAMES["latency"].title, "Latency (ms)", P50, _panel, keys)


def _panel(ax: Axes, panel: line_panels.Panel) -> None:
    for line in panel.lines:
        ax.plot(line.x, 1e3 * line.rows[P99], **line.look.line | THIN)
        bars = [1e3 * side for side in line_panels.intervals(line.rows, P50)]
        ax.errorbar(
            line.x,
            1e3 * line.rows[P50],
            yerr=bars,
            capsize=1.8,
            capthick=0.8,
            elinewidth=0.8,
            **line.look.line,
        )
    shown = 1e3 * panel.rows[[P50, f"{P50}_low", f"{P50}_high", P99]]
    log_axis(ax, "y", shown.min().min() / 1.25, shown.max().max() * 1.25)
