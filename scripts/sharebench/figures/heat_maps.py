"""Slowdowns as heat maps: by strategy and number of tenants, and of pairs of workloads."""

import math

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import CHARACTER_INCHES, PAGE_INCHES, Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, TEXT_POINTS, plain

LEAST_FACTOR = 1.25
"""The colours reach at least so far on either side of 1, so that noise around it stays pale."""
MOST_WITH_INTERVALS = 4
"""With more workloads a cell has no room for its interval."""
MOST_WITH_NUMBERS = 10
"""With more numbers of tenants a cell has no room for its slowdown."""
CELL_INCHES, CELL_WITH_INTERVAL_INCHES = 0.36, 0.58
"""Room for a slowdown, and for one with its interval below it."""
ROW_INCHES = 0.24


def slowdown(study: data.DrawnStudy) -> Sheet:
    """One panel per workload: slowdown by strategy (down) and number of tenants (across), one colour scale for all."""
    table = study.without_mixes(data.summary(study))[[*data.OF_ROW, "slowdown"]]
    strategies, workloads = study.strategies(table), study.workloads(table)
    page = sheet(
        ENTRIES["slowdown"].title,
        [*study.facts, "white: as fast as alone, red: slower, the darker the more"],
        max(len(workloads), 1),
        x_label="Number of tenants",
        y_label="",
        note=study.left_out,
        columns=2,
        panel_inches=ROW_INCHES * max(len(strategies), 2),
        left_inches=0.1 + CHARACTER_INCHES * max((len(name) for name in strategies), default=0),
    )
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: the summary has no rows.")
    norm = _norm(table["slowdown"])
    for ax, workload in zip(page.axes, workloads, strict=False):
        rows = table[table["workload"] == workload]
        for row in rows[rows["slowdown"].isna()].to_dict("records"):
            page.words.append(f"{workload}: {row['strategy']} at {row['replicas']} tenants is {data.absence(row)}")
        if rows["slowdown"].isna().all():
            say(page, ax, f"{workload}: no valid measurement")
            continue
        ax.set_title(workload)
        _by_replicas(ax, rows, strategies, norm)
    return page


def _by_replicas(ax: Axes, rows: pd.DataFrame, strategies: list[str], norm: LogNorm) -> None:
    replicas = sorted(set(rows["replicas"]))
    values = np.full((len(strategies), len(replicas)), np.nan)
    for row in rows.to_dict("records"):
        at = strategies.index(row["strategy"]), replicas.index(row["replicas"])
        values[at] = row["slowdown"]
        is_blank = math.isnan(row["slowdown"])
        text = "×" if is_blank else plain(row["slowdown"])
        color = _ink(row["slowdown"], norm)
        if len(replicas) <= MOST_WITH_NUMBERS:
            ax.text(at[1], at[0], text, ha="center", va="center", size=SMALL_POINTS, color=color)
    _colour(ax, values, norm)
    ax.set_xticks(range(len(replicas)), [str(n) for n in replicas])
    ax.set_yticks(range(len(strategies)), strategies)


def interference(study: data.DrawnStudy) -> Sheet:
    """One panel per strategy: slowdown of the row's workload beside the column's, one colour scale for all."""
    table = data.interference(study)
    names = study.config["interference"]
    strategies = study.strategies(table)
    longest = max((len(name) for name in names), default=0) * CHARACTER_INCHES
    left = 0.3 + longest
    cell = CELL_WITH_INTERVAL_INCHES if len(names) <= MOST_WITH_INTERVALS else CELL_INCHES
    columns = max(1, min(len(strategies), 3, int(PAGE_INCHES / (left + cell * len(names)))))
    page = sheet(
        ENTRIES["interference"].title,
        [*study.facts, "white: as fast as alone, red: slower, the darker the more"],
        max(len(strategies), 1),
        x_label="Beside",
        y_label="Slowdown of",
        note=study.not_shown,
        columns=columns,
        width_inches=PAGE_INCHES if columns > 1 else 0.0,
        panel_inches=min(2.4, PAGE_INCHES / max(columns, 2) - left),
        left_inches=left,
        below_inches=0.6 * longest,
    )
    if not strategies:
        say(page, page.axes[0], "Nothing to draw: no strategy has pairs.")
    norm = _norm(table["slowdown"])
    for ax, strategy in zip(page.axes, strategies, strict=False):
        ax.set_title(strategy)
        _pairs(ax, table[table["strategy"] == strategy], names, norm)
        for row in table[(table["strategy"] == strategy) & table["slowdown"].isna()].to_dict("records"):
            page.words.append(f"{strategy}: {row['victim']} beside {row['aggressor']} is {data.absence(row)}")
    return page


def _pairs(ax: Axes, rows: pd.DataFrame, names: list[str], norm: LogNorm) -> None:
    values = np.full((len(names), len(names)), np.nan)
    for row in rows.to_dict("records"):
        at = names.index(row["victim"]), names.index(row["aggressor"])
        values[at] = row["slowdown"]
        is_blank = math.isnan(row["slowdown"])
        text = data.absence(row) if is_blank else plain(row["slowdown"])
        color = _ink(row["slowdown"], norm)
        has_interval = not math.isnan(row["slowdown_low"]) and len(names) <= MOST_WITH_INTERVALS
        y = at[0] - (0.12 if has_interval else 0)
        ax.text(at[1], y, text, ha="center", va="center", size=SMALL_POINTS if is_blank else TEXT_POINTS, color=color)
        if has_interval:
            interval = f"{plain(row['slowdown_low'])}–{plain(row['slowdown_high'])}"
            ax.text(at[1], at[0] + 0.18, interval, ha="center", va="center", size=0.8 * SMALL_POINTS, color=color)
    _colour(ax, values, norm)
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)


def _norm(slowdowns: pd.Series) -> LogNorm:
    """One scale for all panels, as far below 1 as above."""
    factor = max([LEAST_FACTOR, *(math.exp(abs(math.log(value))) for value in slowdowns.dropna())])
    return LogNorm(1 / factor, factor)


def _ink(slowdown: float, norm: LogNorm) -> str:
    """The colour of text on the colour of a slowdown."""
    if math.isnan(slowdown):
        return GREY
    return "white" if abs(2 * norm(slowdown) - 1) > 0.7 else "black"


def _colour(ax: Axes, values: data.Floats, norm: LogNorm) -> None:
    ax.imshow(values, cmap=sns.color_palette("vlag", as_cmap=True), norm=norm, aspect="auto")
    ax.grid(visible=False)
    ax.tick_params(length=0)
    sns.despine(ax=ax, left=True, bottom=True)
