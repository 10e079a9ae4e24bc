"""The figure of time slices: it shows the probe's measurements and their origin."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.text import Text
from unit.figures import fabricated

from sharebench.core.files import write_json
from sharebench.measure.run.timeslice.probe import write_table
from sharebench.measure.run.timeslice.slices import analyse
from sharebench.read.figures import looks, style, timeslice
from sharebench.read.figures import page as sheet

SCRIPT = Path(__file__).parents[3] / "scripts" / "job.py"
CATALOGUE = ["exclusive", "time-slicing", "mps", "streams"]
LOOKS = looks.strategy_looks(CATALOGUE, [])
SWITCH_NS, SLICE_NS = 150_000, 2_000_000
END_NS = 1_000_000_000
REASON = "streams need a workload with a captured graph"


def watched(tenants: int = 2) -> dict[str, list[dict[str, Any]]]:
    """Planted: turns of about 2 ms under time-slicing, all at once under MPS."""
    random = np.random.default_rng(1)
    lengths = random.normal(SLICE_NS, SLICE_NS / 50, 500).astype(int)
    ends = np.cumsum(lengths + SWITCH_NS) - SWITCH_NS
    begins = ends - lengths
    turns = []
    for lane in range(tenants):
        mine = np.column_stack((ends[lane::tenants][:-1], begins[lane::tenants][1:]))
        turns.append(timeline(int(begins[lane]), mine[mine[:, 0] < END_NS].tolist()))
    return {"time-slicing": turns, "mps": [timeline(2000 * lane, []) for lane in range(tenants)]}


def timeline(first_ns: int, gaps: list[list[int]]) -> dict[str, Any]:
    last_ns = max([END_NS, *(after for _, after in gaps)])
    return {"first_ns": first_ns, "last_ns": last_ns, "resolution_ns": 32, "gap_count": len(gaps), "gaps": gaps}


def write(root: Path, timelines: dict[str, list[dict[str, Any]]]) -> Path:
    """The two files that the figure reads."""
    found: dict[str, Any] = {"streams": {"infeasible": REASON}}
    table: list[Any] = []
    for name, lanes in timelines.items():
        part, rows = analyse(lanes, END_NS)
        found[name] = {"infeasible": None, **part}
        table += [(name, *row) for row in rows]
    node = fabricated.node(label="") | {"product": "NVIDIA H200"}
    content = {"node": node, "seconds": 1, "threshold_us": 5.0, "strategies": found}
    content["tenants"] = max(map(len, timelines.values()))
    (root / "tables").mkdir(parents=True)
    write_json(root / "nodes" / "timeslice.json", content)
    write_table(root / "tables" / "timeslice.csv", table)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("probe"), watched())


@pytest.fixture
def page(root: Path) -> Iterator[sheet.Sheet]:
    with style.theme():
        yield timeslice.draw(root, CATALOGUE)


def texts(page: sheet.Sheet) -> str:
    return " ".join(text.get_text() for text in page.figure.findobj(Text))


def test_each_strategy_has_a_strip_and_each_tenant_a_lane(page: sheet.Sheet) -> None:
    turns, at_once, infeasible, _ = page.axes
    lanes = [c for c in turns.collections if isinstance(c, PolyCollection)]
    assert len(lanes) == 2
    assert to_hex(lanes[0].get_facecolor()[0]) == LOOKS["time-slicing"].color
    # 20 ms of turns of 2.15 ms: nine or ten in all, of which each tenant has every other one
    assert sum(len(lane.get_paths()) for lane in lanes) in (9, 10, 11)
    assert [len(c.get_paths()) for c in at_once.collections] == [1, 1]
    assert turns.get_xlim() == at_once.get_xlim() == (0, 20)
    assert not infeasible.axison


def test_the_distribution_matches_the_table(page: sheet.Sheet) -> None:
    (line,) = page.axes[-1].get_lines()
    assert line.get_color() == LOOKS["time-slicing"].color
    lengths_ms, share = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    median_ms = lengths_ms[np.searchsorted(share, 0.5)]
    assert median_ms == pytest.approx(SLICE_NS / 1e6, rel=0.1)
    assert (np.diff(share) >= 0).all() and share[-1] == 1.0


def test_the_page_names_device_and_probe(page: sheet.Sheet) -> None:
    said = texts(page).replace("\n", " ")
    for fact in ("NVIDIA H200", "2 tenants", "32 ns", "150 µs from one tenant to the next", REASON):
        assert fact in said
    assert "Under MPS no run ended while we watched." in said
    assert "2.00 tenants on the device at a time" in said


def test_a_distribution_without_runs_is_explained(tmp_path: Path) -> None:
    only = {"mps": [timeline(0, []), timeline(0, [])]}
    with style.theme():
        page = timeslice.draw(write(tmp_path, only), CATALOGUE)
    assert "No run began and ended" in texts(page)


def test_two_strips_say_what_they_show_and_are_no_higher_than_250_pixels(root: Path) -> None:
    study = SimpleNamespace(data=root, catalogue=CATALOGUE)
    with style.theme():
        page = timeslice.strips(study)
    assert page.title == "Time-slicing runs one tenant at a time, 2 ms each; MPS runs both at once"
    assert [to_hex(ax.collections[0].get_facecolor()[0]) for ax in page.axes] == [
        LOOKS[name].color for name in timeslice.STRIPS
    ]
    assert 96 * page.figure.get_size_inches()[1] <= 250


@pytest.mark.thorough
def test_the_script_draws_the_timeslice_figure(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    command = [sys.executable, SCRIPT, "draw_timeslice", "--results", copy, "--catalogue", *CATALOGUE]
    subprocess.run(command, check=True)
    files = sorted((copy / "figures").iterdir())
    assert [file.name for file in files] == ["timeslice.pdf", "timeslice.png", "timeslice.svg"]
    title = re.search("<dc:title>(.*?)</dc:title>", files[2].read_text())
    assert title is not None and title[1] == timeslice.TITLE
