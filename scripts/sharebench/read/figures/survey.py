"""A survey: how much of its GPU each workload uses, and which of them would fit together on one."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.read.figures.looks import BLUE, ORANGE
from sharebench.read.figures.page import PAGE_INCHES, Sheet, explain_blank, sheet
from sharebench.read.figures.panels import set_row_axis

ROW_INCHES = 0.3
MAX_ROWS = 40
LABEL_CHARACTERS = 44
MEMORY_COLOR, BAND_COLOR = "#8c8c8c", "#eef3fa"
QUANTITIES = (("activity", BLUE), ("memory traffic", ORANGE), ("memory, most", MEMORY_COLOR))
BAR_HEIGHT = 0.25
"""Height of one of a row's bars."""


def draw(table: pd.DataFrame, facts: Sequence[str]) -> Sheet:
    """A row per workload of workloads.csv with its activity, memory traffic and memory."""
    workloads = table.dropna(subset=["workload"])
    rows = workloads.head(MAX_ROWS)
    groups = [None if pd.isna(group) else int(group) for group in rows["group"]]
    labels = [_label(str(name), group) for name, group in zip(rows["workload"], groups, strict=True)]
    more = f" {len(workloads) - len(rows)} more are in workloads.csv." if len(workloads) > len(rows) else ""
    page = sheet(
        "How much of its GPU each workload uses",
        facts,
        1,
        f"Bars: mean, of memory the most; marks: 95th percentile. Shaded with one number: may fit on one GPU.{more}",
        x_label="% of the GPU",
        legend=[Line2D([], [], color=color, lw=4, label=name) for name, color in QUANTITIES] if labels else (),
        panel_inches=ROW_INCHES * (len(rows) + 1),
        width_inches=PAGE_INCHES,
    )
    (ax,) = page.axes
    if not labels:
        explain_blank(page, ax, "Nothing to draw: no workload was seen.")
        return page
    ax.set_xlim(0, 100)
    set_row_axis(ax, labels)
    for y, (label, (_, row)) in enumerate(zip(labels, rows.iterrows(), strict=True)):
        if groups[y] is not None:
            ax.axhspan(y - 0.5, y + 0.5, color=BAND_COLOR, zorder=0)
        if y and groups[y] != groups[y - 1]:
            ax.axhline(y - 0.5, color="black", lw=0.4)
        for place, ((name, color), (mean, p95)) in enumerate(zip(QUANTITIES, _means_and_p95(row), strict=True)):
            _draw_bar(ax, y + (place - 1) * BAR_HEIGHT, mean, p95, color)
            page.alt_text.append(f"{label}: {name} " + ("not known" if math.isnan(mean) else f"{mean:.3g} %"))
    return page


def _label(workload: str, group: int | None) -> str:
    """A foreign name without matplotlib's math mode; a long one keeps its end, where names differ."""
    short = workload if len(workload) <= LABEL_CHARACTERS else f"…{workload[1 - LABEL_CHARACTERS :]}"
    return short.replace("$", r"\$") + ("" if group is None else f"  [{group}]")


def _means_and_p95(row: "pd.Series[float]") -> list[tuple[float, float]]:
    """Mean and p95 in percent for each of QUANTITIES; NaN where not known."""

    def number(column: str) -> float:
        return math.nan if pd.isna(row[column]) else float(row[column])

    measure = str(row["judged_by"]).removesuffix("_percent")
    activities = [(number(f"{stem}_mean_percent"), number(f"{stem}_p95_percent")) for stem in (measure, "dram_active")]
    return [*activities, (100 * number("memory_max_mib") / number("memory_total_mib"), math.nan)]


def _draw_bar(ax: Axes, y: float, mean: float, p95: float, color: str) -> None:
    if math.isnan(mean):
        return
    ax.barh(y, mean, height=BAR_HEIGHT * 0.9, color=color)
    if not math.isnan(p95):
        ax.plot(
            [p95, p95], [y - BAR_HEIGHT * 0.45, y + BAR_HEIGHT * 0.45], color="black", lw=1.0, solid_capstyle="butt"
        )
