"""Which promises are kept: promises by strategies, each cell with the measured number."""

import math

from matplotlib.patches import Rectangle

from sharebench.model.promises import BROKEN, KEPT, NOT_MEASURED, NOT_PROMISED, promises
from sharebench.read.figures.data import DrawnStudy, Row, table_rows
from sharebench.read.figures.grids import CHARACTER_INCHES, label_grid, write_centred
from sharebench.read.figures.looks import strategy_label
from sharebench.read.figures.page import PAGE_INCHES, Sheet, study_sheet
from sharebench.read.figures.style import SMALL_POINTS

# From light to dark, and every cell has text, as some readers cannot distinguish red and green.
COLORS = {KEPT: "#cfe0f2", BROKEN: "#7d1d3f", NOT_PROMISED: "#dcdcdc", NOT_MEASURED: "white"}
WORST_FIRST = (BROKEN, NOT_MEASURED, KEPT, NOT_PROMISED)
COLUMN_INCHES, ROW_INCHES = 0.95, 0.3
LEGEND = "Blue: kept; dark red: broken; grey: not promised; white: not measured. In brackets the number of tenants."


def conformance(study: DrawnStudy) -> Sheet:
    """Of several repeats and numbers of tenants a cell shows the worst, with the number of tenants."""
    table = study.table("conformance")
    strategies, names = study.strategies(table), list(dict.fromkeys(table["promise"]))
    labels = list(map(promise_label, names))
    left = 0.3 + CHARACTER_INCHES * max(map(len, labels), default=0)
    page = study_sheet(
        study,
        "conformance",
        min(1, len(names)),
        "nothing was measured",
        note=f"{LEGEND} {study.not_shown}".strip(),
        width_inches=min(PAGE_INCHES, max(3.5, left + 0.3 + COLUMN_INCHES * len(strategies))),
        panel_inches=ROW_INCHES * max(len(names), 1),
    )
    if not names:
        return page
    (ax,) = page.axes
    for y, promise in enumerate(names):
        for x, strategy in enumerate(strategies):
            rows = table_rows(table[(table["promise"] == promise) & (table["strategy"] == strategy)])
            if not rows:
                continue
            row = min(rows, key=lambda each: WORST_FIRST.index(each["verdict"]))
            color = COLORS[row["verdict"]]
            ax.add_patch(Rectangle((x - 0.48, y - 0.44), 0.96, 0.88, facecolor=color, edgecolor="none"))
            text = number_text(row)
            page.alt_text.append(f"{strategy}, {promise}: {row['verdict']}, {text}")
            write_centred(ax, x, y, text, SMALL_POINTS, "white" if row["verdict"] == BROKEN else "black")
    ax.set(xlim=(-0.5, len(strategies) - 0.5), ylim=(len(names) - 0.5, -0.5))
    label_grid(ax, list(map(strategy_label, strategies)), labels)
    return page


def promise_label(name: str) -> str:
    """What a row of the table is about, with its unit: `right answers (wrong results)`."""
    promise, _, kind = name.partition(" ")
    about = promises()[promise]
    return f"{about.title}{f', {kind}' if kind else ''} ({about.unit.replace('percent of', '% of')})"


def number_text(row: Row) -> str:
    """The measured number of a row with three digits, and the number of its tenants."""
    value = row["measured"]
    text = f"{value:.3g}".replace("e+0", "e")
    return "–" if math.isnan(value) else f"{text} (× {row['replicas']})"
