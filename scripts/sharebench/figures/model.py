"""The scaling model next to the measurements, and its predictions for strategies that were not measured."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from sharebench.figures.data import DrawnStudy
from sharebench.figures.page import Sheet, study_sheet
from sharebench.figures.style import GREY, SMALL_POINTS, Look, log_axis, looks

PREDICTED, MEASURED = "predicted_mean_seconds", "measured_mean_seconds"
DASHES = (0, (4, 1.6))
BREAKS = "#c1121f"
RING: dict[str, Any] = {"ls": "", "marker": "o", "ms": 8, "mfc": "none", "mec": BREAKS}
"""Around a cell that breaks the model."""


def model(study: DrawnStudy) -> Sheet:
    """One panel per workload: measured means as markers, the model as dashed lines with bands."""
    table, shapes = study.table("predictions"), study.table("model")
    names = study.strategies(table)
    style = looks(study.catalogue, names)
    measured = set(table.loc[table["basis"] == "measured", "strategy"])
    panels = study.by_workload(table)
    legend = [Line2D([], [], label=name, **_filled(style[name])) for name in names if name in measured]
    legend += [
        Line2D([], [], label=f"{name}: predicted, not measured", **_hollow(style[name]) | {"ls": DASHES})
        for name in names
        if name not in measured
    ]
    legend.append(Line2D([], [], color=GREY, ls=DASHES, label="model, with its 95 % band"))
    if table["flagged"].any():
        legend.append(Line2D([], [], **RING, label="breaks the model"))
    page = study_sheet(
        study,
        "model",
        len(panels),
        "no valid measurement to fit a model to",
        x_label="Number of tenants",
        y_label="Mean latency (ms)",
        legend=legend,
        columns=2,
        panel_inches=2.5,
        left_inches=0.42,
    )
    for ax, (workload, rows) in zip(page.axes, panels.items(), strict=False):
        ax.set_title(workload)
        about = _about(shapes[shapes["workload"] == workload])
        ax.text(0.02, 0.98, about, transform=ax.transAxes, ha="left", va="top", size=SMALL_POINTS, color=GREY)
        page.words.append(f"{workload}: {about}")
        _panel(ax, rows, names, style)
    return page


def _filled(look: Look) -> dict[str, Any]:
    return {"color": look.color, "marker": look.marker, "ls": ""}


def _hollow(look: Look) -> dict[str, Any]:
    return _filled(look) | {"mfc": "white", "mew": 0.9, "ms": 3.6}


def _about(rows: pd.DataFrame) -> str:
    """Shape of the model and its error, as text."""
    chosen = rows[rows["chosen"]]
    if chosen.empty:
        return ": ".join(["no model", *filter(None, rows["reason"])][:2])
    row = chosen.iloc[0]
    error = row["leave_one_out_error_percent"]
    digits = ".0f" if error >= 10 else ".2g"
    return f"{row['shape']} model" + ("" if pd.isna(error) else f", off by {error:{digits}} % for a cell left out")


def _panel(ax: Axes, rows: pd.DataFrame, names: list[str], style: dict[str, Look]) -> None:
    known = rows[rows["basis"] == "measured"]
    last = int((known if len(known) else rows)["replicas"].max())
    shown = rows[rows["replicas"] <= last]
    columns = [PREDICTED, f"{PREDICTED}_low", f"{PREDICTED}_high", MEASURED]
    shown = shown.assign(**{name: 1e3 * shown[name].astype(float) for name in columns})
    for name in names:
        own = shown[shown["strategy"] == name].sort_values("replicas")
        look, replicas = style[name], own["replicas"]
        points = own[own["basis"] == "measured"]
        ax.plot(replicas, own[PREDICTED], color=look.color, ls=DASHES, lw=0.9)
        band = own[f"{PREDICTED}_low"], own[f"{PREDICTED}_high"]
        ax.fill_between(replicas, *band, color=look.color, alpha=0.13, lw=0)
        if points.empty:
            ax.plot(replicas, own[PREDICTED], **_hollow(look))
        ax.plot(points["replicas"], points[MEASURED], **_filled(look))
        broken = points[points["flagged"]]
        ax.plot(broken["replicas"], broken[MEASURED], **RING, mew=0.9)
    values = shown[[PREDICTED, MEASURED]]
    if values.notna().to_numpy().any():
        # Some air above for the words.
        log_axis(ax, "y", values.min().min() / 1.15, values.max().max() * 1.5)
    ax.set_xlim(0.6, last + 0.4)
    ax.xaxis.set_major_locator(FixedLocator(sorted(set(shown["replicas"]))))
    ax.grid(visible=False, axis="x")
