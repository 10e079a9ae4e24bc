"""Grids of cells: slowdowns of pairs as heat maps, and outcomes of faults."""

import math
from collections.abc import Sequence

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from sharebench.read.figures.data import DrawnStudy, Row, absence_reason, format_factor, table_rows, worst_outcome
from sharebench.read.figures.looks import strategy_label
from sharebench.read.figures.page import PAGE_INCHES, Sheet, study_sheet
from sharebench.read.figures.style import GREY, SMALL_POINTS, TEXT_POINTS

CHARACTER_INCHES = 0.055
"""Width of a character of a tick label."""
MIN_FACTOR = 1.25
"""The colour scale reaches at least this factor on either side of 1, so that noise around 1 stays pale."""
MAX_WITH_INTERVALS = 4
"""The most workloads with which a cell has room for its interval."""
CELL_INCHES, CELL_WITH_INTERVAL_INCHES = 0.36, 0.58
"""Room for a slowdown, and for one with its interval below it."""

# The colours go from light to dark, and every cell has text, as some readers cannot distinguish red and green.
OUTCOME_COLORS = {"unharmed": "#eef3f8", "survived": "#dcdcdc", "slowed": "#f2b56b", "failed": "#7d1d3f"}
FAULT_INCHES = 0.95
"""Width in which two words of a fault's name fit side by side."""


def interference(study: DrawnStudy) -> Sheet:
    """One panel per strategy: slowdown of the row's workload next to the column's, one colour scale for all."""
    table = study.table("interference")
    names: list[str] = study.config["interference"]
    panels = study.by_strategy(table)
    left = 0.3 + _longest_inches(names)
    has_room = len(names) <= MAX_WITH_INTERVALS
    cell = CELL_WITH_INTERVAL_INCHES if has_room else CELL_INCHES
    columns = max(1, min(len(panels), 3, int(PAGE_INCHES / (left + cell * len(names)))))
    page = study_sheet(
        study,
        "interference",
        len(panels),
        "no strategy has pairs",
        more=["white: as fast as alone, red: slower, the darker the more"],
        note=study.not_shown,
        x_label="Next to",
        y_label="Slowdown of",
        columns=columns,
        width_inches=PAGE_INCHES if columns > 1 else 0.0,
        panel_inches=min(2.4, PAGE_INCHES / max(columns, 2) - left) + 0.6 * _longest_inches(names),
    )

    def write(ax: Axes, x: int, y: int, row: Row) -> None:
        is_blank = math.isnan(row["slowdown"])
        text, size = (absence_reason(row), SMALL_POINTS) if is_blank else (format_factor(row["slowdown"]), TEXT_POINTS)
        is_dark = abs(2 * norm(row["slowdown"]) - 1) > 0.7
        color = GREY if is_blank else "white" if is_dark else "black"
        if not has_room or math.isnan(row["slowdown_low"]):
            write_centred(ax, x, y, text, size, color)
            return
        interval = f"{format_factor(row['slowdown_low'])}–{format_factor(row['slowdown_high'])}"
        write_centred(ax, x, y - 0.12, text, size, color)
        write_centred(ax, x, y + 0.18, interval, 0.8 * SMALL_POINTS, color)

    # One scale for all panels, as far below 1 as above.
    factor = max([MIN_FACTOR, *(math.exp(abs(math.log(value))) for value in table["slowdown"].dropna())])
    norm = LogNorm(1 / factor, factor)
    for ax, (strategy, rows) in zip(page.axes, panels.items(), strict=False):
        ax.set_title(strategy_label(strategy))
        for row in table_rows(rows):
            write(ax, names.index(row["aggressor"]), names.index(row["victim"]), row)
        values = rows.pivot(index="victim", columns="aggressor", values="slowdown")
        values = values.reindex(index=names, columns=names)
        ax.imshow(values, cmap=sns.color_palette("vlag", as_cmap=True), norm=norm, aspect="auto")
        label_grid(ax, names, names)
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
        page.alt_text.extend(
            f"{strategy}: {row['victim']} next to {row['aggressor']} is {absence_reason(row)}"
            for row in table_rows(rows[rows["slowdown"].isna()])
        )
    return page


def _longest_inches(names: Sequence[str]) -> float:
    return CHARACTER_INCHES * max(map(len, names), default=0)


def write_centred(ax: Axes, x: float, y: float, text: str, size: float, color: str) -> None:
    ax.text(x, y, text, ha="center", va="center", size=size, color=color)


def label_grid(ax: Axes, across: Sequence[str], down: Sequence[str]) -> None:
    """Write names at the middles of cells, in place of an axis with ticks and lines."""
    ax.set_xticks(range(len(across)), across)
    ax.set_yticks(range(len(down)), down)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    sns.despine(ax=ax, left=True, bottom=True)


def isolation(study: DrawnStudy) -> Sheet:
    """Who dies: strategies by faults, each cell with the worst outcome over its victims and repeats."""
    table = study.table("isolation")
    strategies, kinds = study.strategies(table), list(dict.fromkeys(table["fault"]))
    repeats = study.config["fault_repeats"]
    labels = list(map(strategy_label, strategies))
    left = 0.2 + _longest_inches(labels)
    page = study_sheet(
        study,
        "isolation",
        min(1, len(strategies)),
        "no strategy has two tenants",
        # Faults have repeats of their own, which replace the study's, the last of its facts.
        facts=[*study.facts[:-1], f"{repeats} repeat{'s' * (repeats != 1)}"],
        more=["victims: " + ", ".join(dict.fromkeys(table["victim"]))],
        note=study.not_shown,
        width_inches=min(PAGE_INCHES, max(3.5, left + 0.3 + FAULT_INCHES * len(kinds))),
        panel_inches=0.42 * max(len(strategies), 1),
    )
    (ax,) = page.axes
    if not strategies:
        return page
    for y, strategy in enumerate(strategies):
        for x, kind in enumerate(kinds):
            outcome, text = worst_outcome(table[(table["strategy"] == strategy) & (table["fault"] == kind)])
            color = OUTCOME_COLORS.get(outcome, "white")
            ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=color, edgecolor="none"))
            page.alt_text.append(f"{strategy}, {kind}: {text}".replace("\n", ", "))
            write_centred(ax, x, y, text, SMALL_POINTS, "white" if outcome == "failed" else "black")
    ax.set(xlim=(-0.5, len(kinds) - 0.5), ylim=(len(strategies) - 0.5, -0.5))
    label_grid(ax, kinds, labels)
    return page
