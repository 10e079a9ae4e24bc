"""How much each workload is slowed down beside each other: one heat map per strategy."""

import math

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from sharebench.figures import NAMES, data
from sharebench.figures.page import PAGE_INCHES, Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, TEXT_POINTS, plain

LEAST_FACTOR = 1.25
"""The colours reach at least so far on either side of 1, so that noise around it stays pale."""
MOST_WITH_INTERVALS = 4
"""With more workloads a cell has no room for its interval."""
CHARACTER_INCHES = 0.055
"""Width of a character of a workload's name."""
CELL_INCHES, CELL_WITH_INTERVAL_INCHES = 0.36, 0.58
"""Room for a slowdown, and for one with its interval below it."""


def draw(study: data.Study) -> Sheet:
    """One panel per strategy: slowdown of the row's workload beside the column's, one colour scale for all."""
    table = data.interference(study)
    names = study.config["interference"]
    strategies = study.strategies(table)
    longest = max((len(name) for name in names), default=0) * CHARACTER_INCHES
    left = 0.3 + longest
    cell = CELL_WITH_INTERVAL_INCHES if len(names) <= MOST_WITH_INTERVALS else CELL_INCHES
    columns = max(1, min(len(strategies), 3, int(PAGE_INCHES / (left + cell * len(names)))))
    page = sheet(
        NAMES["interference"].title,
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
    factor = max([LEAST_FACTOR, *(math.exp(abs(math.log(value))) for value in table["slowdown"].dropna())])
    for ax, strategy in zip(page.axes, strategies, strict=False):
        ax.set_title(strategy)
        _panel(ax, table[table["strategy"] == strategy], names, LogNorm(1 / factor, factor))
        for row in table[(table["strategy"] == strategy) & table["slowdown"].isna()].to_dict("records"):
            page.words.append(f"{strategy}: {row['victim']} beside {row['aggressor']} is {data.absence(row)}")
    return page


def _panel(ax: Axes, rows: pd.DataFrame, names: list[str], norm: LogNorm) -> None:
    values = np.full((len(names), len(names)), np.nan)
    for row in rows.to_dict("records"):
        at = names.index(row["victim"]), names.index(row["aggressor"])
        values[at] = row["slowdown"]
        is_blank = math.isnan(row["slowdown"])
        text = data.absence(row) if is_blank else plain(row["slowdown"])
        is_dark = not is_blank and abs(2 * norm(row["slowdown"]) - 1) > 0.7
        color = GREY if is_blank else "white" if is_dark else "black"
        has_interval = not math.isnan(row["slowdown_low"]) and len(names) <= MOST_WITH_INTERVALS
        y = at[0] - (0.12 if has_interval else 0)
        ax.text(at[1], y, text, ha="center", va="center", size=SMALL_POINTS if is_blank else TEXT_POINTS, color=color)
        if has_interval:
            interval = f"{plain(row['slowdown_low'])}–{plain(row['slowdown_high'])}"
            ax.text(at[1], at[0] + 0.18, interval, ha="center", va="center", size=0.8 * SMALL_POINTS, color=color)
    ax.imshow(values, cmap=sns.color_palette("vlag", as_cmap=True), norm=norm, aspect="auto")
    ax.grid(visible=False)
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0)
    sns.despine(ax=ax, left=True, bottom=True)
