"""The numbers of one finding side by side, where no figure of a study shows them."""

from collections.abc import Mapping, Sequence

from sharebench.figures.page import Sheet, sheet
from sharebench.figures.style import GREY, log_axis

COLOR = "#1b4f9c"
ROW_INCHES = 0.25


def draw(
    title: str, facts: Sequence[str], numbers: Mapping[str, tuple[float, float | None, float | None]], x_label: str
) -> Sheet:
    """One line per number: its name, value, and the ends of its interval where it has one; a log scale."""
    page = sheet(
        title,
        facts,
        1,
        x_label=x_label,
        y_label="",
        note="Bars are 95 % intervals; a mark without one was measured once.",
        panel_inches=ROW_INCHES * (len(numbers) + 1),
        left_inches=1.3,
    )
    (ax,) = page.axes
    values = [value for number in numbers.values() for value in number if value is not None]
    log_axis(ax, "x", min([*values, 1.0]) / 1.3, max([*values, 1.0]) * 1.3)
    ax.set_yticks(range(len(numbers)), list(numbers))
    ax.set_ylim(len(numbers) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.axvline(1, color=GREY, lw=0.8, zorder=1)
    for y, (name, (value, low, high)) in enumerate(numbers.items()):
        if low is not None and high is not None:
            ax.plot([low, high], [y, y], color=COLOR, lw=1.2, solid_capstyle="butt")
        ax.plot([value], [y], marker="o", color=COLOR)
        page.words.append(f"{name}: {value:.3g}")
    return page
