"""Manifests, figures and pages of the strategies agree with the code; `make docs` rebuilds all of them."""

import re
import sys
from importlib.metadata import version
from itertools import combinations
from pathlib import Path

import pytest
from unit.kubernetes.manifests import made
from unit.studies import base_config

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "strategies"
REBUILD_HINT = "run `make docs` and look at what it changed"
SECTIONS = ["How it works", "When to use it", "What it costs", "Pitfalls", "How we prove it", "In Kubernetes"]
# The box of a text has room above and below its letters.
SLACK_INCHES = 0.02
PINNED = re.search(r"^matplotlib==([\d.]+)", (ROOT / "envs" / "sharebench.txt").read_text(), flags=re.MULTILINE)

sys.path.insert(0, str(PAGES))

import draw  # noqa: E402
import include  # noqa: E402

from sharebench.read.figures.style import theme  # noqa: E402


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_has_its_sections_figure_and_manifests(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE)[: len(SECTIONS)] == SECTIONS
    assert re.search(rf"^!\[.+\]\(figures/{page.stem}\.svg\)$", text, flags=re.MULTILINE)
    assert include.included(text) == text, REBUILD_HINT
    assert f"(strategies/{page.name})" in (ROOT / "docs" / "README.md").read_text(), "list the page there"


def test_every_strategy_is_on_a_page_with_the_manifest_of_each_access() -> None:
    text = "\n".join(page.read_text() for page in PAGES.glob("*.md"))
    named = set(re.findall(r"`([a-z0-9-]+)`", text))
    assert set(base_config()["strategy_catalogue"]) <= named
    shown = {found[2] for found in include.BLOCK.finditer(text)}
    assert shown <= set(made())
    assert {"exclusive", "time-slicing", "mps-dra", "mps-limited", "hami", "volcano-vgpu", "kai-fraction"} <= shown


def test_a_page_leaves_out_what_all_pods_share() -> None:
    whole = {"a": 1, "b": [{"name": "x", "v": 1}, {"name": "y"}], "c": {"d": [1, 2]}}
    other = {"a": 1, "b": [{"name": "x", "v": 2}], "c": {"d": [1, 3]}}
    shared = include.common(whole, other)
    assert shared == {"a": 1, "b": [{"name": "x"}], "c": {}}
    assert include.beyond(whole, shared) == {"b": [{"name": "x", "v": 1}, {"name": "y"}], "c": {"d": [1, 2]}}
    assert include.beyond(whole, whole) is None


@pytest.mark.skipif(
    PINNED is None or version("matplotlib") != PINNED[1], reason="another matplotlib than the pinned one"
)
def test_the_figures_are_what_the_code_draws(tmp_path: Path) -> None:
    draw.draw(tmp_path)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in (PAGES / "figures").iterdir()}
    assert set(drawn) == set(kept)
    assert [name for name, content in drawn.items() if kept[name] != content] == [], REBUILD_HINT


@pytest.mark.parametrize("name", draw.PICTURES)
def test_texts_stay_in_their_boxes_and_do_not_overlap(name: str) -> None:
    with theme():
        figure, drawing = draw.drawn(draw.PICTURES[name])
        figure.canvas.draw()
        boxes = []
        for text, room in drawing.texts:
            box = text.get_window_extent().transformed(drawing.axes.transData.inverted())
            left, bottom, right, top = room
            assert left - SLACK_INCHES < box.x0, text
            assert box.x1 < right + SLACK_INCHES, text
            assert bottom - SLACK_INCHES < box.y0, text
            assert box.y1 < top + SLACK_INCHES, text
            boxes.append((text, box))
    for (one, one_box), (other, other_box) in combinations(boxes, 2):
        assert not one_box.overlaps(other_box), (one, other)
