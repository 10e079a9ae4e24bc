"""The heat map of pairs: the texts of its cells, one colour scale for all, and reasons for missing values."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from unit.edited import edited_json
from unit.figures import fabricated

from sharebench.read.columns import columns
from sharebench.read.figures import data, grids, over_replicas
from sharebench.read.figures.page import Sheet
from sharebench.read.report import page as report

pytestmark = pytest.mark.usefixtures("themed")

NAMES = list(fabricated.ALONE_SECONDS)
SLOWDOWN = {
    ("time-slicing", "matmul", "matmul"): 2.0,
    ("time-slicing", "matmul", "hashing"): 4.0,
    ("time-slicing", "hashing", "matmul"): 1.25,
    ("time-slicing", "hashing", "hashing"): 2.1,
    ("mps", "matmul", "matmul"): 1.0,
    ("mps", "matmul", "hashing"): 1.1,
    ("mps", "hashing", "matmul"): 0.8,
}


def row(strategy: str, victim: str, aggressor: str) -> dict[str, Any]:
    """A row of interference.csv; mps has no valid cell of hashing next to hashing."""
    value = SLOWDOWN.get((strategy, victim, aggressor), np.nan)
    ends = {"slowdown_low": 0.9 * value, "slowdown_high": 1.1 * value}
    how = {"status": "ok", "reason": ""} if value > 0 else {"status": "oom", "reason": "1 of 2 tenants fit"}
    named = {"strategy": strategy, "victim": victim, "aggressor": aggressor}
    return named | {"slowdown": value, "n": 3 if value > 0 else 0, "n_expected": 3} | ends | how


def with_pairs(root: Path) -> Path:
    """The made-up study with the pairs of its workloads besides."""
    with edited_json(root / "manifest.json") as manifest:
        manifest["config"]["interference"] = NAMES
    rows = [row(strategy, a, b) for strategy in ("time-slicing", "mps") for a in NAMES for b in NAMES]
    pd.DataFrame(rows, columns=list(columns("interference"))).to_csv(root / "tables" / "interference.csv", index=False)
    return root


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of that study; read only."""
    return with_pairs(fabricated.write(tmp_path_factory.mktemp("pairs") / "results"))


@pytest.fixture
def page(paired: Path) -> Sheet:
    return grids.interference(data.load_study(paired, paired))


def cells_of(page: Sheet, panel: int) -> dict[tuple[int, int], list[str]]:
    """The texts of a panel's cells, by row and column."""
    found: dict[tuple[int, int], list[str]] = {}
    for text in page.axes[panel].texts:
        x, y = text.get_position()
        found.setdefault((round(y), round(x)), []).append(text.get_text())
    return found


def test_each_grid_cell_shows_the_slowdown_of_its_row_next_to_its_column(page: Sheet) -> None:
    assert [ax.get_title(loc="left") for ax in page.axes] == ["time-slicing", "MPS"]
    for ax in page.axes:
        assert [tick.get_text() for tick in ax.get_yticklabels()] == NAMES
        assert [tick.get_text() for tick in ax.get_xticklabels()] == NAMES
    assert cells_of(page, 0)[NAMES.index("matmul"), NAMES.index("hashing")] == ["4.00", "3.60–4.40"]
    assert cells_of(page, 0)[NAMES.index("hashing"), NAMES.index("matmul")] == ["1.25", "1.12–1.38"]


def test_one_colour_scale_has_one_in_its_middle(page: Sheet) -> None:
    (sliced,), (shared,) = (ax.images for ax in page.axes)
    assert sliced.norm.vmax == shared.norm.vmax == 4
    assert sliced.norm.vmin == shared.norm.vmin == pytest.approx(1 / 4)
    assert float(shared.norm(1.0)) == pytest.approx(0.5)
    white = np.array(shared.cmap(0.5)[:3])
    red, blue = shared.cmap(shared.norm(1.1)), shared.cmap(shared.norm(0.8))
    assert white.min() > 0.9
    assert red[0] > red[2] and blue[2] > blue[0], "slower is red, faster blue"


def test_a_pair_without_a_value_has_a_reason(page: Sheet) -> None:
    at = NAMES.index("hashing")
    assert cells_of(page, 1)[at, at] == ["oom"]
    assert "mps: hashing next to hashing is oom" in page.alt_text


def test_other_figures_leave_mixes_out_with_a_remark(paired: Path, tmp_path: Path) -> None:
    table = pd.read_csv(paired / "tables" / "summary.csv")
    pair = table[(table["strategy"] == "mps") & (table["workload"] == "matmul")].assign(workload="hashing+matmul")
    (tmp_path / "tables").mkdir()
    pd.concat([table, pair]).to_csv(tmp_path / "tables" / "summary.csv", index=False)
    (tmp_path / "manifest.json").write_text((paired / "manifest.json").read_text())
    page = over_replicas.latency(data.load_study(paired, tmp_path))
    titles = " ".join(ax.get_title(loc="left") for ax in page.axes)
    assert "matmul" in titles and "+" not in titles
    assert any("Mixes of workloads are not drawn here" in words for words in page.alt_text)


def test_the_report_names_the_worst_and_the_most_asymmetric_pair(paired: Path) -> None:
    interfered = dict(report.report_context(paired, paired)["interference"])
    assert interfered["time-slicing"] == (
        "Worst: next to hashing, the latency of matmul is × 4.00 of that alone (95 % interval 3.60 to 4.40)."
        " Least alike: matmul next to hashing × 4.00, hashing next to matmul × 1.25,"
        " a ratio of 3.20."
    )
    assert interfered["mps"].endswith("Without a valid measurement: 1 of 4.")
