"""Total throughput against the number of tenants, beside that of as many devices."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from sharebench.figures import NAMES, line_panels
from sharebench.figures.data import Study
from sharebench.figures.page import Sheet
from sharebench.figures.style import GREY, SMALL_POINTS

TOTAL = "throughput_total_hz"
NAME_INCHES = (0.85, 0.13)
"""Width and height of the ideal line's name, with some air."""


def draw(study: Study) -> Sheet:
    """One panel per workload: iterations per second of all tenants with their interval; the ideal line."""
    return line_panels.panels(study, NAMES["throughput"].title, "Total throughput (iterations/s)", TOTAL, _panel)


def _panel(ax: Axes, panel: line_panels.Panel) -> None:
    rows = panel.rows
    # The ideal line may leave the panel: the room is for the data, with some above it for the line's name.
    top = 1.3 * float(rows[[TOTAL, f"{TOTAL}_high"]].max().max())
    ax.set_ylim(0, top)
    alone = rows.loc[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1), TOTAL].dropna()
    if not alone.empty and rows["replicas"].max() > 1:
        _ideal(ax, panel, float(alone.iloc[0]), top)
    for line in panel.lines:
        bars = line_panels.intervals(line.rows, TOTAL)
        ax.errorbar(line.x, line.rows[TOTAL], yerr=bars, capsize=1.8, capthick=0.8, elinewidth=0.8, **line.look.line)
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
