"""Distribution of the latencies of each strategy at its largest number of tenants."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import Sheet, say, sheet
from sharebench.figures.style import Look, log_axis, looks

MARKED_SHARES = (0.2, 0.5, 0.8)
"""Shares at which a curve carries its strategy's marker."""


Buckets = tuple[data.Floats, data.Floats]
"""Upper bounds in seconds, ascending, and counts."""


def draw(study: data.DrawnStudy) -> Sheet:
    """One panel per workload: the share of iterations that took at most so many milliseconds."""
    return per_workload(study, "distribution", "Latency (ms)", "Share of iterations", _panel)


def per_workload(
    study: data.DrawnStudy,
    name: str,
    x_label: str,
    y_label: str,
    panel: Callable[[Axes, dict[str, Buckets], dict[str, Look]], bool],
) -> Sheet:
    """Figure `name` with a panel for each workload, from the histograms of its strategies at their largest N.

    `panel` draws these; False when none of them has anything to draw.
    """
    samples = data.samples(study)
    style = looks(study.catalogue, {sample.strategy for sample in samples})
    workloads = list(dict.fromkeys(sample.workload for sample in samples))
    page = sheet(
        ENTRIES[name].title,
        study.facts,
        max(len(workloads), 1),
        x_label=x_label,
        y_label=y_label,
        legend=legend(samples, style),
        note=study.left_out,
    )
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: there are no cells.")
    for ax, workload in zip(page.axes, workloads, strict=False):
        of_workload = [sample for sample in samples if sample.workload == workload]
        absent = [sample.strategy for sample in of_workload if sample.replicas is None]
        page.words.extend(f"{workload}: {strategy} has no valid cell" for strategy in absent)
        buckets = {
            sample.strategy: data.histogram(study, sample) for sample in of_workload if sample.replicas is not None
        }
        if buckets and panel(ax, buckets, style):
            ax.set_title(f"{workload}, N = {of_workload[0].largest}")
        else:
            say(page, ax, f"{workload}: no valid measurement")
    return page


def _panel(ax: Axes, buckets: dict[str, Buckets], style: dict[str, Look]) -> bool:
    bounds_ms = []
    for strategy, (upper_seconds, count) in buckets.items():
        # What overflowed the buckets has no upper bound: the curve ends below 1.
        is_finite = np.isfinite(upper_seconds)
        x, y = 1e3 * upper_seconds[is_finite], (count.cumsum() / count.sum())[is_finite]
        if not len(x):
            continue
        bounds_ms += [x[0], x[-1]]
        look = style[strategy]
        ax.step([x[0], *x], [0, *y], where="post", color=look.color, ls=look.dashes)
        marked = np.minimum(np.searchsorted(y, MARKED_SHARES), len(y) - 1)
        ax.plot(x[marked], y[marked], ls="", marker=look.marker, color=look.color)
    ax.set_ylim(0, 1.02)
    if bounds_ms:
        log_axis(ax, "x", min(bounds_ms) / 1.15, max(bounds_ms) * 1.15)
    return True


def legend(samples: list[data.Sample], style: dict[str, Look]) -> list[Line2D]:
    """One entry per strategy, which says where its number of tenants is not the largest."""
    entries = []
    for strategy in dict.fromkeys(sample.strategy for sample in samples):
        notes = {sample.workload: _note(sample) for sample in samples if sample.strategy == strategy}
        note = "; ".join(f"{workload}: {note}" for workload, note in notes.items() if note)
        if len(set(notes.values())) == 1:
            note = next(iter(notes.values()))
        label = f"{strategy} ({note})" if note else strategy
        entries.append(Line2D([], [], label=label, **style[strategy].line))
    return entries


def _note(sample: data.Sample) -> str:
    if sample.replicas is None:
        return "no valid cell"
    return f"N = {sample.replicas}" if sample.replicas < sample.largest else ""
