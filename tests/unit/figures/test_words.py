"""Long words stay where they belong."""

from matplotlib.lines import Line2D

from sharebench.figures.page import say, sheet
from sharebench.figures.style import theme

LONG = "mps-limited-200 (yolos-graph: N = 5; bert: no valid cell; matmul-16384: no valid cell; resnet50-graph: N = 5)"


def test_why_a_panel_is_empty_stays_inside_it() -> None:
    words = "yolos-graph, mps-limited-200: no valid cell. no valid baseline in its block, nor in any other one"
    with theme():
        page = sheet("Title", [], 4, x_label="", y_label="", columns=4, panel_inches=1.3)
        for ax in page.axes:
            say(page, ax, words)
            (text,) = ax.texts
            box = text.get_window_extent()
            assert text.get_text().split() == words.split(), "all of it, and no name broken"
            assert ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1
            assert ax.bbox.y0 <= box.y0 and box.y1 <= ax.bbox.y1


def test_a_long_entry_of_a_legend_stays_on_the_page() -> None:
    entries = [Line2D([], [], label=label) for label in ("exclusive", LONG)]
    with theme():
        page = sheet("Title", [], 1, x_label="", y_label="", legend=entries)
        (legend,) = page.figure.legends
        first, second = legend.get_texts()
        assert first.get_text() == "exclusive" and second.get_text().split() == LONG.split()
        box = legend.get_window_extent()
        assert box.x1 <= page.figure.bbox.x1
        assert box.y0 >= page.axes[0].get_window_extent().y1, "the panels make room for it"
