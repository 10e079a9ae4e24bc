"""Latencies of each strategy at its largest number of tenants, by percentile."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from sharebench.figures.data import DrawnStudy, Floats, Sample, histogram, samples
from sharebench.figures.page import Sheet, say, study_sheet
from sharebench.figures.style import Look, log_axis, looks

NEEDED_BEYOND = 3
"""This many iterations must lie beyond a percentile: p99 needs 300, whatever their effective number (in the tables)."""
PERCENTILES = {0.5: "50", 0.9: "90", 0.99: "99", 0.999: "99.9", 0.9999: "99.99", 0.99999: "99.999", 0.999999: "99.9999"}
"""Share of iterations → name."""
LEFT = 1 / (1 - 0.1)
"""The axis of percentiles begins at the 10th."""
NAME_INCHES = 0.42
"""Room that the name of a percentile needs."""

Buckets = tuple[Floats, Floats]
"""Upper bounds in seconds, ascending, and counts."""


def percentiles(study: DrawnStudy) -> Sheet:
    """Latency by percentile, on an axis on which each further nine is as far as the one before.

    A panel for each workload, from the histograms of its strategies at their largest N.
    """
    found = samples(study)
    style = looks(study.catalogue, {sample.strategy for sample in found})
    workloads = list(dict.fromkeys(sample.workload for sample in found))
    page = study_sheet(
        study,
        "percentiles",
        len(workloads),
        "there are no cells",
        x_label="Percentile",
        y_label="Latency (ms)",
        legend=_legend(found, style),
    )
    for ax, workload in zip(page.axes, workloads, strict=False):
        own = [sample for sample in found if sample.workload == workload]
        page.words.extend(f"{workload}: {each.strategy} has no valid cell" for each in own if each.replicas is None)
        buckets = {each.strategy: histogram(study, each) for each in own if each.replicas is not None}
        if buckets and _percentiles(ax, buckets, style):
            ax.set_title(f"{workload}, N = {own[0].largest}")
        else:
            say(page, ax, f"{workload}: no valid measurement")
    return page


def _legend(found: list[Sample], style: dict[str, Look]) -> list[Line2D]:
    """One entry per strategy, with its number of tenants where that is not the largest."""
    entries = []
    for strategy in dict.fromkeys(sample.strategy for sample in found):
        notes = {sample.workload: _note(sample) for sample in found if sample.strategy == strategy}
        note = "; ".join(f"{workload}: {note}" for workload, note in notes.items() if note)
        if len(set(notes.values())) == 1:
            note = next(iter(notes.values()))
        label = f"{strategy} ({note})" if note else strategy
        entries.append(Line2D([], [], label=label, **style[strategy].line))
    return entries


def _note(sample: Sample) -> str:
    if sample.replicas is None:
        return "no valid cell"
    return f"N = {sample.replicas}" if sample.replicas < sample.largest else ""


def curve(upper_seconds: Floats, count: Floats) -> tuple[Floats, Floats]:
    """Where each bucket ends, as one over the share of iterations beyond it (ascending), and its bound in ms.

    Only as far as the sample carries: with at least NEEDED_BEYOND iterations beyond, and bounds that are finite.
    """
    total = count.sum()
    one_over_beyond = total / np.maximum(total - count.cumsum(), NEEDED_BEYOND)
    # The bucket in which the sample ends counts up to there.
    is_carried = np.isfinite(upper_seconds) & (np.roll(one_over_beyond, 1) < total / NEEDED_BEYOND)
    is_carried[:1] = np.isfinite(upper_seconds[:1]) & (total > NEEDED_BEYOND)
    return one_over_beyond[is_carried], 1e3 * upper_seconds[is_carried]


def _percentiles(ax: Axes, buckets: dict[str, Buckets], style: dict[str, Look]) -> bool:
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
        ax.plot(marked, upper_ms[np.searchsorted(x, marked)], ls="", marker=look.marker, color=look.color)
        bounds_ms += [upper_ms[np.searchsorted(x, min(LEFT, x[-1]))], upper_ms[-1]]
    ax.set_xscale("log")
    ax.set_xlim(LEFT, right)
    inches_per_nine = ax.bbox.width / ax.figure.dpi / math.log10(right / LEFT)
    every = 2 if inches_per_nine < NAME_INCHES else 1
    names = [name if i % every == 0 else "" for i, name in enumerate(PERCENTILES.values())]
    ax.xaxis.set_major_locator(FixedLocator(places.tolist()))
    ax.xaxis.set_major_formatter(FixedFormatter(names))
    ax.xaxis.set_minor_locator(NullLocator())
    log_axis(ax, "y", min(bounds_ms) / 1.15, max(bounds_ms) * 1.15)
    return True
