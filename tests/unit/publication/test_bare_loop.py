"""The pairs that the comparison with a bare loop writes on a GPU are read, verified and tabulated."""

import hashlib
import importlib.util
import math
from pathlib import Path

import pytest
from scipy import stats

from publication import cross_checks
from publication.findings import Contradicted

ROOT = Path(__file__).resolve().parents[3]


def write_pairs(root: Path, rows: str) -> Path:
    folder = root / "published/gpu" / cross_checks.BARE_LOOP_FOLDER
    folder.mkdir(parents=True)
    text = ",".join(cross_checks.PAIRS_COLUMNS) + "\n" + rows
    (folder / cross_checks.PAIRS_FILE).write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "checksums.sha256").write_text(f"{digest}  {cross_checks.PAIRS_FILE}\n")
    return folder


def test_pairs_with_a_bare_loop_give_a_table(tmp_path: Path) -> None:
    ours = [1.01, 1.03, 1.019]
    rows = [f"mps,net,7,{pair},{1 / pair},{mine / pair}" for pair, mine in enumerate(ours, 1)]
    write_pairs(tmp_path, "\n".join([*rows, "time-slicing,net,7,1,2.0,2.1"]) + "\n")
    found = cross_checks.read_bare_loop(tmp_path / "published/gpu")
    assert (found.agreeing, len(found.cells)) == (1, 2)
    assert found.furthest_percent == pytest.approx(5)
    logs = [math.log(mine) for mine in ours]
    low, high = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
    *_, first, second = found.table().splitlines()
    mean = f"{stats.gmean(ours):.4f} ({math.exp(low):.4f} to {math.exp(high):.4f})"
    assert first.endswith(f" | 3.0000 | 1.0190 | {mean} | yes |")
    assert second.endswith(" | 1.0500 | no |")
    assert cross_checks.read_bare_loop(tmp_path / "published/none").cells == []


def test_changed_pairs_are_refused(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path, "mps,net,7,1,2.0,2.1\n")
    (folder / cross_checks.PAIRS_FILE).write_text("strategy\nmps\n")
    with pytest.raises(Contradicted, match="is not what was published"):
        cross_checks.read_bare_loop(tmp_path / "published/gpu")
    (folder / "checksums.sha256").unlink()
    with pytest.raises(Contradicted, match=r"make checksums.sha256 there: sha256sum pairs.csv"):
        cross_checks.read_bare_loop(tmp_path / "published/gpu")


def test_the_comparison_writes_the_columns_that_are_read(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("compare_bare_loop", ROOT / "tests/gpu/compare_bare_loop.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (script.COLUMNS, script.LIMIT_RATIO) == (cross_checks.PAIRS_COLUMNS, cross_checks.LIMIT_RATIO)
    for pair in (1, 2):
        script.add_row(tmp_path / "pairs.csv", ("mps", "net", 7, pair, "1.5", "1.51"))
    assert len((tmp_path / "pairs.csv").read_text().splitlines()) == 3
