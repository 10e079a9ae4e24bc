"""One cell per strategy over its window: drift, stalls and unfairness."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sharebench.figures.data import DrawnStudy, Floats, Sample, samples, timelines
from sharebench.figures.page import PAGE_INCHES, Sheet, say, study_sheet
from sharebench.figures.style import is_narrow, log_axis, looks, shades

# One tenant: seconds since the window's start and mean latency in ms (NaN where none began) of each slot.
Series = tuple[Floats, Floats]


def timeline(study: DrawnStudy) -> Sheet:
    """One panel per workload and strategy: mean latency per slot, a line per tenant."""
    found = samples(study)
    style = looks(study.catalogue, {sample.strategy for sample in found})
    has_workloads = len({sample.workload for sample in found}) > 1
    # A narrow panel has no room for the number of tenants right of the name of the strategy.
    joint = "\n" if is_narrow() else ", "
    page = study_sheet(
        study,
        "timeline",
        len(found),
        "there are no cells",
        more=["one line per tenant, the first the darkest"],
        x_label="Time in the window (s)",
        y_label="Latency (ms)",
        columns=4,
        width_inches=PAGE_INCHES,
        panel_inches=1.3,
        title_lines=1 + has_workloads + is_narrow(),
    )
    drawn: dict[str, list[tuple[Axes, list[Series]]]] = {}
    for ax, sample in zip(page.axes, found, strict=False):
        tenants = [] if sample.replicas is None else _series(study, sample)
        if not tenants:
            why = f"no valid cell. {sample.reason}" if sample.replicas is None else "two scrapes have no timeline"
            say(page, ax, f"{sample.workload}, {sample.strategy}: {why}")
            continue
        name = f"{sample.workload}\n{sample.strategy}" if has_workloads else sample.strategy
        ax.set_title(f"{name}{joint}N = {sample.replicas}")
        for (seconds, mean_ms), shade in zip(tenants, shades(style[sample.strategy], len(tenants)), strict=True):
            # A slot between two empty ones has no line through it: a dot keeps it visible.
            is_drawn = np.pad(np.isfinite(mean_ms), 1)
            alone = np.flatnonzero(is_drawn[1:-1] & ~is_drawn[:-2] & ~is_drawn[2:])
            ax.plot(seconds, mean_ms, color=shade, lw=0.9, marker=".", ms=2.5, markevery=alone.tolist())
        drawn.setdefault(sample.workload, []).append((ax, tenants))
    for panels in drawn.values():
        means = np.concatenate([mean_ms for _, tenants in panels for _, mean_ms in tenants])
        for ax, tenants in panels:
            log_axis(ax, "y", np.nanmin(means) / 1.3, np.nanmax(means) * 1.3)
            ax.set_xlim(0, float(tenants[0][0][-1] + tenants[0][0][0]))
            ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            ax.xaxis.set_major_formatter("{x:g}")
    return page


def _series(study: DrawnStudy, sample: Sample) -> list[Series]:
    series = []
    for timeline in timelines(study, sample):
        count = np.array(timeline["count"], dtype=np.float64)
        total = np.array(timeline["sum_seconds"])
        middle_seconds = (np.arange(len(count)) + 0.5) * timeline["slot_seconds"]
        mean_ms = 1e3 * np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
        series.append((middle_seconds.astype(np.float64), mean_ms.astype(np.float64)))
    return series
