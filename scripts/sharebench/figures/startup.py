"""How long a strategy takes to be set, and a tenant until its first result: one stacked bar per number of tenants."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import CHARACTER_INCHES, Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS

# From the node to the first result; light and dark take turns, so that neighbours can be told in grey.
PARTS = {
    "manager_seconds": ("MIG manager", "#6a3d9a"),
    "plugin_seconds": ("device plugin", "#d5c3e3"),
    "rest_seconds": ("set the strategy", "#1b4f9c"),
    "process_seconds": ("process", "#9fc3e6"),
    "import_seconds": ("import", "#d1560a"),
    "context_seconds": ("context", "#f3cfa8"),
    "load_seconds": ("load", "#22806a"),
    "first_iteration_seconds": ("first iteration", "#b5e0d0"),
}
# Shorter parts cannot be seen.
LEAST_SECONDS = 1e-3
ROW_INCHES = 0.2


def draw(study: data.DrawnStudy) -> Sheet:
    """One panel per workload; each strategy at its smallest and its largest number of tenants."""
    table = _split(data.startup(study))
    parts = [part for part in PARTS if (table[part] > LEAST_SECONDS).any()]
    workloads = study.workloads(table)
    bars = {name: _bars(study, table[table["workload"] == name]) for name in workloads}
    most = max(map(len, bars.values()), default=1)
    longest = max((len(label) for rows in bars.values() for label, _ in rows), default=8)
    page = sheet(
        ENTRIES["startup"].title,
        study.facts,
        max(len(workloads), 1),
        x_label="Seconds",
        y_label="",
        legend=[
            Line2D([], [], marker="s", linestyle="", markersize=6, color=PARTS[part][1], label=PARTS[part][0])
            for part in parts
        ],
        note=study.not_shown,
        columns=2,
        panel_inches=ROW_INCHES * most + 0.15,
        left_inches=0.15 + CHARACTER_INCHES * longest,
    )
    if not parts:
        say(page, page.axes[0], "Nothing to draw: no tenant took any time to start.")
        return page
    for ax, name in zip(page.axes, workloads, strict=True):
        ax.set_title(name)
        page.words.extend(f"{name}, {label}: {_total(values, parts):.2g} s" for label, values in bars[name])
        _panel(ax, bars[name], parts, most)
    return page


def _split(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the time of setting a strategy in parts: mig-manager, device plugin, and all the rest."""
    steps = table[list(map("switch_{}_seconds".format, ("pending", "cut", "plugin", "follow")))].fillna(0.0)
    manager, plugin = steps.iloc[:, :2].sum(axis=1), steps.iloc[:, 2:].sum(axis=1)
    rest = table["switch_in_seconds"] - manager - plugin
    parts = table.assign(manager_seconds=manager, plugin_seconds=plugin, rest_seconds=rest)
    return parts[["strategy", "workload", "replicas", *PARTS]]


def _bars(study: data.DrawnStudy, rows: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """Labels and values of the bars, from the top."""
    found = []
    for strategy in study.strategies(rows):
        own = rows[rows["strategy"] == strategy].sort_values("replicas")
        ends = own.iloc[[0, -1]] if len(own) > 1 else own
        for row in ends.to_dict("records"):
            values = {str(column): value for column, value in row.items()}
            found.append((f"{strategy} × {row['replicas']}", values))
    return found


def _total(values: dict[str, Any], parts: list[str]) -> float:
    return sum(float(values[part]) for part in parts if values[part] > 0)


def _panel(ax: Axes, bars: list[tuple[str, dict[str, Any]]], parts: list[str], most: int) -> None:
    longest = 0.0
    for place, (_, values) in enumerate(bars):
        left = 0.0
        for part in parts:
            if values[part] > 0:
                ax.barh(place, values[part], left=left, height=0.7, color=PARTS[part][1])
                left += values[part]
        ax.annotate(
            f"{_total(values, parts):.2g} s",
            (left, place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            size=SMALL_POINTS,
            color=GREY,
        )
        longest = max(longest, left)
    ax.set_xlim(0, 1.2 * longest or 1)
    ax.set_ylim(most - 0.5, -0.5)
    ax.set_yticks(range(len(bars)), [label for label, _ in bars])
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
