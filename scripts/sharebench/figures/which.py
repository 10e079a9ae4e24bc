"""Which strategy suits which class of workload, and the five rankings, with what stands behind each."""

import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import PAGE_INCHES, Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, is_narrow

# From light to dark, so that the order shows in grey too; every cell says its verdict besides.
COLORS = {"suits": "#cfe8d5", "may do": "#f0dfae", "does not suit": "#dd9b8b", "unknown": "#ffffff"}
BEST, WORST = "#cfe8d5", "#f6f6f6"
ROW_INCHES = 0.36
NAMES_INCHES, NARROW_NAMES_INCHES = 1.5, 0.98


def draw(study: data.DrawnStudy) -> Sheet:
    """Two panels: classes of workloads by strategies, and criteria by strategies."""
    which = data.table(
        study, "which", ("workload_class", "workload", "family", "strategy", "verdict", "basis", "reason")
    )
    rankings = data.table(study, "rankings", ("criterion", "family", "basis", "unit", "source"))
    families = sorted(set(rankings["family"]), key=["time-slicing", "MPS", "MPS with limits", "MIG"].index)
    rows = list(dict.fromkeys(zip(which["workload_class"], which["workload"], strict=True)))
    criteria = list(dict.fromkeys(rankings["criterion"]))
    page = sheet(
        ENTRIES["which"].title,
        [*study.facts, "m: measured, d: documented, p: predicted, not measured"],
        2,
        x_label="",
        y_label="",
        note=study.left_out,
        columns=1,
        width_inches=PAGE_INCHES,
        panel_inches=ROW_INCHES * max(len(rows), len(criteria)),
        left_inches=NARROW_NAMES_INCHES if is_narrow() else NAMES_INCHES,
        below_inches=0.12 if is_narrow() else 0.0,
    )
    if not rows:
        for ax in page.axes:
            say(page, ax, "Nothing to draw: there are no plain workloads.")
        return page
    page.axes[0].set_title("Which workload suits which strategy")
    page.axes[1].set_title("Rankings, 1 is best")
    labels = ["\n".join(filter(None, (kind.replace("-", " "), workload))) for kind, workload in rows]
    _grid(page.axes[0], labels, families)
    for row in which.to_dict("records"):
        at = rows.index((row["workload_class"], row["workload"])), families.index(row["family"])
        _cell(page.axes[0], at, COLORS[row["verdict"]], row["verdict"], _why(row))
    _grid(page.axes[1], criteria, families)
    for row in rankings.to_dict("records"):
        at = criteria.index(row["criterion"]), families.index(row["family"])
        rank = "unknown" if pd.isna(row["rank"]) else f"{row['rank']:.0f}"
        value = "" if pd.isna(row["value"]) else f"{row['value']:.2f} "
        why = "" if rank == "unknown" else f"{value}({row['basis'][0]})"
        _cell(page.axes[1], at, BEST if rank == "1" else WORST, rank, why)
    return page


def _why(row: Mapping[Any, Any]) -> str:
    """The number behind a verdict, or why there is none; in one column of a paper there is room for the number."""
    if is_narrow():
        return "" if pd.isna(row["value"]) else f"{row['value']:.2f} × ({row['basis'][0]})"
    if pd.isna(row["value"]):
        return row["reason"] or ("" if row["workload"] else "not in this study")
    number = (
        f"{row['value']:.2f} × the work"
        if row["metric"].startswith("work")
        else (f"{row['value']:.2f} × {row['metric'].split()[0]}")
    )
    return f"{number}, N = {row['replicas']:.0f} ({row['basis'][0]})"


def _grid(ax: Axes, rows: list[str], columns: list[str]) -> None:
    ax.set_xlim(0, max(len(columns), 1))
    ax.set_ylim(max(len(rows), 1), 0)
    width = 8 if is_narrow() else 40
    ax.set_xticks([i + 0.5 for i in range(len(columns))], [textwrap.fill(name, width) for name in columns])
    ax.set_yticks([i + 0.5 for i in range(len(rows))], rows)
    ax.tick_params(length=0)
    ax.xaxis.tick_bottom()
    ax.grid(visible=False)
    for side in ax.spines.values():
        side.set_visible(False)


def _cell(ax: Axes, at: tuple[int, int], color: str, head: str, words: str) -> None:
    row, column = at
    ax.add_patch(Rectangle((column + 0.01, row + 0.03), 0.98, 0.94, fc=color, ec="#bbbbbb", lw=0.5))
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": GREY if head == "unknown" else "black"}
    if is_narrow():
        head, look["size"] = head.replace("does not suit", "unsuited"), SMALL_POINTS
    ax.text(column + 0.5, row + 0.3, head, **look)
    if words:
        text = textwrap.shorten(words, 46, placeholder=" …")
        ax.text(column + 0.5, row + 0.7, text, ha="center", va="center", size=0.82 * SMALL_POINTS, color="#333333")
