"""The grid of fault outcomes: the texts of its cells, colours that differ in grey, and the report's sentences."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit.edited import edited_json
from unit.figures import fabricated

from sharebench.read.columns import columns
from sharebench.read.figures import data, grids
from sharebench.read.figures.page import Sheet
from sharebench.read.report import page as report

pytestmark = pytest.mark.usefixtures("themed")

KINDS = ["oom", "illegal-address", "killed", "spin"]


def row(strategy: str, fault: str, **values: Any) -> dict[str, Any]:
    """A row of isolation.csv: one victim that was unharmed, except for `values`."""
    counts = {"n_expected": 1, "n": 1, "n_excluded": 0, "unharmed": 0, "slowed": 0, "failed": 0, "unjudged": 0}
    base = {"strategy": strategy, "fault": fault, "victim": "matmul", "aggressor": "oom", "set_up_again": 0}
    return {**dict.fromkeys(columns("isolation")), **counts, **base, "new_tenant_seconds": 1.5, "notes": ""} | values


ROWS = [
    row("time-slicing", "oom", unharmed=1),
    row("time-slicing", "illegal-address", unharmed=1),
    row("time-slicing", "killed", unjudged=1),
    row("time-slicing", "spin", slowed=2, unharmed=1, slowed_ratio=2.04, slowed_seconds=0.9),
    row("mps", "oom", unharmed=1),
    row("mps", "illegal-address", failed=1, set_up_again=1, new_tenant_seconds=6.25),
    row("mps", "killed", failed=1, unharmed=2),
    row("mps", "spin", n=0, n_excluded=1, new_tenant_seconds=None),
]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up study with faults besides; read only."""
    root = fabricated.write(tmp_path_factory.mktemp("faults") / "results")
    with edited_json(root / "manifest.json") as manifest:
        manifest["config"]["faults"] = KINDS
    pd.DataFrame(ROWS, columns=list(columns("isolation"))).to_csv(root / "tables" / "isolation.csv", index=False)
    return root


@pytest.fixture
def page(faulty: Path) -> Sheet:
    return grids.isolation(data.load_study(faulty, faulty))


def cells_of(page: Sheet) -> dict[tuple[str, str], str]:
    """The text of each cell by strategy and fault."""
    (ax,) = page.axes
    strategies = [tick.get_text() for tick in ax.get_yticklabels()]
    kinds = [tick.get_text() for tick in ax.get_xticklabels()]
    places = [(text.get_position(), text.get_text()) for text in ax.texts]
    return {(strategies[round(y)], kinds[round(x)]): text for (x, y), text in places}


def test_each_grid_cell_shows_the_worst_outcome(page: Sheet) -> None:
    assert cells_of(page) == {
        ("time-slicing", "oom"): "unharmed",
        ("time-slicing", "illegal-address"): "unharmed",
        ("time-slicing", "killed"): "survived",
        ("time-slicing", "spin"): "slowed 2 of 3\n2.04 × for 0.9 s",
        ("MPS", "oom"): "unharmed",
        ("MPS", "illegal-address"): "failed",
        ("MPS", "killed"): "failed 1 of 3",
        ("MPS", "spin"): "no value",
    }
    assert "mps, killed: failed 1 of 3" in page.alt_text
    assert "1 repeat" in page.alt_text and "3 repeats" not in page.alt_text


def test_the_report_names_survivors_of_each_fault(faulty: Path) -> None:
    found = dict(report.report_context(faulty, faulty)["isolation"])
    assert found == {
        "time-slicing": "Slowed, but alive, next to: spin. Unharmed next to: oom, illegal-address. Survived, with "
        "latencies that cannot be judged, next to: killed. Afterwards a new tenant was ready within 1.5 s.",
        "mps": "A victim failed next to: illegal-address, killed. Unharmed next to: oom. Not known next to: spin. "
        "Afterwards a new tenant was ready within 6.2 s. Had to be set up again after: illegal-address.",
    }
    report.write_report(faulty, faulty)
    assert '<section id="isolation">' in (faulty / "report.html").read_text()
