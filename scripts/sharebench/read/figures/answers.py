"""Wrong answers by the share of the SMs that MPS gives, for each precision."""

from pathlib import Path

from sharebench.core.files import read_json
from sharebench.model.answers import wrong_results
from sharebench.read.figures.data import DrawnStudy
from sharebench.read.figures.looks import COLORS, DASHES, MARKERS
from sharebench.read.figures.page import PAGE_INCHES, Sheet, explain_blank, save, sheet
from sharebench.read.figures.style import theme

TITLE = "Wrong answers by share of the SMs"


def answers(study: DrawnStudy) -> Sheet:
    """`draw` for a study whose data have the map."""
    return draw(study.data)


def write_figure(results: Path) -> None:
    """Write `results`/figures/answers.svg, .pdf and .png."""
    with theme():
        save(draw(results), results / "figures", "answers")


def draw(results: Path) -> Sheet:
    """Wrong results over the percentage, a line for each precision that is ever wrong."""
    probe = read_json(results / "nodes" / "answers.json", "node", "percent")
    node, shares = probe["node"], {int(percent): found for percent, found in probe["percent"].items()}
    counts = {percent: wrong_results(found) for percent, found in sorted(shares.items())}
    precisions = sorted({name for count in counts.values() for name in count})
    wrong = [name for name in precisions if any(count[name] for count in counts.values())]
    right = [name for name in precisions if name not in wrong]
    versions = next(iter(shares.values()))["versions"]
    page = sheet(
        TITLE,
        [node["product"], *(f"{name} {text}" for name, text in versions.items())],
        1,
        f"Each share was checked with {max(found['checked'] for found in shares.values())} results against float64. "
        + (f"Never wrong: {', '.join(right)}." if right else "Each precision was wrong at least once."),
        x_label="Share of the SMs (%)",
        y_label="Wrong results",
        columns=1,
        width_inches=PAGE_INCHES,
        panel_inches=2.2,
    )
    (ax,) = page.axes
    if not wrong:
        explain_blank(page, ax, "No result was wrong under any share.")
        return page
    for number, name in enumerate(wrong):
        look = {"color": COLORS[number], "marker": MARKERS[number], "ls": DASHES[number]}
        ax.plot(list(counts), [count[name] for count in counts.values()], label=name, **look)
        under = (str(percent) for percent, count in counts.items() if count[name])
        page.alt_text.append(f"{name} is wrong under {', '.join(under)} percent")
    most = max(max(count.values(), default=0) for count in counts.values())
    ax.set(xlim=(0, 101), ylim=(-0.02 * most, None))
    ax.legend(loc="upper right", frameon=False)
    return page
