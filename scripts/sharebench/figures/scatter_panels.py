"""Two metrics of tables/summary.csv against each other: one panel per workload, one line per strategy."""

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.line_panels import intervals
from sharebench.figures.page import Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, log_axis, looks

TOTAL, POWER = "throughput_total_hz", "power_mean_watts"
STP, ANTT = "stp", "antt"


def power(study: data.DrawnStudy) -> Sheet:
    """Total throughput across, mean power up."""
    labels = ("Total throughput (iterations/s)", "Power of the device (W)")
    return _planes(study, ENTRIES["power"].title, (TOTAL, POWER), labels, _power_axes)


def progress(study: data.DrawnStudy) -> Sheet:
    """System throughput across, mean slowdown up (Eyerman & Eeckhout, IEEE Micro 2008)."""
    labels = ("System throughput (STP)", "Mean slowdown (ANTT)")
    return _planes(study, ENTRIES["progress"].title, (STP, ANTT), labels, _progress_axes)


def _power_axes(ax: Axes, rows: pd.DataFrame) -> None:
    ax.set_xlim(0, 1.12 * rows[TOTAL].max())
    ax.set_ylim(0, 1.12 * rows[POWER].max())
    if ax.get_xlim()[1] >= 1e4:
        ax.xaxis.set_major_formatter(EngFormatter())


def _progress_axes(ax: Axes, rows: pd.DataFrame) -> None:
    low, high = rows[ANTT].min(), rows[ANTT].max()
    log_axis(ax, "y", low / 1.2, high * 1.25)
    ax.set_xlim(0, 1.15 * rows[STP].max())
    ax.axvline(1, color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=1)


def _planes(
    study: data.DrawnStudy,
    title: str,
    metrics: tuple[str, str],
    labels: tuple[str, str],
    finish: Callable[[Axes, pd.DataFrame], None],
    facts: Sequence[str] = (),
) -> Sheet:
    """`metrics` (across, up) with their intervals, the number of tenants at the end of a line; `finish` ends a panel.

    A line stops where a number of tenants has no value, which `words` of the page says.
    """
    table = study.without_mixes(data.summary(study)).sort_values("replicas", kind="stable")
    wanted = [f"{metric}{end}" for metric in metrics for end in ("", "_low", "_high")]
    table = table.reindex(columns=[*data.OF_ROW, *wanted])
    names = study.strategies(table)
    style = looks(study.catalogue, names)
    workloads = study.workloads(table)
    page = sheet(
        title,
        [*study.facts, "at the end of each line: number of tenants", *facts],
        max(len(workloads), 1),
        x_label=labels[0],
        y_label=labels[1],
        legend=[Line2D([], [], label=name, **style[name].line) for name in names],
        note=study.left_out,
    )
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: the summary has no rows.")
    for ax, workload in zip(page.axes, workloads, strict=False):
        rows = table[table["workload"] == workload]
        has_both = rows[list(metrics)].notna().all(axis="columns")
        for row in rows[~has_both].to_dict("records"):
            page.words.append(f"{workload}: {row['strategy']} at {row['replicas']} tenants is {data.absence(row)}")
        if not has_both.any():
            say(page, ax, f"{workload}: no valid measurement")
            continue
        ax.set_title(workload)
        for name in names:
            own = rows[rows["strategy"] == name]
            across, up = (own[metric].where(has_both) for metric in metrics)
            xerr, yerr = (intervals(own, metric) for metric in metrics)
            look = {"capsize": 1.2, "capthick": 0.6, "elinewidth": 0.6, **style[name].line}
            ax.errorbar(across, up, xerr=xerr, yerr=yerr, **look)
            ends = own[has_both.loc[own.index]].tail(1)
            for n, x, y in zip(ends["replicas"], ends[metrics[0]], ends[metrics[1]], strict=True):
                ax.annotate(f"{n}", (x, y), (4, 2), textcoords="offset points", size=SMALL_POINTS, color=GREY)
        finish(ax, rows[has_both])
    return page
