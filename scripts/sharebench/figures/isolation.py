"""Who dies: what became of the victims of each fault, strategy by strategy."""

import math
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.patches import Rectangle

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import CHARACTER_INCHES, PAGE_INCHES, Sheet, say, sheet
from sharebench.figures.style import SMALL_POINTS, is_narrow, plain

# From light to dark, with text in every cell: red and green alone would tell some readers nothing.
COLORS = {"unharmed": "#eef3f8", "survived": "#dcdcdc", "slowed": "#f2b56b", "failed": "#7d1d3f"}
ROW_INCHES = 0.42
# Two words of a fault's name fit side by side so wide.
COLUMN_INCHES = 0.95


def draw(study: data.DrawnStudy) -> Sheet:
    """One panel: strategies by faults, each cell with the worst outcome over its victims and repeats.

    In one column of a paper the faults are the rows.
    """
    table = data.isolation(study)
    strategies, kinds = study.strategies(table), list(dict.fromkeys(table["fault"]))
    repeats = study.config["fault_repeats"]
    # The study's own repeats, which are the last of its facts, are not those of faults.
    facts = [*study.facts[:-1], f"{repeats} repeat{'s' * (repeats != 1)}"]
    down, across = (kinds, strategies) if is_narrow() else (strategies, kinds)
    left = 0.2 + CHARACTER_INCHES * max((len(name) for name in down), default=4)
    page = sheet(
        ENTRIES["isolation"].title,
        [*facts, "victims: " + ", ".join(dict.fromkeys(table["victim"]))],
        1,
        x_label="",
        y_label="",
        note=study.not_shown,
        width_inches=min(PAGE_INCHES, max(3.5, left + 0.3 + COLUMN_INCHES * len(across))),
        panel_inches=ROW_INCHES * max(len(down), 1),
        left_inches=left,
    )
    ax = page.axes[0]
    if not strategies:
        say(page, ax, "Nothing to draw: no strategy has two tenants.")
        return page
    for i, strategy in enumerate(strategies):
        for j, kind in enumerate(kinds):
            x, y = (i, j) if is_narrow() else (j, i)
            rows = table[(table["strategy"] == strategy) & (table["fault"] == kind)]
            outcome, text = verdict(rows)
            color = COLORS.get(outcome, "white")
            ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=color, edgecolor="none"))
            page.words.append(f"{strategy}, {kind}: {text}".replace("\n", ", "))
            text = text.replace(" for ", "\nfor ") if is_narrow() else text
            dark = outcome == "failed"
            ax.text(x, y, text, ha="center", va="center", size=SMALL_POINTS, color="white" if dark else "black")
    ax.set(xlim=(-0.5, len(across) - 0.5), ylim=(len(down) - 0.5, -0.5))
    ax.set_xticks(range(len(across)), across)
    ax.set_yticks(range(len(down)), down)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    sns.despine(ax=ax, left=True, bottom=True)
    return page


def verdict(rows: pd.DataFrame) -> tuple[str, str]:
    """The worst outcome over the victims of one strategy and fault, and the words for it; empty where none is known."""
    total = {name: int(rows[name].sum()) for name in ("unharmed", "slowed", "failed", "unjudged")}
    count = sum(total.values())
    if not count:
        return "", "no value"
    share = "" if count == 1 else f" {{}} of {count}"
    if total["failed"]:
        return "failed", "failed" + share.format(total["failed"])
    if total["slowed"]:
        return "slowed", "slowed" + share.format(total["slowed"]) + _slowdown(rows)
    if total["unharmed"]:
        return "unharmed", "unharmed" + (share.format(total["unharmed"]) if total["unjudged"] else "")
    return "survived", "survived"


def _slowdown(rows: pd.DataFrame) -> str:
    slowed: list[dict[Any, Any]] = rows[rows["slowed"] > 0].to_dict("records")
    worst = max((row["slowed_ratio"] for row in slowed if not math.isnan(row["slowed_ratio"])), default=math.nan)
    factor = "" if math.isnan(worst) else f"{plain(worst)} × "
    return f"\n{factor}for {max(row['slowed_seconds'] for row in slowed):.2g} s"
