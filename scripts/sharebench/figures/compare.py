"""Two data sets: the ratio of every mean latency, with its interval."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from sharebench.core.spec import in_words
from sharebench.figures.page import Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, log_axis

METRIC = "latency_mean_seconds"
ROW_INCHES = 0.16
LEAST_FACTOR = 1.05
"""The axis reaches at least so far on either side of 1."""
SIGNIFICANT = 0.05
SURE, UNSURE = "#1b4f9c", "#9a9a9a"


def draw(table: pd.DataFrame, before: str, after: str, devices: Sequence[str]) -> Sheet:
    """One panel per workload, one line per strategy and number of tenants: after over before, on a log scale.

    `table` is that of `analysis.compare`, then the names of the data sets, and the devices of both in words.
    """
    means = table[table["metric"] == METRIC]
    names = list(dict.fromkeys(zip(means["workload"], means["tenant_workload"], strict=True)))
    rows_of = [means[(means["workload"] == one) & (means["tenant_workload"] == other)] for one, other in names]
    longest = max(len(_label(row)) for row in means.to_dict("records"))
    most = max(len(rows) for rows in rows_of)
    page = sheet(
        f"{after} against {before}",
        [*dict.fromkeys(devices), "95 % intervals"],
        len(names),
        x_label=f"Mean latency, {after} over {before}",
        y_label="",
        columns=2,
        panel_inches=ROW_INCHES * (most + 1),
        left_inches=0.15 + 0.06 * longest,
        note="Right of 1: slower. Blue: p < 0.05 among all (Holm), and more than the baseline differs from itself.",
    )
    ends = [float(end) for name in ("ratio", "ratio_low", "ratio_high") for end in means[name].dropna()]
    factor = max([LEAST_FACTOR, *(math.exp(abs(math.log(value))) for value in ends)]) ** 1.1
    for ax, (workload, tenant_workload), rows in zip(page.axes, names, rows_of, strict=True):
        ax.set_title(in_words(workload, tenant_workload))
        log_axis(ax, "x", 1 / factor, factor)
        ax.axvline(1, color=GREY, lw=0.8, zorder=1)
        _lines(page, ax, rows)
    return page


def _label(row: Mapping[Hashable, Any]) -> str:
    return f"{row['strategy']} × {row['replicas']}"


def _lines(page: Sheet, ax: Axes, rows: pd.DataFrame) -> None:
    records = rows.to_dict("records")
    ax.set_yticks(range(len(records)), [_label(row) for row in records])
    ax.set_ylim(len(records) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    if rows["ratio"].isna().all():
        say(page, ax, "no ratio: " + "; ".join(dict.fromkeys(map(str, rows["reason"]))))
        return
    for y, row in enumerate(records):
        if pd.isna(row["ratio"]):
            ax.text(1, y, " no value", va="center", size=SMALL_POINTS, color=GREY)
            page.words.append(f"{_label(row)}: {row['reason']}")
            continue
        is_sure = row["p_holm"] < SIGNIFICANT and row["separable"] != "no"
        color = SURE if is_sure else UNSURE
        if not pd.isna(row["ratio_low"]):
            ax.plot([row["ratio_low"], row["ratio_high"]], [y, y], color=color, lw=1.2, solid_capstyle="butt")
        ax.plot([row["ratio"]], [y], marker="o", ms=4, color=color)
        page.words.append(f"{_label(row)}: ratio {row['ratio']:.3g}")
