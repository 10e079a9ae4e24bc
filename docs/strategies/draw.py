"""Draw the architecture figures of the strategies' pages: `make docs`, or python docs/strategies/draw.py [FOLDER].

Each shows, on the left, by what way tenants get to the GPU, and on the right what its SMs and its memory do then. They
are drawings of an idea: nothing in them was measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1] / "scripts"))

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import FancyBboxPatch, Rectangle  # noqa: E402
from pictures import PICTURES, Picture  # noqa: E402

from sharebench.read.figures.style import GREY, theme  # noqa: E402

# Of a page that shows them 700 pixels wide; type is as large as the text around it.
WIDTH_INCHES, HEIGHT_INCHES = 7.0, 3.0
POINTS, SMALL_POINTS = 8.0, 7.2
# Blue, orange, green, plum: distinct with the common kinds of colour blindness, and by their letters in any case.
COLORS = ("#1b4f9c", "#d1560a", "#13795b", "#8c0e62")
LETTERS = "ABCD"
PAPER, PANEL, EDGE = "#ffffff", "#f2f2f2", "#8a8a8a"
GPU_COLOR = "#dfe8dc"
# Of the parts of a figure, in inches from the lower left corner.
LEFT, RIGHT = (0.12, 3.42), (4.12, 6.86)
HEAD = HEIGHT_INCHES - 0.2
TENANTS, GPU = (2.15, 2.55), (0.25, 0.65)
CHART, MEMORY = (1.22, 2.55), (0.62, 0.86)
BOX_INCHES = 0.36
GAP_INCHES = 0.09


@dataclass
class Drawing:
    """A figure in the making, in inches; `texts` are the words and the box that they must stay in."""

    axes: Axes
    texts: list[tuple[object, tuple[float, float, float, float]]] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, room: tuple[float, float, float, float], **how: object) -> None:
        """Words at a place; `room` (left, bottom, right, top) is what they may fill."""
        given = {"ha": "center", "va": "center", "fontsize": POINTS, "color": "#111111", "zorder": 5} | how
        self.texts.append((self.axes.text(x, y, text, **given), room))

    def box(self, left: float, bottom: float, right: float, top: float, text: str, **how: str) -> None:
        """A box with words in its middle."""
        look = {"facecolor": PANEL, "edgecolor": EDGE} | how
        color = look.pop("color", "#111111")
        self.axes.add_patch(
            FancyBboxPatch(
                (left, bottom), right - left, top - bottom,
                boxstyle="round,pad=0,rounding_size=0.04", linewidth=0.8, zorder=2, **look,
            )
        )  # fmt: skip
        self.write((left + right) / 2, (bottom + top) / 2, text, (left, bottom, right, top), color=color)

    def row(self, names: Sequence[str], bottom: float, top: float, looks: Sequence[dict[str, str]]) -> list[float]:
        """Boxes side by side over the left half; returns their middles."""
        wide = (LEFT[1] - LEFT[0] - GAP_INCHES * (len(names) - 1)) / len(names)
        starts = [LEFT[0] + index * (wide + GAP_INCHES) for index in range(len(names))]
        for start, name, look in zip(starts, names, looks, strict=True):
            self.box(start, bottom, start + wide, top, name, **look)
        return [start + wide / 2 for start in starts]

    def arrows(self, above: Sequence[float], y_above: float, below: Sequence[float], y_below: float) -> None:
        """From each of the more to the nearest of the fewer, or straight down where boxes are wide."""
        for index, x in enumerate(above):
            is_straight = len(below) == 1
            target = x if is_straight else below[index * len(below) // max(len(above), len(below))]
            self.axes.annotate(
                "", (target, y_below), (x, y_above),
                arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0},
            )  # fmt: skip


def way(drawing: Drawing, picture: Picture) -> None:
    """The left half: tenants, what is between, and the GPU."""
    looks = [{"facecolor": COLORS[index], "color": "#ffffff"} for index in range(len(picture.tenants))]
    if picture.is_one_process:
        frame = (LEFT[0] - 0.06, TENANTS[0] - 0.06, LEFT[1] + 0.06, TENANTS[1] + 0.06)
        drawing.axes.add_patch(
            Rectangle(frame[:2], frame[2] - frame[0], frame[3] - frame[1], fill=False, edgecolor=GREY, linestyle="--")
        )
    middles, bottom = drawing.row(picture.tenants, *TENANTS, looks), TENANTS[0]
    step = (TENANTS[0] - GPU[1]) / (len(picture.rows) + 1)
    for number, names in enumerate(picture.rows, start=1):
        center = TENANTS[0] - number * step
        low, high = center - BOX_INCHES / 2, center + BOX_INCHES / 2
        found = drawing.row(names, low, high, [{}] * len(names))
        drawing.arrows(middles, bottom, found, high)
        middles = found if len(found) > 1 else middles
        bottom = low
    parts = drawing.row(picture.parts, *GPU, [{"facecolor": GPU_COLOR}] * len(picture.parts))
    drawing.arrows(middles, bottom, parts if len(parts) >= len(middles) else middles, GPU[1])


def scaled(part: float, ends: tuple[float, float]) -> float:
    """A part of the stretch between two ends."""
    return ends[0] + part * (ends[1] - ends[0])


def work(drawing: Drawing, picture: Picture) -> None:
    """The right half: SMs over time, and the memory."""
    axes, lettered = drawing.axes, set()
    for (left, right), (bottom, top) in ((RIGHT, CHART), (RIGHT, MEMORY)):
        axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, facecolor="#ffffff", edgecolor=EDGE))
    for block in picture.blocks:
        x, y = scaled(block.start, RIGHT), scaled(block.low, CHART)
        wide, high = scaled(block.end, RIGHT) - x, scaled(block.high, CHART) - y
        axes.add_patch(Rectangle((x, y), wide, high, facecolor=COLORS[block.tenant], edgecolor="none", zorder=2))
        if block.tenant not in lettered:
            lettered.add(block.tenant)
            room = (x, y, x + wide, y + high)
            drawing.write(
                x + wide / 2, y + high / 2, LETTERS[block.tenant], room, color="#ffffff", fontsize=SMALL_POINTS
            )
    for border in picture.borders:
        y = scaled(border, CHART)
        axes.plot(RIGHT, (y, y), color="#111111", linewidth=0.8, linestyle=(0, (3, 2)), zorder=3)
    at = 0.0
    for owner, part in picture.memory:
        x, wide = scaled(at, RIGHT), part * (RIGHT[1] - RIGHT[0])
        if owner is not None:
            axes.add_patch(
                Rectangle((x, MEMORY[0]), wide, MEMORY[1] - MEMORY[0], facecolor=COLORS[owner], edgecolor="none")
            )
            room = (x, MEMORY[0], x + wide, MEMORY[1])
            drawing.write(x + wide / 2, sum(MEMORY) / 2, LETTERS[owner], room, color="#ffffff", fontsize=SMALL_POINTS)
        at += part
    for wall in picture.walls:
        x = scaled(wall, RIGHT)
        axes.plot((x, x), MEMORY, color="#111111", linewidth=0.8, linestyle=(0, (3, 2)), zorder=3)
    names = {"SMs": sum(CHART) / 2, "memory": sum(MEMORY) / 2}
    for name, y in names.items():
        drawing.write(RIGHT[0] - 0.06, y, name, (LEFT[1], y - 0.1, RIGHT[0], y + 0.1), ha="right", color=GREY)
    drawing.write(
        RIGHT[1], CHART[0] - 0.12, "time →", (RIGHT[0], 0.9, RIGHT[1] + 0.05, CHART[0]), ha="right", color=GREY
    )
    room = (LEFT[1], 0.2, WIDTH_INCHES, MEMORY[0])
    drawing.write(RIGHT[0], 0.4, picture.says, room, ha="left", fontsize=SMALL_POINTS)


def drawn(picture: Picture) -> tuple[Figure, Drawing]:
    """The figure, and what is in it; the project's theme must be active."""
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), facecolor=PAPER)
    FigureCanvasSVG(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH_INCHES), ylim=(0, HEIGHT_INCHES))
    axes.axis("off")
    drawing = Drawing(axes)
    for x, text in ((LEFT[0], "The way to the GPU"), (RIGHT[0], "What the GPU does")):
        drawing.write(x, HEAD, text, (x, HEAD - 0.15, x + 2.5, HEIGHT_INCHES), ha="left", weight="bold")
    way(drawing, picture)
    work(drawing, picture)
    return figure, drawing


def draw(folder: Path) -> None:
    """Write every figure as `NAME.svg`; the same every time."""
    folder.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        with theme():
            figure, _ = drawn(picture)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None}, facecolor=PAPER)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "figures")
