"""How far several devices of one product are apart, beside how far one is from itself."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.figures import data
from sharebench.figures.page import CHARACTER_INCHES, Sheet, say, sheet
from sharebench.figures.style import GREY, MARKERS

TITLE = "Devices of one product against each other"
COLOR, BAND = "#1b4f9c", "#d9d9d9"
ROW_INCHES = 0.2
LEAST_PERCENT = 0.5
"""The axis shows at least so much to both sides: smaller differences need not look large."""


def draw(study: data.DrawnStudy) -> Sheet:
    """A panel per plain workload with a row for each strategy at its largest N, and a mark for each device's mean."""
    look: dict[str, Any] = {"color": COLOR, "mfc": "none", "ls": ""}
    table = data.table(study, "devices", ("strategy", "workload", "tenant_workload", "device"))
    table = study.without_mixes(table)
    devices = {name: f"device {number}" for number, name in enumerate(sorted(set(table["device"])), 1)}
    marks = {name: MARKERS[index % len(MARKERS)] for index, name in enumerate(devices)}
    workloads = study.workloads(table)
    rows_of = {workload: _shown(study, table[table["workload"] == workload]) for workload in workloads}
    labels = [label for rows in rows_of.values() for label in rows]
    most = max((len(rows) for rows in rows_of.values()), default=1)
    page = sheet(
        TITLE,
        study.facts,
        max(len(workloads), 1),
        x_label="Latency against all devices (%)",
        y_label="",
        legend=[
            *(Line2D([], [], marker=marks[name], label=label, **look) for name, label in devices.items()),
            Line2D([], [], color=BAND, lw=6, label="± one device against itself"),
        ],
        note="Band: standard deviation between measurements on one device, where there are two of the same. Devices "
        f"may have been measured at other hours, and in other hosts. {study.not_shown}".strip(),
        columns=2,
        panel_inches=ROW_INCHES * (most + 1),
        left_inches=0.1 + CHARACTER_INCHES * max(map(len, labels), default=0),
    )
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: everything was measured on one device.")
    for ax, workload in zip(page.axes, workloads, strict=False):
        ax.set_title(workload)
        for place, (label, rows) in enumerate(rows_of[workload].items()):
            _row(ax, place, rows, marks)
            ends = [100 * (value - 1) for value in rows["over_all_devices"]]
            page.words.append(f"{workload}, {label}: {min(ends):+.2f} to {max(ends):+.2f} %")
        ax.set(ylim=(most - 0.4, -0.6), yticks=range(len(rows_of[workload])))
        ax.set_yticklabels(list(rows_of[workload]))
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")
        ax.axvline(0, color=GREY, lw=0.8, zorder=1)
        reach = max(LEAST_PERCENT, *(abs(end) for end in ax.get_xlim()))
        ax.set_xlim(-reach, reach)
    return page


def _shown(study: data.DrawnStudy, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows to be drawn by their label: of each strategy those of its largest number of tenants."""
    found = {}
    for strategy in study.strategies(table):
        own = table[table["strategy"] == strategy]
        replicas = int(own["replicas"].max())
        found[f"{strategy} × {replicas}"] = own[own["replicas"] == replicas]
    return found


def _row(ax: Axes, place: int, rows: pd.DataFrame, marks: dict[str, str]) -> None:
    within = rows["within_device_percent"].iloc[0]
    if within == within:
        ax.barh(place, 2 * within, left=-within, height=0.7, color=BAND, zorder=0)
    for row in rows.to_dict("records"):
        percent = 100 * (row["over_all_devices"] - 1)
        ax.plot([percent], [place], marker=marks[row["device"]], color=COLOR, mfc="none", ls="")
