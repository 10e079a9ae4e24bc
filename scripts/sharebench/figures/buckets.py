"""What coarse buckets hide: the study's own latencies, and what a histogram with few buckets makes of them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.distribution import Buckets
from sharebench.figures.page import PAGE_INCHES, Sheet, say, sheet
from sharebench.figures.style import GREY, log_axis, looks
from sharebench.records.histogram import histogram_quantile

CLIENT_DEFAULT = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds in seconds of prometheus_client's Histogram where nobody chose any (prometheus_client/metrics.py)."""
QUIGLEY = (0.001, 0.01, 0.1, 0.25, *(bound for bound in CLIENT_DEFAULT if bound > 0.25))
"""Those up to 0.25 s of the matrix products in Quigley's comparison of 2024; beyond they are not known to us."""
QUANTILES = {"p50": 0.5, "p99": 0.99}
LANE = 0.18
"""Half the distance of the two lanes of a strategy."""


def draw(study: data.DrawnStudy) -> Sheet:
    """A panel per workload and set of bounds: per strategy at its largest N the quantiles, true and by the buckets."""
    own = (study.config.get("prometheus") or {}).get("buckets")
    sets = (
        {"prometheus.buckets": tuple(own)} if own else {"Quigley's bounds": QUIGLEY, "default bounds": CLIENT_DEFAULT}
    )
    samples = [sample for sample in data.samples(study) if sample.replicas is not None]
    workloads = list(dict.fromkeys(sample.workload for sample in samples))
    style = looks(study.catalogue, {sample.strategy for sample in samples})
    most = max((sum(sample.workload == workload for sample in samples) for workload in workloads), default=1)
    page = sheet(
        ENTRIES["buckets"].title,
        study.facts,
        max(len(workloads) * len(sets), 1),
        x_label="Latency (ms)",
        y_label="",
        legend=[
            Line2D([], [], color=GREY, marker=marker, ls="", mfc=face, label=label)
            for marker, face, label in (
                ("o", GREY, "p50 of the record"),
                ("o", "none", "p50 by histogram_quantile"),
                ("s", GREY, "p99 of the record"),
                ("s", "none", "p99 by histogram_quantile"),
            )
        ],
        note=f"Grey lines are the bounds, moved to the record's nearest (0.6 % at most). {study.left_out}".strip(),
        columns=2,
        width_inches=PAGE_INCHES,
        panel_inches=0.35 + 0.34 * most,
        left_inches=0.95,
    )
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: there is no valid cell.")
    panels = [(workload, name, bounds) for workload in workloads for name, bounds in sets.items()]
    for ax, (workload, name, bounds) in zip(page.axes, panels, strict=False):
        rows = {
            f"{sample.strategy} × {sample.replicas}": (data.histogram(study, sample), style[sample.strategy].color)
            for sample in samples
            if sample.workload == workload
        }
        ax.set_title(f"{workload}: {name}")
        page.words.extend(f"{workload}, {name}: {line}" for line in _panel(ax, rows, bounds))
    return page


def coarse(buckets: Buckets, bounds: Sequence[float]) -> tuple[list[float], list[float]]:
    """The same counts in fewer buckets: the bounds moved to the nearest of `buckets`' own, infinity, and counts."""
    uppers, counts = buckets
    kept = [_nearest(bound) for bound in bounds]
    cumulative = [float(counts[uppers <= bound * (1 + 1e-9)].sum()) for bound in kept]
    return [*kept, np.inf], [high - low for low, high in pairwise([0.0, *cumulative, float(counts.sum())])]


def _nearest(bound: float) -> float:
    """The bound of the record's layout (64 per doubling from 1 µs) that is nearest on the log scale."""
    return float(1e-6 * 2 ** (round(64 * np.log2(bound / 1e-6)) / 64))


def fine_quantile(buckets: Buckets, q: float) -> float:
    """The quantile by the record's own buckets, each 1.1 % wide: the geometric middle of the one that holds it."""
    uppers, counts = buckets
    index = int(np.searchsorted(counts.cumsum(), q * counts.sum()))
    return float(uppers[index] * 2 ** (-0.5 / 64))


def _panel(ax: Axes, rows: dict[str, tuple[Buckets, str]], bounds: Sequence[float]) -> list[str]:
    """Draw the rows: histogram and colour by label. Returns what they say in words."""
    drawn, words = [], []
    for row, (label, (buckets, color)) in enumerate(rows.items()):
        uppers, counts = coarse(buckets, bounds)
        for lane, marker, (name, q) in zip((-LANE, LANE), ("o", "s"), QUANTILES.items(), strict=True):
            true, guess = fine_quantile(buckets, q), histogram_quantile(q, uppers, counts)
            if guess is None or not np.isfinite(true):
                continue
            y = row + lane
            ax.plot([1e3 * true, 1e3 * guess], [y, y], color=color, lw=0.7)
            ax.plot(1e3 * true, y, marker=marker, color=color, ls="")
            ax.plot(1e3 * guess, y, marker=marker, color=color, mfc="white", ls="")
            drawn += [true, guess]
            words.append(f"{label} {name} {1e3 * true:.3g} ms, by the buckets {1e3 * guess:.3g} ms")
    ax.set(ylim=(len(rows) - 0.5, -0.5), yticks=range(len(rows)))
    ax.set_yticklabels(list(rows))
    ax.grid(visible=False)
    if drawn:
        log_axis(ax, "x", 1e3 * min(drawn) / 1.6, 1e3 * max(drawn) * 1.6)
        for bound in bounds:
            ax.axvline(1e3 * _nearest(bound), color="#b5b5b5", lw=0.6, zorder=0)
    return words
