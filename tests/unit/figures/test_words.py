"""Long words stay where they belong."""

import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Text

from sharebench.figures import data, timeline
from sharebench.figures.catalogue import PAPER
from sharebench.figures.page import say, sheet
from sharebench.figures.style import theme

LONG = "mps-limited-200 (yolos-graph: N = 5; bert: no valid cell; matmul-16384: no valid cell; resnet50-graph: N = 5)"


@pytest.mark.parametrize("width", PAPER)
def test_why_a_panel_is_empty_stays_inside_it(width: str) -> None:
    words = "yolos-graph, mps-limited-200: no valid cell. no valid baseline in its block, nor in any other one"
    with theme(PAPER[width]):
        page = sheet("Title", [], 4, x_label="", y_label="", columns=4, panel_inches=1.3)
        for ax in page.axes:
            say(page, ax, words)
            (text,) = ax.texts
            box = text.get_window_extent()
            assert text.get_text().split() == words.split(), "all of it, and no name broken"
            assert ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1
            assert ax.bbox.y0 <= box.y0 and box.y1 <= ax.bbox.y1


@pytest.mark.parametrize("width", PAPER)
def test_a_long_entry_of_a_legend_stays_on_the_page(width: str) -> None:
    entries = [Line2D([], [], label=label) for label in ("exclusive", LONG)]
    with theme(PAPER[width]):
        page = sheet("Title", [], 1, x_label="", y_label="", legend=entries)
        (legend,) = page.figure.legends
        first, second = legend.get_texts()
        assert first.get_text() == "exclusive" and second.get_text().split() == LONG.split()
        box = legend.get_window_extent()
        assert box.x1 <= page.figure.bbox.x1
        assert box.y0 >= page.axes[0].get_window_extent().y1, "the panels make room for it"


@pytest.mark.parametrize("width", PAPER)
def test_a_title_of_a_small_panel_stays_on_the_page(
    study: data.DrawnStudy, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    slots = {"slot_seconds": 0.1, "count": [2, 1], "sum_seconds": [0.04, 0.05]}
    samples = [data.Sample("mps-limited-200", name, 7, 7, 1, "") for name in ("matmul-256-graph", "b", "c", "d")]
    monkeypatch.setattr(timeline, "timelines", lambda *_: [slots])
    monkeypatch.setattr(timeline, "samples", lambda _: samples)
    with theme(PAPER[width]):
        page = timeline.timeline(study)
        page.figure.draw_without_rendering()
        for ax in page.axes:
            (title,) = (each for each in ax.get_children() if isinstance(each, Text) and each.get_text())
            assert title.get_text().endswith("N = 7")
            assert title.get_window_extent().x1 <= page.figure.bbox.x1
