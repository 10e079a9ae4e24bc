"""Two metrics against each other: one panel per workload, a line per strategy through its numbers of tenants."""

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from sharebench.read.figures.data import POINT_COLUMNS, DrawnStudy, absences
from sharebench.read.figures.page import Sheet, explain_blank, study_sheet
from sharebench.read.figures.panels import (
    REFERENCE_LINE,
    THIN_BARS,
    Quantity,
    draw_line,
    interval_columns,
    label_point,
    set_rate_axis,
    strategy_keys,
)
from sharebench.read.figures.style import set_log_axis
from sharebench.study.loads import has_one_load

TOTAL = Quantity("throughput_total_hz", "{} iterations/s")
POWER = Quantity("power_mean_watts", "{} W")
STP, ANTT = Quantity("stp", "STP {}"), Quantity("antt", "ANTT {}")


def power(study: DrawnStudy) -> Sheet:
    """Total throughput across, mean power up."""

    def finish(ax: Axes, rows: pd.DataFrame) -> None:
        set_rate_axis(ax, rows[TOTAL.column])
        ax.set_ylim(0, 1.12 * rows[POWER.column].max())

    labels = ("Total throughput (iterations/s)", "Power of the device (W)")
    return _draw_planes(study, study.plain_summary(), "power", (TOTAL, POWER), labels, finish)


def progress(study: DrawnStudy) -> Sheet:
    """System throughput across, mean slowdown up (Eyerman & Eeckhout, IEEE Micro 2008)."""

    def finish(ax: Axes, rows: pd.DataFrame) -> None:
        slowdowns = rows[ANTT.column]
        set_log_axis(ax, "y", slowdowns.min() / 1.2, slowdowns.max() * 1.25)
        ax.set_xlim(0, 1.15 * rows[STP.column].max())
        ax.axvline(1, **REFERENCE_LINE)

    # Each replica has a part of the load of one alone, so it is faster though nothing was gained.
    table = study.plain_summary()
    table = table[~table["workload"].map(partial(has_one_load, study.config)).astype(bool)]
    labels, what = ("System throughput (STP)", "Mean slowdown (ANTT)"), "rows of tenants with a load of their own"
    return _draw_planes(study, table, "progress", (STP, ANTT), labels, finish, what)


def _draw_planes(
    study: DrawnStudy,
    table: pd.DataFrame,
    name: str,
    quantities: tuple[Quantity, Quantity],
    labels: tuple[str, str],
    finish: Callable[[Axes, pd.DataFrame], None],
    what: str = "rows",
) -> Sheet:
    """`quantities` (across, up) with intervals; `finish` sets the axes.

    A line is interrupted where a value is missing. `what` is drawn of the summary.
    """
    across, up = quantities
    metrics = [across.column, up.column]
    table = table.sort_values("replicas", kind="stable")
    table = table.reindex(columns=[*POINT_COLUMNS, *(end for metric in metrics for end in interval_columns(metric))])
    looks, panels = study.looks(table), study.drawn_by_workload(table)
    page = study_sheet(
        study,
        name,
        len(panels),
        f"the summary has no {what}",
        more=["at the end of each line: number of tenants"],
        note=study.panel_omissions,
        x_label=labels[0],
        y_label=labels[1],
        legend=strategy_keys(looks),
    )
    for ax, (workload, rows) in zip(page.axes, panels.items(), strict=False):
        has_both = rows[metrics].notna().all(axis="columns")
        page.alt_text.extend(absences(rows, metrics))
        if not has_both.any():
            explain_blank(page, ax, f"{workload}: no valid measurement")
            continue
        ax.set_title(workload)
        ends: list[tuple[int, float, float]] = []
        for strategy, look in looks.items():
            own = rows[rows["strategy"] == strategy]
            x = own[across.column].where(has_both)
            draw_line(ax, own, look, x, up, across=across.column, said=[across], bars=THIN_BARS)
            ends += own[x.notna()].tail(1)[["replicas", *metrics]].itertuples(index=False, name=None)
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
