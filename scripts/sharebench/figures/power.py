"""Power of the device over what it gets done."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from sharebench.figures import NAMES
from sharebench.figures.data import Study
from sharebench.figures.page import Sheet
from sharebench.figures.scatter_panels import planes

TOTAL, POWER = "throughput_total_hz", "power_mean_watts"


def draw(study: Study) -> Sheet:
    """One panel per workload: total throughput across, mean power up, each with its interval."""
    labels = ("Total throughput (iterations/s)", "Power of the device (W)")
    return planes(study, NAMES["power"].title, (TOTAL, POWER), labels, _panel)


def _panel(ax: Axes, rows: pd.DataFrame) -> None:
    ax.set_xlim(0, 1.12 * rows[TOTAL].max())
    ax.set_ylim(0, 1.12 * rows[POWER].max())
    if ax.get_xlim()[1] >= 1e4:
        ax.xaxis.set_major_formatter(EngFormatter())
