"""The time to set a strategy, and of a tenant until its first result: one stacked bar per number of tenants."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.read.figures.data import DrawnStudy
from sharebench.read.figures.looks import bar_label
from sharebench.read.figures.page import Sheet, explain_blank, study_sheet
from sharebench.read.figures.panels import label_point, set_row_axis

# Parts in order of time; light and dark colours alternate, so that neighbours differ in grey too.
BAR_PARTS = {
    "manager_seconds": ("MIG manager", "#6a3d9a"),
    "plugin_seconds": ("device plugin", "#d5c3e3"),
    "rest_seconds": ("set the strategy", "#1b4f9c"),
    "process_seconds": ("process", "#9fc3e6"),
    "import_seconds": ("import", "#d1560a"),
    "context_seconds": ("context", "#f3cfa8"),
    "load_seconds": ("load", "#22806a"),
    "first_iteration_seconds": ("first iteration", "#b5e0d0"),
}
# Shorter parts are not visible.
MIN_SECONDS = 1e-3
ROW_INCHES = 0.2


def startup(study: DrawnStudy) -> Sheet:
    """One panel per workload; each strategy at its smallest and its largest number of tenants."""
    table = _split_switch(study.table("startup"))
    parts = [part for part in BAR_PARTS if (table[part] > MIN_SECONDS).any()]
    bars = {workload: _bars(study, rows, parts) for workload, rows in study.drawn_by_workload(table).items()}
    max_bars = max(map(len, bars.values()), default=1)
    page = study_sheet(
        study,
        "startup",
        max(len(bars), 1),
        "",
        note=f"{study.not_shown} {study.undrawn_note}".strip(),
        x_label="Seconds",
        legend=[
            Line2D([], [], marker="s", linestyle="", markersize=6, color=BAR_PARTS[part][1], label=BAR_PARTS[part][0])
            for part in parts
        ],
        columns=2,
        panel_inches=ROW_INCHES * max_bars + 0.15,
    )
    if not parts:
        explain_blank(page, page.axes[0], "Nothing to draw: no tenant took any time to start.")
        return page
    for ax, (workload, rows) in zip(page.axes, bars.items(), strict=True):
        ax.set_title(workload)
        page.alt_text.extend(f"{workload}, {label}: {seconds:.2g} s" for label, seconds in rows.sum(axis=1).items())
        _draw_bars(ax, rows, max_bars)
    return page


def _split_switch(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the time to set a strategy split into MIG manager, device plugin and rest."""
    steps = table.filter(regex="^switch_(pending|cut|plugin|follow)_seconds$").fillna(0.0)
    manager = steps["switch_pending_seconds"] + steps["switch_cut_seconds"]
    plugin = steps["switch_plugin_seconds"] + steps["switch_follow_seconds"]
    rest = table["switch_in_seconds"] - manager - plugin
    return table.assign(manager_seconds=manager, plugin_seconds=plugin, rest_seconds=rest)


def _bars(study: DrawnStudy, rows: pd.DataFrame, parts: list[str]) -> pd.DataFrame:
    """Seconds of each part (columns) by bar label (rows, from the top); 0 where not known."""
    ends = []
    for own in study.by_strategy(rows).values():
        own = own.sort_values("replicas")
        ends.append(own.iloc[[0, -1]] if len(own) > 1 else own)
    shown = pd.concat(ends)
    labels = list(map(bar_label, shown["strategy"], shown["replicas"]))
    return shown[parts].clip(lower=0).fillna(0.0).set_axis(labels)


def _draw_bars(ax: Axes, rows: pd.DataFrame, most: int) -> None:
    for place, values in enumerate(rows.to_numpy()):
        left = 0.0
        for part, seconds in zip(rows.columns, values, strict=True):
            if seconds > 0:
                ax.barh(place, seconds, left=left, height=0.7, color=BAR_PARTS[part][1])
                left += seconds
        label_point(ax, f"{float(f'{left:.2g}'):g} s", (left, place), (3, 0), va="center")
    ax.set_xlim(0, 1.2 * rows.sum(axis=1).max() or 1)
    set_row_axis(ax, list(rows.index), most)
