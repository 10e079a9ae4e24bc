"""How the figures look: type, lines and scales."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from sharebench.read.figures.looks import StrategyLook

GREY = "#5f5f5f"
TITLE_POINTS, TEXT_POINTS, SMALL_POINTS = 9.0, 7.0, 6.2

THEME: dict[str, Any] = {
    **sns.axes_style("ticks"),
    "font.family": "DejaVu Sans",  # the one that matplotlib brings along: the same image everywhere
    "font.size": TEXT_POINTS,
    "axes.titlesize": TEXT_POINTS,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 5.0,
    "axes.titley": 1.0,  # where it comes out anyway: finding that out takes as long as a tenth of a figure
    "axes.labelsize": TEXT_POINTS,
    "axes.labelpad": 3.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.0,
    "lines.markeredgewidth": 0.8,
    "legend.fontsize": TEXT_POINTS,
    "svg.fonttype": "path",  # no font of the reader's machine is needed
    "svg.hashsalt": "sharebench",
    "pdf.fonttype": 42,
}
for _axis in ("xtick", "ytick"):
    THEME |= {
        f"{_axis}.labelsize": TEXT_POINTS,
        f"{_axis}.color": GREY,
        f"{_axis}.labelcolor": "black",
        f"{_axis}.major.size": 2.5,
        f"{_axis}.major.width": 0.6,
        f"{_axis}.minor.size": 1.5,
        f"{_axis}.minor.width": 0.4,
    }


@contextmanager
def theme() -> Iterator[None]:
    """The project's settings, active whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, THEME))
        yield


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high` (both above 0) in steps of 1-2-5, coarser or finer if necessary."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        round_ones = (float(f"{step}e{decade}") for decade in decades for step in steps)
        ticks = [tick for tick in round_ones if low <= tick <= high]
        if len(ticks) <= 7:
            break
    if len(ticks) < 3:
        linear = map(float, MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high))
        ticks = [tick for tick in linear if low <= tick <= high]
    return ticks


def set_log_axis(ax: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Set a log scale from `low` to `high`, with plain numbers at round values and unlabelled minor ticks."""
    ax.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    # Keep only visible ticks: a tick is slow to draw, and the locator returns those of whole decades and more.
    minor = LogLocator(subs="all", numticks=99).tick_values(low, high)
    axis.set_minor_locator(FixedLocator([tick for tick in minor if low <= tick <= high]))
    axis.set_minor_formatter(NullFormatter())


def shades(look: StrategyLook, count: int) -> list[tuple[float, ...]]:
    """`count` shades of a strategy's colour, one per tenant, the darkest first."""
    pale = sns.light_palette(look.color, n_colors=10)[4]
    return list(sns.blend_palette([look.color, pale], n_colors=count))
