"""Ours and theirs: published ratios beside ours of the same, on one axis."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.lines import Line2D

from sharebench.figures.page import PAGE_INCHES, Sheet, sheet
from sharebench.figures.style import GREY, log_axis

TITLE = "Ours and theirs"
OURS, THEIRS = "#1b4f9c", "#d1560a"
ROW_INCHES = 0.2


def draw(rows: Sequence[Mapping[str, Any]], devices: Sequence[str]) -> Sheet:
    """One line per published number that we have measured too; `rows` are those of `paper_theirs.as_csv`."""
    rows = [row for row in rows if row["ours"] == row["ours"]]
    page = sheet(
        TITLE,
        [f"ours: {device}" for device in devices],
        1,
        x_label="Ratio to each side's own baseline",
        y_label="",
        legend=[
            Line2D([], [], color=OURS, marker="o", ls="-", label="ours, with 95 % interval"),
            Line2D([], [], color=THEIRS, marker="D", mfc="white", ls="", label="theirs, with its reading error"),
        ],
        note="Other devices, drivers and ways of measuring: where theirs lies outside our interval, that is no error "
        "of theirs. A mark without a bar was measured once.",
        width_inches=PAGE_INCHES,
        panel_inches=ROW_INCHES * (len(rows) + 1),
        left_inches=3.3,
    )
    (ax,) = page.axes
    keys = ("ours", "ours_low", "ours_high", "theirs_low", "theirs_high")
    values = [float(row[key]) for row in rows for key in keys if row[key] is not None]
    log_axis(ax, "x", min([*values, 1.0]) / 1.3, max([*values, 1.0]) * 1.3)
    ax.set_yticks(range(len(rows)), [row["what"] for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.axvline(1, color=GREY, lw=0.8, zorder=1)
    for y, row in enumerate(rows):
        ax.plot([row["theirs_low"], row["theirs_high"]], [y, y], color=THEIRS, lw=0.8, ls=":")
        ax.plot([row["theirs"]], [y], marker="D", color=THEIRS, mfc="white", ls="")
        if row["ours_low"] is not None:
            ax.plot([row["ours_low"], row["ours_high"]], [y, y], color=OURS, lw=1.2, solid_capstyle="butt")
        ax.plot([row["ours"]], [y], marker="o", color=OURS)
        page.words.append(f"{row['what']}: theirs {row['theirs']:.3g}, ours {row['ours']:.3g}")
    return page
