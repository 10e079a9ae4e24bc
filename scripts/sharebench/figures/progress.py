"""System throughput against average turnaround time: how much work is done, and what each tenant waits for it."""

import pandas as pd
from matplotlib.axes import Axes

from sharebench.figures import NAMES
from sharebench.figures.data import Study
from sharebench.figures.page import Sheet
from sharebench.figures.scatter_panels import planes
from sharebench.figures.style import GREY, log_axis

STP, ANTT = "stp", "antt"


def draw(study: Study) -> Sheet:
    """One panel per workload: STP across, ANTT up, each with its interval (Eyerman & Eeckhout, IEEE Micro 2008)."""
    labels = ("System throughput (STP)", "Mean slowdown (ANTT)")
    return planes(study, NAMES["progress"].title, (STP, ANTT), labels, _panel)


def _panel(ax: Axes, rows: pd.DataFrame) -> None:
    low, high = rows[ANTT].min(), rows[ANTT].max()
    log_axis(ax, "y", low / 1.2, high * 1.25)
    ax.set_xlim(0, 1.15 * rows[STP].max())
    ax.axvline(1, color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=1)
