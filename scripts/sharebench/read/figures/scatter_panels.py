"""Two metrics against each other: one panel per workload, a line per strategy through its numbers of tenants."""

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from sharebench.read.figures.data import POINT_COLUMNS, DrawnStudy, absences
from sharebench.read.figures.looks import strategy_looks
from sharebench.read.figures.page import Sheet, explain_blank, study_sheet
from sharebench.read.figures.panels import (
    REFERENCE_LINE,
    Quantity,
    error_bars,
    interval_columns,
    label_point,
    name_points,
    strategy_keys,
)
from sharebench.read.figures.style import set_log_axis
from sharebench.study.loads import has_one_load

TOTAL, POWER = "throughput_total_hz", "power_mean_watts"
STP, ANTT = "stp", "antt"


def power(study: DrawnStudy) -> Sheet:
    """Total throughput across, mean power up."""

    def axes(ax: Axes, rows: pd.DataFrame) -> None:
        ax.set_xlim(0, 1.12 * rows[TOTAL].max())
        ax.set_ylim(0, 1.12 * rows[POWER].max())
        if ax.get_xlim()[1] >= 1e4:
            ax.xaxis.set_major_formatter(EngFormatter())

    labels = ("Total throughput (iterations/s)", "Power of the device (W)")
    return _draw_planes(
        study, study.plain_summary(), "power", (TOTAL, POWER), labels, ("{} iterations/s", "{} W"), axes
    )


def progress(study: DrawnStudy) -> Sheet:
    """System throughput across, mean slowdown up (Eyerman & Eeckhout, IEEE Micro 2008)."""

    def axes(ax: Axes, rows: pd.DataFrame) -> None:
        low, high = rows[ANTT].min(), rows[ANTT].max()
        set_log_axis(ax, "y", low / 1.2, high * 1.25)
        ax.set_xlim(0, 1.15 * rows[STP].max())
        ax.axvline(1, **REFERENCE_LINE)

    labels = ("System throughput (STP)", "Mean slowdown (ANTT)")
    table = study.plain_summary()
    # Each replica has a part of the load of one alone, so it is faster though nothing was gained.
    is_of_one = table["workload"].map(partial(has_one_load, study.config)).astype(bool)
    table = table[~is_of_one]
    return _draw_planes(study, table, "progress", (STP, ANTT), labels, ("STP {}", "ANTT {}"), axes)


def _draw_planes(
    study: DrawnStudy,
    table: pd.DataFrame,
    name: str,
    metrics: tuple[str, str],
    labels: tuple[str, str],
    texts: tuple[str, str],
    finish: Callable[[Axes, pd.DataFrame], None],
) -> Sheet:
    """`metrics` (across, up) with intervals; a line is interrupted where a value is missing.

    `texts` are about a value of each, `finish` sets the axes.
    """
    table = table.sort_values("replicas", kind="stable")
    table = table.reindex(
        columns=[*POINT_COLUMNS, *(column for metric in metrics for column in interval_columns(metric))]
    )
    names, panels = study.strategies(table), study.drawn_by_workload(table)
    style = strategy_looks(study.catalogue, names)
    page = study_sheet(
        study,
        name,
        len(panels),
        "the summary has no rows of tenants with a load of their own" if STP in metrics else "the summary has no rows",
        more=["at the end of each line: number of tenants"],
        note=study.panel_omissions,
        x_label=labels[0],
        y_label=labels[1],
        legend=strategy_keys(style, names),
    )
    for ax, (workload, rows) in zip(page.axes, panels.items(), strict=False):
        has_both = rows[list(metrics)].notna().all(axis="columns")
        page.alt_text.extend(absences(rows, metrics))
        if not has_both.any():
            explain_blank(page, ax, f"{workload}: no valid measurement")
            continue
        ax.set_title(workload)
        ends: list[tuple[int, float, float]] = []
        for strategy in names:
            own = rows[rows["strategy"] == strategy]
            across, up = (own[metric].where(has_both) for metric in metrics)
            xerr, yerr = (error_bars(own, metric) for metric in metrics)
            look = {"capsize": 1.2, "capthick": 0.6, "elinewidth": 0.6, **style[strategy].line}
            drawn = ax.errorbar(across, up, xerr=xerr, yerr=yerr, **look)
            name_points(drawn.lines[0], own, [Quantity(*each) for each in zip(metrics, texts, strict=True)])
            last = own[has_both.loc[own.index]].tail(1)
            ends += last[["replicas", *metrics]].itertuples(index=False, name=None)
        finish(ax, rows[has_both])
        label_ends(ax, ends)
    return page


def label_ends(ax: Axes, ends: Sequence[tuple[int, float, float]]) -> None:
    """Write the number of tenants next to the end of each line; ends that lie close together share it."""
    labelled: list[tuple[int, float, float]] = []
    for n, x, y in ends:
        across, up = (ax.transScale + ax.transLimits).transform((x, y))
        if not any(n == m and abs(across - a) < 0.06 and abs(up - b) < 0.06 for m, a, b in labelled):
            label_point(ax, f"{n}", (x, y), (4, 2))
            labelled.append((n, across, up))
