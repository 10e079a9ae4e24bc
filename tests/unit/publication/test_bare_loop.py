"""Pairs with a bare loop: what the comparison on a GPU writes is read, checked and made a table."""

import hashlib
import importlib.util
import math
from pathlib import Path

import pytest
from scipy import stats

from publication import others
from publication.findings import Contradicted

ROOT = Path(__file__).resolve().parents[3]


def compared(root: Path, rows: str) -> Path:
    folder = root / "published/gpu" / others.BARE_LOOP
    folder.mkdir(parents=True)
    text = ",".join(others.COLUMNS) + "\n" + rows
    (folder / others.PAIRS).write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "checksums.sha256").write_text(f"{digest}  {others.PAIRS}\n")
    return folder


def test_pairs_with_a_bare_loop_are_tabled(tmp_path: Path) -> None:
    ours = [1.01, 1.03, 1.019]
    rows = [f"mps,net,7,{pair},{1 / pair},{mine / pair}" for pair, mine in enumerate(ours, 1)]
    compared(tmp_path, "\n".join([*rows, "time-slicing,net,7,1,2.0,2.1"]) + "\n")
    found = others.bare_loop(tmp_path / "published/gpu")
    assert (found.agreeing, len(found.cells)) == (1, 2)
    assert found.furthest_percent == pytest.approx(5)
    logs = [math.log(mine) for mine in ours]
    low, high = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
    *_, first, second = found.table().splitlines()
    mean = f"{stats.gmean(ours):.4f} ({math.exp(low):.4f} to {math.exp(high):.4f})"
    assert first.endswith(f" | 3.0000 | 1.0190 | {mean} | yes |")
    assert second.endswith(" | 1.0500 | no |")
    assert others.bare_loop(tmp_path / "published/none").cells == []


def test_pairs_that_are_not_what_was_published_are_refused(tmp_path: Path) -> None:
    folder = compared(tmp_path, "mps,net,7,1,2.0,2.1\n")
    (folder / others.PAIRS).write_text("strategy\nmps\n")
    with pytest.raises(Contradicted, match="is not what was published"):
        others.bare_loop(tmp_path / "published/gpu")
    (folder / "checksums.sha256").unlink()
    with pytest.raises(Contradicted, match=r"make checksums.sha256 there: sha256sum pairs.csv"):
        others.bare_loop(tmp_path / "published/gpu")


def test_the_comparison_writes_what_is_read(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("compare_bare_loop", ROOT / "tests/gpu/compare_bare_loop.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (script.COLUMNS, script.LIMIT_RATIO) == (others.COLUMNS, others.LIMIT_RATIO)
    for pair in (1, 2):
        script.add_row(tmp_path / "pairs.csv", ("mps", "net", 7, pair, "1.5", "1.51"))
    assert len((tmp_path / "pairs.csv").read_text().splitlines()) == 3
