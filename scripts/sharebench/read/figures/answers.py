"""Wrong answers by the share of the SMs that MPS gives, for each precision."""

from pathlib import Path

import pandas as pd

from sharebench.core.files import read_json
from sharebench.read.figures.looks import COLORS, DASHES, MARKERS
from sharebench.read.figures.page import PAGE_INCHES, Sheet, explain_blank, save, sheet
from sharebench.read.figures.style import theme

TITLE = "Wrong answers by share of the SMs"


def write_figure(results: Path) -> None:
    """Write `results`/figures/answers.svg, .pdf and .png."""
    with theme():
        save(draw(results), results / "figures", "answers")


def draw(results: Path) -> Sheet:
    """Wrong results over the percentage, a line for each precision that is ever wrong."""
    probe = read_json(results / "nodes" / "answers.json", "node", "percent")
    table = pd.read_csv(results / "tables" / "answers.csv")
    node, versions = probe["node"], next(iter(probe["percent"].values()))["versions"]
    wrong = table[table["wrong"] > 0]["precision"].unique()
    right = [name for name in table["precision"].unique() if name not in wrong]
    page = sheet(
        TITLE,
        [node["product"], *(f"{name} {text}" for name, text in versions.items())],
        1,
        f"Each share was checked with {table['checked'].max()} results against float64. "
        + (f"Never wrong: {', '.join(right)}." if right else "Each precision was wrong at least once."),
        x_label="Share of the SMs (%)",
        y_label="Wrong results",
        columns=1,
        width_inches=PAGE_INCHES,
        panel_inches=2.2,
    )
    (ax,) = page.axes
    if not len(wrong):
        explain_blank(page, ax, "No result was wrong under any share.")
        return page
    for number, name in enumerate(wrong):
        rows = table[table["precision"] == name]
        look = {"color": COLORS[number], "marker": MARKERS[number], "ls": DASHES[number]}
        ax.plot(rows["percent"], rows["wrong"], label=name, **look)
        shares = rows[rows["wrong"] > 0]["percent"]
        page.alt_text.append(f"{name} is wrong under {', '.join(map(str, shares))} percent")
    ax.set(xlim=(0, 101), ylim=(-0.02 * wrong_most(table), None))
    ax.legend(loc="upper right", frameon=False)
    return page


def wrong_most(table: pd.DataFrame) -> int:
    return int(table["wrong"].max())
