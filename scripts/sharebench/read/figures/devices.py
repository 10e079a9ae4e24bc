"""The spread between several devices of one product, next to that of repeats on one device."""

import math
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from sharebench.read.figures.data import DrawnStudy
from sharebench.read.figures.looks import BLUE, MARKERS, bar_label
from sharebench.read.figures.page import Sheet, explain_blank, sheet
from sharebench.read.figures.panels import set_row_axis
from sharebench.read.figures.style import GREY

TITLE = "Devices of one product against each other"
BAND_COLOR = "#d9d9d9"
MARK_STYLE: dict[str, Any] = {"color": BLUE, "mfc": "none", "ls": ""}
ROW_INCHES = 0.2
MIN_PERCENT = 0.5
"""The axis shows at least this much to both sides, so that small differences do not look large."""


def devices(study: DrawnStudy) -> Sheet:
    """A panel per plain workload with a row for each strategy at its largest N, and a mark for each device's mean."""
    table = study.without_mixes(study.table("devices"))
    marks = {name: MARKERS[index % len(MARKERS)] for index, name in enumerate(sorted(set(table["device"])))}
    panels = {workload: _rows_by_label(study, rows) for workload, rows in study.drawn_by_workload(table).items()}
    max_rows = max(map(len, panels.values()), default=1)
    page = sheet(
        TITLE,
        study.facts,
        len(panels),
        "Band: standard deviation between measurements on one device, where there are two of the same. Devices "
        f"may have been measured at other hours, and in other hosts. {study.not_shown} {study.undrawn_note}".strip(),
        x_label="Latency against all devices (%)",
        legend=[
            *(
                Line2D([], [], marker=mark, label=f"device {number}", **MARK_STYLE)
                for number, mark in enumerate(marks.values(), 1)
            ),
            Line2D([], [], color=BAND_COLOR, lw=6, label="± one device against itself"),
        ],
        columns=2,
        panel_inches=ROW_INCHES * (max_rows + 1),
    )
    if not panels:
        explain_blank(page, page.axes[0], "Nothing to draw: everything was measured on one device.")
    for ax, (workload, rows_of_strategies) in zip(page.axes, panels.items(), strict=False):
        ax.set_title(workload)
        for place, (label, rows) in enumerate(rows_of_strategies.items()):
            within = rows["within_device_percent"].iloc[0]
            if not math.isnan(within):
                ax.barh(place, 2 * within, left=-within, height=0.7, color=BAND_COLOR, zorder=0)
            percents = 100 * (rows["over_all_devices"] - 1)
            for device, percent in zip(rows["device"], percents, strict=True):
                ax.plot([percent], [place], marker=marks[device], **MARK_STYLE)
            page.alt_text.append(f"{workload}, {label}: {percents.min():+.2f} to {percents.max():+.2f} %")
        set_row_axis(ax, list(rows_of_strategies))
        ax.set_ylim(max_rows - 0.4, -0.6)
        ax.axvline(0, color=GREY, lw=0.8, zorder=1)
        reach = max(MIN_PERCENT, *(abs(end) for end in ax.get_xlim()))
        ax.set_xlim(-reach, reach)
    return page


def _rows_by_label(study: DrawnStudy, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows to draw by label: those of each strategy's largest number of tenants."""
    largest = {
        name: rows[rows["replicas"] == rows["replicas"].max()] for name, rows in study.by_strategy(table).items()
    }
    return {bar_label(name, rows["replicas"].iloc[0]): rows for name, rows in largest.items()}
