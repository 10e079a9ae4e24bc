"""A figure is drawn from the table that it declares, which is all that the rule of figures waits for."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from unit.figures import fabricated, serving, test_conformance, test_interference, test_isolation, test_jobs

from sharebench.read.columns import columns
from sharebench.read.figures import data, draw
from sharebench.read.figures.catalogue import ENTRIES

pytestmark = pytest.mark.usefixtures("themed")

SERVER_FIGURES = ("serving", "load-curve", "replicas", "utilisation")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up study with pairs, jobs, faults and promises besides; read only."""
    root = test_interference.with_pairs(fabricated.write(tmp_path_factory.mktemp("plain") / "results"))
    test_jobs.with_jobs(root)
    for name, rows in (("isolation", test_isolation.ROWS), ("conformance", test_conformance.ROWS)):
        pd.DataFrame(rows, columns=list(columns(name))).to_csv(root / "tables" / f"{name}.csv", index=False)
    return root


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serving.study(tmp_path_factory.mktemp("served") / "results").results


@pytest.mark.parametrize("name", ENTRIES)
def test_a_figure_needs_its_declared_table_only(name: str, plain: Path, served: Path, tmp_path: Path) -> None:
    root, table = served if name in SERVER_FIGURES else plain, f"tables/{ENTRIES[name].table}.csv"
    for file in ("manifest.json", "nodes/device.json", table):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(root / file, tmp_path / file)
    assert draw.DRAWERS[name](data.load_study(tmp_path, tmp_path)).alt_text
