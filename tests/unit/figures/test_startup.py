"""The bars of start-up: their selection, length and parts."""

import itertools
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle
from unit.edited import edited_table
from unit.figures import fabricated

from sharebench.read.figures import data, startup
from sharebench.read.figures.page import Sheet

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def page(tmp_path: Path) -> Sheet:
    root = fabricated.write(tmp_path / "results")
    with edited_table(root / "tables" / "startup.csv") as table:
        table.loc[table["strategy"] == "mps", "switch_in_seconds"] = 6.0
    return startup.startup(data.load_study(root, root))


def test_each_strategy_has_its_smallest_and_its_largest_number(page: Sheet) -> None:
    labels = [[tick.get_text() for tick in ax.get_yticklabels()] for ax in page.axes]
    shown = ["exclusive × 1", "time-slicing × 1", "time-slicing × 4", "MPS × 1", "MPS × 4", "MIG × 1", "MIG × 2"]
    assert labels == [shown, shown], "mig has no cell with 4"


def test_parts_are_stacked_and_their_sum_is_written(page: Sheet) -> None:
    bars = [patch for patch in page.axes[0].patches if isinstance(patch, Rectangle)]
    mps = sorted((bar.get_x(), bar.get_width()) for bar in bars if round(bar.get_y() + 0.35) == 3)
    # Set the strategy, process, import, load, first iteration; there is no context.
    assert [width for _, width in mps] == pytest.approx([6.0, 0.05, 0.2, 0.1, 0.01])
    for (left, width), (following, _) in itertools.pairwise(mps):
        assert left + width == pytest.approx(following)
    assert "matmul, MPS × 1: 6.4 s" in page.alt_text
    assert "6.4 s" in [text.get_text() for text in page.axes[0].texts]
    (legend,) = page.figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["set the strategy", "process", "import", "load", "first iteration"]


def test_minutes_are_written_in_seconds_without_an_exponent(tmp_path: Path) -> None:
    root = fabricated.write(tmp_path / "results")
    with edited_table(root / "tables" / "startup.csv") as table:
        table.loc[table["strategy"] == "mps", "switch_in_seconds"] = 230.0
    page = startup.startup(data.load_study(root, root))
    assert "230 s" in [text.get_text() for text in page.axes[0].texts]


def test_the_switch_of_a_cluster_is_split_into_parts(tmp_path: Path) -> None:
    root = fabricated.write(tmp_path / "results")
    with edited_table(root / "tables" / "startup.csv") as table:
        steps = {"in": 30.0, "publish": 4.0, "pending": 1.0, "cut": 5.0, "plugin": 3.0, "follow": 7.0, "stable": 10.0}
        for step, seconds in steps.items():
            table.loc[table["strategy"] == "mps", f"switch_{step}_seconds"] = seconds
    page = startup.startup(data.load_study(root, root))
    bars = [patch for patch in page.axes[0].patches if isinstance(patch, Rectangle)]
    mps = sorted((bar.get_x(), bar.get_width()) for bar in bars if round(bar.get_y() + 0.35) == 3)
    assert [width for _, width in mps][:3] == pytest.approx([6.0, 10.0, 14.0])
    (legend,) = page.figure.legends
    assert [text.get_text() for text in legend.get_texts()][:3] == ["MIG manager", "device plugin", "set the strategy"]
