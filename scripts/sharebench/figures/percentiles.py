"""Latency by percentile, on an axis on which each further nine is as far as the one before."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from sharebench.figures import data
from sharebench.figures.distribution import Buckets, per_workload
from sharebench.figures.page import Sheet
from sharebench.figures.style import Look, log_axis

NEEDED_BEYOND = 3
"""So many iterations must lie beyond a percentile: p99 needs 300, whatever they are worth (the tables ask that too)."""
PERCENTILES = {0.5: "50", 0.9: "90", 0.99: "99", 0.999: "99.9", 0.9999: "99.99", 0.99999: "99.999", 0.999999: "99.9999"}
"""Share of iterations → name."""
LEFT = 1 / (1 - 0.1)
"""The axis begins at the 10th percentile."""
NAME_INCHES = 0.42
"""Room that the name of a percentile needs."""


def draw(study: data.DrawnStudy) -> Sheet:
    """One panel per workload: each strategy's latency by percentile at its largest number of tenants, both axes log."""
    return per_workload(study, "percentiles", "Percentile", "Latency (ms)", _panel)


def curve(upper_seconds: data.Floats, count: data.Floats) -> tuple[data.Floats, data.Floats]:
    """Where each bucket ends, as one over the share of iterations beyond it (ascending), and its bound in ms.

    Only as far as the sample carries: with at least NEEDED_BEYOND iterations beyond, and bounds that are finite.
    """
    total = count.sum()
    one_over_beyond = total / np.maximum(total - count.cumsum(), NEEDED_BEYOND)
    # The bucket in which the sample ends counts up to there.
    is_carried = np.isfinite(upper_seconds) & (np.roll(one_over_beyond, 1) < total / NEEDED_BEYOND)
    is_carried[:1] = np.isfinite(upper_seconds[:1]) & (total > NEEDED_BEYOND)
    return one_over_beyond[is_carried], 1e3 * upper_seconds[is_carried]


def _panel(ax: Axes, buckets: dict[str, Buckets], style: dict[str, Look]) -> bool:
    curves = {strategy: found for strategy, own in buckets.items() if len((found := curve(*own))[0])}
    if not curves:
        return False
    places = np.array([1 / (1 - q) for q in PERCENTILES])
    right = max(2.5, *(1.3 * x[-1] for x, _ in curves.values()))
    bounds_ms = []
    for strategy, (x, upper_ms) in curves.items():
        look = style[strategy]
        ax.step([1, *x], [upper_ms[0], *upper_ms], where="pre", color=look.color, ls=look.dashes)
        marked = places[places <= x[-1]]
        at = np.searchsorted(x, marked)
        ax.plot(marked, upper_ms[at], ls="", marker=look.marker, color=look.color)
        bounds_ms += [upper_ms[np.searchsorted(x, min(LEFT, x[-1]))], upper_ms[-1]]
    ax.set_xscale("log")
    ax.set_xlim(LEFT, right)
    inches_per_nine = ax.bbox.width / ax.figure.dpi / math.log10(right / LEFT)
    names = list(PERCENTILES.values())
    if inches_per_nine < NAME_INCHES:
        names = [name if i % 2 == 0 else "" for i, name in enumerate(names)]
    ax.xaxis.set_major_locator(FixedLocator(places.tolist()))
    ax.xaxis.set_major_formatter(FixedFormatter(names))
    ax.xaxis.set_minor_locator(NullLocator())
    log_axis(ax, "y", min(bounds_ms) / 1.15, max(bounds_ms) * 1.15)
    return True
