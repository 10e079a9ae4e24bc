"""The page of a figure: title, subtitle, legend, panels of one size, foot note; and its files.

Text above and below the panels is placed in inches, the panels by matplotlib's constrained layout.
"""

import io
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from sharebench.core.files import replace_atomically
from sharebench.read.figures.catalogue import ENTRIES
from sharebench.read.figures.data import DrawnStudy
from sharebench.read.figures.style import GREY, SMALL_POINTS, TEXT_POINTS, TITLE_POINTS

COLUMN_INCHES, PAGE_INCHES = 3.3, 6.9
"""Widths of one column and of the page of a two-column paper; they fit IEEE, ACM and USENIX."""
LINE_INCHES, TITLE_LINE_INCHES, MARGIN_INCHES = 0.135, 0.19, 0.09
PANEL_INCHES, AROUND_INCHES = 2.1, 0.5
"""Height of a panel's data area, and of its tick labels and title together."""
POINTS = "points: "
"""Begins the id of a line whose points say their numbers; their texts follow."""
POINTS_IN_SVG = re.compile(rf'<g id="{POINTS}([^"]*)">(.*?</g>\s*</g>)', re.DOTALL)
POINT_IN_SVG = re.compile(r"(<use [^>]*)/>")
FILE_KINDS = ("svg", "pdf", "png")
CHARACTER_EMS = 0.61
"""Mean width of a character in a long text, as a multiple of the font size."""


class Layout(TypedDict, total=False):
    """The options of a page.

    `columns` is the largest number of columns (3). `width_inches` is the width of the page: by default a paper's column
    for one panel, else a paper's page. `panel_inches` is the height of a panel's data area (PANEL_INCHES).
    """

    x_label: str
    y_label: str
    legend: Sequence[Line2D]
    columns: int
    width_inches: float
    panel_inches: float


@dataclass(frozen=True)
class Sheet:
    """A page with its panels in reading order, and the alternative text."""

    figure: Figure
    axes: list[Axes]
    title: str
    alt_text: list[str]


def sheet(title: str, facts: Sequence[str], panels: int, note: str = "", **layout: Unpack[Layout]) -> Sheet:
    """An empty page with `facts` in its subtitle, `panels` panels (at least one), and a foot note."""
    panels = max(panels, 1)
    columns = min(panels, layout.get("columns", 3))
    rows = math.ceil(panels / columns)
    width = layout.get("width_inches") or (COLUMN_INCHES if panels == 1 else PAGE_INCHES)
    figure = Figure(figsize=(width, 1))
    FigureCanvasAgg(figure)
    inner = width - 2 * MARGIN_INCHES
    titles = _wrap(title, inner, 1.05 * TITLE_POINTS)  # bold, and so wider
    subtitle, foot = _wrap(" · ".join(facts), inner, TEXT_POINTS), _wrap(note, inner, SMALL_POINTS)
    below_title = MARGIN_INCHES + TITLE_LINE_INCHES * len(titles)
    title_bottom = below_title + LINE_INCHES * len(subtitle) + 0.04
    key = _legend(figure, layout["legend"], inner) if layout.get("legend") else None
    head = title_bottom + (key.get_window_extent().height / figure.dpi if key else 0)
    foot_top = head + rows * (layout.get("panel_inches", PANEL_INCHES) + AROUND_INCHES) + 0.17
    height = foot_top + LINE_INCHES * len(foot) + 0.06
    figure.set_size_inches(width, height)

    def write(lines: Sequence[str], top: float, line_inches: float = LINE_INCHES, **look: Any) -> None:
        for i, line in enumerate(lines):
            y = 1 - (top + i * line_inches) / height
            figure.text(MARGIN_INCHES / width, y, line, ha="left", va="top", **look)

    write(titles, MARGIN_INCHES, TITLE_LINE_INCHES, size=TITLE_POINTS, weight="bold")
    write(subtitle, below_title, size=TEXT_POINTS, color=GREY)
    write(foot, foot_top + 0.03, size=SMALL_POINTS, color=GREY)
    if key:
        key.set_bbox_to_anchor((MARGIN_INCHES / width, 1 - title_bottom / height), figure.transFigure)

    rect = (0, 1 - foot_top / height, 1, (foot_top - head) / height)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=rect, w_pad=0.06))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[panels:]:
        ax.remove()
    for i, ax in enumerate(axes[:panels]):
        sns.despine(ax=ax)
        ax.set_ylabel(layout.get("y_label", "") if i % columns == 0 else "")
        ax.set_xlabel(layout.get("x_label", "") if i + columns >= panels else "")
    return Sheet(figure, axes[:panels], title, [*facts, *([note] if note else [])])


def study_sheet(
    study: DrawnStudy,
    name: str,
    panels: int,
    nothing: str,
    *,
    facts: Sequence[str] | None = None,
    more: Sequence[str] = (),
    note: str | None = None,
    **layout: Unpack[Layout],
) -> Sheet:
    """The page of figure `name`; `facts` and `note` replace the study's; `nothing` is the reason for no panels."""
    facts, note = [*(study.facts if facts is None else facts), *more], study.omissions if note is None else note
    page = sheet(ENTRIES[name].title, facts, panels, note, **layout)
    if not panels:
        explain_blank(page, page.axes[0], f"Nothing to draw: {nothing}.")
    return page


def explain_blank(page: Sheet, ax: Axes, reason: str) -> None:
    """Write into an empty panel why nothing is drawn there."""
    ax.set_axis_off()
    text = "\n".join(_wrap(reason, ax.bbox.width / cast(Figure, ax.figure).dpi, TEXT_POINTS))
    ax.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=ax.transAxes)
    page.alt_text.append(reason)


def save(page: Sheet, folder: Path, name: str, kinds: Sequence[str] = FILE_KINDS) -> None:
    """Write `folder`/`name` in files of these kinds atomically; equal pages give equal bytes."""
    alt_text = "; ".join(page.alt_text)
    metadata: dict[str, dict[str, str | None]] = {
        "svg": {"Title": page.title, "Description": alt_text, "Date": None},
        "pdf": {"Title": page.title, "Subject": alt_text, "CreationDate": None},
        "png": {"Title": page.title, "Description": alt_text, "Software": None},
    }
    if layout := page.figure.get_layout_engine():
        layout.execute(page.figure)
        page.figure.set_layout_engine("none")
    for kind in kinds:
        content = io.BytesIO()
        page.figure.savefig(content, format=kind, metadata=metadata[kind], dpi=220)
        written = content.getvalue()
        if kind == "svg":
            written = POINTS_IN_SVG.sub(_title_points, written.decode()).encode()
        replace_atomically(folder / f"{name}.{kind}", written)


def _title_points(line: re.Match[str]) -> str:
    """The line with a title for each of its points; without them where not all are in the figure."""
    texts = line[1].split(" | ")
    marks = POINT_IN_SVG.findall(line[2])
    titles = iter(texts if len(texts) == len(marks) else [""] * len(marks))
    return "<g>" + POINT_IN_SVG.sub(lambda mark: f"{mark[1]}><title>{next(titles)}</title></use>", line[2])


def _wrap(text: str, inches: float, points: float) -> list[str]:
    return textwrap.wrap(text, int(inches * 72 / points / CHARACTER_EMS), break_on_hyphens=False)


def _legend(figure: Figure, handles: Sequence[Line2D], inches: float) -> Legend:
    """Legend of `handles` in as few rows of about equal length as fit into `inches`."""
    count = len(handles)
    for columns in dict.fromkeys(math.ceil(count / rows) for rows in range(1, count + 1)):
        key: Legend = figure.legend(
            handles=list(handles),
            ncols=columns,
            loc="upper left",
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            handlelength=3.2,
            handletextpad=0.5,
            columnspacing=1.2,
            labelspacing=0.35,
        )
        if columns == 1 or key.get_window_extent().width / figure.dpi <= inches:
            break
        key.remove()
    return key
