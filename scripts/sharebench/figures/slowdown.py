"""How much tenants are slowed down: strategies by numbers of tenants, one heat map per workload."""

import math

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from sharebench.figures import NAMES, data
from sharebench.figures.interference import CHARACTER_INCHES, LEAST_FACTOR
from sharebench.figures.page import Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, plain

ROW_INCHES = 0.24


def draw(study: data.Study) -> Sheet:
    """One panel per workload: slowdown by strategy (down) and number of tenants (across), one colour scale for all."""
    table = study.without_mixes(data.summary(study))[[*data.OF_ROW, "slowdown"]]
    strategies, workloads = study.strategies(table), study.workloads(table)
    page = sheet(
        NAMES["slowdown"].title,
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
    factor = max([LEAST_FACTOR, *(math.exp(abs(math.log(value))) for value in table["slowdown"].dropna())])
    for ax, workload in zip(page.axes, workloads, strict=False):
        rows = table[table["workload"] == workload]
        for row in rows[rows["slowdown"].isna()].to_dict("records"):
            page.words.append(f"{workload}: {row['strategy']} at {row['replicas']} tenants is {data.absence(row)}")
        if rows["slowdown"].isna().all():
            say(page, ax, f"{workload}: no valid measurement")
            continue
        ax.set_title(workload)
        _panel(ax, rows, strategies, LogNorm(1 / factor, factor))
    return page


def _panel(ax: Axes, rows: pd.DataFrame, strategies: list[str], norm: LogNorm) -> None:
    replicas = sorted(set(rows["replicas"]))
    values = np.full((len(strategies), len(replicas)), np.nan)
    # Beyond so many columns there is no room for numbers.
    has_text = len(replicas) <= 10
    for row in rows.to_dict("records"):
        at = strategies.index(row["strategy"]), replicas.index(row["replicas"])
        values[at] = row["slowdown"]
        is_blank = math.isnan(row["slowdown"])
        is_dark = not is_blank and abs(2 * norm(row["slowdown"]) - 1) > 0.7
        text = "×" if is_blank else plain(row["slowdown"])
        color = GREY if is_blank else "white" if is_dark else "black"
        if has_text:
            ax.text(at[1], at[0], text, ha="center", va="center", size=SMALL_POINTS, color=color)
    ax.imshow(values, cmap=sns.color_palette("vlag", as_cmap=True), norm=norm, aspect="auto")
    ax.grid(visible=False)
    ax.set_xticks(range(len(replicas)), [str(n) for n in replicas])
    ax.set_yticks(range(len(strategies)), strategies)
    ax.tick_params(length=0)
    sns.despine(ax=ax, left=True, bottom=True)
