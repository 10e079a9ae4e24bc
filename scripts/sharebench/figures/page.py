"""The page of a figure: title, subtitle, legend, panels of one size, foot note; and its files.

Everything is placed in inches from known text sizes: quick, and the same page for the same data.
"""

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text

from sharebench.core.files import replace_atomically
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.data import DrawnStudy
from sharebench.figures.style import GREY, SMALL_POINTS, TEXT_POINTS, TITLE_POINTS

COLUMN_INCHES, PAGE_INCHES = 3.3, 6.9
"""Widths of one column and of the page of a two-column paper: what fits into IEEE's, ACM's and USENIX's."""
LINE_INCHES, TITLE_LINE_INCHES, MARGIN_INCHES = 0.135, 0.19, 0.09
LEFT_INCHES, ABOVE_INCHES, BELOW_INCHES = 0.38, 0.24, 0.2
"""Room around a panel for its tick labels and its title."""
CHARACTER_INCHES = 0.055
"""Width of a character of a tick label."""
HANDLE_LENGTH, HANDLE_PAD = 3.2, 0.5
"""Of a legend, in heights of its text."""


class Layout(TypedDict, total=False):
    """What of a page differs between figures.

    `columns` is the most that it has (3). `width_inches` is that of the page: a paper's column for one panel, else the
    page. `panel_inches` is the height of a panel's data area (2.1), `left_inches` the room left of each (LEFT_INCHES),
    `below_inches` more room under each (0), and `title_lines` how many lines a panel's title has (1).
    """

    x_label: str
    y_label: str
    legend: Sequence[Line2D]
    columns: int
    width_inches: float
    panel_inches: float
    left_inches: float
    below_inches: float
    title_lines: int


@dataclass(frozen=True)
class Sheet:
    """A page with its panels in reading order, and its text for those who do not see it."""

    figure: Figure
    axes: list[Axes]
    title: str
    words: list[str]


def sheet(title: str, facts: Sequence[str], panels: int, note: str = "", **layout: Unpack[Layout]) -> Sheet:
    """An empty page with `facts` in its subtitle, at least one of `panels`, and a foot note."""
    legend, title_lines = layout.get("legend", ()), layout.get("title_lines", 1)
    panel_inches, left_inches = layout.get("panel_inches", 2.1), layout.get("left_inches", LEFT_INCHES)
    panels = max(panels, 1)
    columns = min(panels, layout.get("columns", 3))
    rows = math.ceil(panels / columns)
    width = layout.get("width_inches") or (COLUMN_INCHES if panels == 1 else PAGE_INCHES)
    figure = Figure(figsize=(width, 1))
    FigureCanvasAgg(figure)
    inner = width - 2 * MARGIN_INCHES
    subtitle = _lines(facts, " · ", inner, TEXT_POINTS)
    foot = _lines(note.split(), " ", inner, SMALL_POINTS)

    titles = _lines(title.split(), " ", inner, TITLE_POINTS, "bold")
    below_title = MARGIN_INCHES + TITLE_LINE_INCHES * len(titles)
    title_bottom = below_title + LINE_INCHES * len(subtitle) + 0.04
    key = _legend(figure, legend, inner) if legend else None
    head = title_bottom + (_inches(figure, key)[1] if key else 0)
    above = ABOVE_INCHES + LINE_INCHES * (title_lines - 1)
    row = above + panel_inches + BELOW_INCHES + layout.get("below_inches", 0)
    foot_top = head + rows * row + 0.17
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

    left = MARGIN_INCHES + 0.1
    cell = (width - left - MARGIN_INCHES) / columns
    axes = []
    for i in range(panels):
        x = left + i % columns * cell + left_inches
        y = height - head - i // columns * row - above - panel_inches
        size = (cell - left_inches - 0.04, panel_inches)
        ax = figure.add_axes((x / width, y / height, size[0] / width, size[1] / height))
        sns.despine(ax=ax)
        ax.set_ylabel(layout.get("y_label", "") if i % columns == 0 else "")
        ax.set_xlabel(layout.get("x_label", "") if i + columns >= panels else "")
        axes.append(ax)
    return Sheet(figure, axes, title, [*facts, *([note] if note else [])])


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
    """The page of figure `name` with the study's facts and `more`; without panels it says that there is `nothing`.

    `facts` and `note` take the place of the study's own.
    """
    facts, note = [*(study.facts if facts is None else facts), *more], study.left_out if note is None else note
    page = sheet(ENTRIES[name].title, facts, panels, note, **layout)
    if not panels:
        say(page, page.axes[0], f"Nothing to draw: {nothing}.")
    return page


def say(page: Sheet, ax: Axes, words: str) -> None:
    """Write into an empty panel why nothing is drawn there."""
    ax.set_axis_off()
    inches = ax.bbox.width / cast(Figure, ax.figure).dpi
    for characters in range(32, 8, -1):
        lines = textwrap.wrap(words, characters, break_on_hyphens=False)
        if all(_width_inches(line, TEXT_POINTS, "normal") <= inches for line in lines):
            break
    text = "\n".join(lines)
    ax.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=ax.transAxes)
    page.words.append(words)


def save(page: Sheet, folder: Path, name: str, kinds: Sequence[str] = ("svg", "pdf", "png")) -> None:
    """Write `folder`/`name`.svg, .pdf and .png, each whole or not at all; equal pages give equal bytes."""
    words = "; ".join(page.words)
    about: dict[str, dict[str, str | None]] = {
        "svg": {"Title": page.title, "Description": words, "Date": None},
        "pdf": {"Title": page.title, "Subject": words, "CreationDate": None},
        "png": {"Title": page.title, "Description": words, "Software": None},
    }
    for kind in kinds:
        content = io.BytesIO()
        page.figure.savefig(content, format=kind, metadata=about[kind], dpi=220)
        replace_atomically(folder / f"{name}.{kind}", content.getvalue())


def _inches(figure: Figure, artist: Artist) -> tuple[float, float]:
    box = artist.get_window_extent()
    return box.width / figure.dpi, box.height / figure.dpi


@lru_cache(maxsize=4096)
def _width_inches(text: str, points: float, weight: str) -> float:
    """Width of a text in the theme's font: the same words are on many pages, and tried in many lines."""
    figure = _to_measure()
    return _inches(figure, Text(text=text, size=points, weight=weight, figure=figure))[0]


@lru_cache(maxsize=1)
def _to_measure() -> Figure:
    """A page for words that are measured only: a new one takes longer than a word."""
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure


def _lines(parts: Sequence[str], joint: str, inches: float, points: float, weight: str = "normal") -> list[str]:
    """`parts` joined into as few lines of at most `inches` as possible, of about one length, broken at joints only."""

    def lines(limit_inches: float) -> list[str]:
        found: list[str] = []
        for part in parts:
            longer = found[-1] + joint + part if found else part
            if found and _width_inches(longer, points, weight) <= limit_inches:
                found[-1] = longer
            else:
                found.append(part)
        return found

    fewest = lines(inches)
    return next((even for tenths in range(5, 10) if len(even := lines(inches * tenths / 10)) == len(fewest)), fewest)


def _legend(figure: Figure, handles: Sequence[Line2D], inches: float) -> Legend:
    """Legend of `handles` in as few rows as `inches` allow, and of about one length; longer words get more lines."""
    count = len(handles)
    words_inches = inches - (HANDLE_LENGTH + HANDLE_PAD) * TEXT_POINTS / 72
    for handle in handles:
        handle.set_label("\n".join(_lines(str(handle.get_label()).split(), " ", words_inches, TEXT_POINTS)))
    for columns in dict.fromkeys(math.ceil(count / rows) for rows in range(1, count + 1)):
        key: Legend = figure.legend(
            handles=list(handles),
            ncols=columns,
            loc="upper left",
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            handlelength=HANDLE_LENGTH,
            handletextpad=HANDLE_PAD,
            columnspacing=1.2,
            labelspacing=0.35,
        )
        if columns == 1 or _inches(figure, key)[0] <= inches:
            break
        key.remove()
    return key
