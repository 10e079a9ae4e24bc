"""The scaling model beside the measurements, and what it says of strategies that were not measured."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, Look, log_axis, looks

PREDICTED, MEASURED = "predicted_mean_seconds", "measured_mean_seconds"
DASHES = (0, (4, 1.6))
HOLLOW = {"mfc": "white", "mew": 0.9, "ms": 3.6}
BREAKS = "#c1121f"


def draw(study: data.DrawnStudy) -> Sheet:
    """One panel per workload: measured means as markers, the model as dashed lines with bands."""
    table = data.table(study, "predictions", ("strategy", "workload", "basis", "reason"))
    names = study.strategies(table)
    style = looks(study.catalogue, names)
    workloads = study.workloads(table)
    measured = set(table.loc[table["basis"] == "measured", "strategy"])
    legend = [Line2D([], [], label=name, **_marks(style[name])) for name in names if name in measured]
    legend += [
        Line2D([], [], label=f"{name}: predicted, not measured", ls=DASHES, **_marks(style[name], hollow=True))
        for name in names
        if name not in measured
    ]
    legend.append(Line2D([], [], color=GREY, ls=DASHES, label="model, with its 95 % band"))
    if (table["flagged"]).any():
        legend.append(Line2D([], [], ls="", marker="o", ms=8, mfc="none", mec=BREAKS, label="breaks the model"))
    page = sheet(
        ENTRIES["model"].title,
        study.facts,
        max(len(workloads), 1),
        x_label="Number of tenants",
        y_label="Mean latency (ms)",
        legend=legend,
        note=study.left_out,
        columns=2,
        panel_inches=2.5,
        left_inches=0.42,
    )
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: no valid measurement to fit a model to.")
    shapes = data.table(study, "model", ("workload", "shape", "parameter", "unit", "reason"))
    for ax, workload in zip(page.axes, workloads, strict=False):
        rows = table[table["workload"] == workload]
        ax.set_title(workload)
        about = _about(shapes[shapes["workload"] == workload])
        ax.text(0.02, 0.98, about, transform=ax.transAxes, ha="left", va="top", size=SMALL_POINTS, color=GREY)
        page.words.append(f"{workload}: {about}")
        _panel(ax, rows, names, style)
    return page


def _marks(look: Look, hollow: bool = False) -> dict[str, Any]:
    marks: dict[str, Any] = {"color": look.color, "marker": look.marker}
    return marks | HOLLOW if hollow else marks | {"ls": ""}


def _about(rows: pd.DataFrame) -> str:
    """Shape of the model and its error, in words."""
    chosen = rows[rows["chosen"]]
    if chosen.empty:
        reasons = [reason for reason in rows["reason"] if reason]
        return f"no model: {reasons[0]}" if reasons else "no model"
    row = chosen.iloc[0]
    error = row["leave_one_out_error_percent"]
    digits = ".0f" if error >= 10 else ".2g"
    return f"{row['shape']} model" + ("" if pd.isna(error) else f", off by {error:{digits}} % for a cell left out")


def _panel(ax: Axes, rows: pd.DataFrame, names: list[str], style: dict[str, Look]) -> None:
    known = rows[rows["basis"] == "measured"]
    last = int(known["replicas"].max()) if len(known) else int(rows["replicas"].max())
    shown = rows[rows["replicas"] <= last]
    for name in names:
        own = shown[shown["strategy"] == name].sort_values("replicas")
        look = style[name]
        points = own[own["basis"] == "measured"]
        ax.plot(own["replicas"], 1e3 * own[PREDICTED], color=look.color, ls=DASHES, lw=0.9)
        ax.fill_between(
            own["replicas"],
            1e3 * own[f"{PREDICTED}_low"].astype(float),
            1e3 * own[f"{PREDICTED}_high"].astype(float),
            color=look.color,
            alpha=0.13,
            lw=0,
        )
        if points.empty:
            ax.plot(own["replicas"], 1e3 * own[PREDICTED], ls="", **_marks(look, hollow=True))
        ax.plot(points["replicas"], 1e3 * points[MEASURED], **_marks(look))
        broken = points[points["flagged"]]
        ax.plot(broken["replicas"], 1e3 * broken[MEASURED], ls="", marker="o", ms=8, mfc="none", mec=BREAKS, mew=0.9)
    values = 1e3 * shown[[PREDICTED, MEASURED]].astype(float)
    if values.notna().to_numpy().any():
        # Some air above for the words.
        log_axis(ax, "y", values.min().min() / 1.15, values.max().max() * 1.5)
    ax.set_xlim(0.6, last + 0.4)
    ax.xaxis.set_major_locator(FixedLocator(sorted(set(shown["replicas"]))))
    ax.grid(visible=False, axis="x")
