"""`make clean` removes what the project made and nothing else."""

import os
import re
from pathlib import Path

import pytest

import clean
from sharebench.run.ownership import OwnershipError, claim

RULES = Path(__file__).parents[3] / "rules"


def test_only_what_a_run_made_is_removed(tmp_path: Path) -> None:
    mine = [
        ".venv/bin/python",
        ".venv-gpu/bin/python",
        "results/report.html",
        "results/study/.sharebench/run.json",
        "scripts/__pycache__/x.pyc",
    ]
    theirs = ["results/README.md", "results/kept/data.csv", "scripts/x.py", "notes.txt"]
    for name in mine + theirs:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = {path.relative_to(tmp_path).as_posix() for path in clean.made(tmp_path)}
    assert found == {".venv", ".venv-gpu", "results/report.html", "results/study", "scripts/__pycache__"}


@pytest.mark.parametrize("folder", ["results", "results/study", "results/from/device"])
def test_nothing_is_removed_while_a_run_uses_results(tmp_path: Path, folder: str) -> None:
    (tmp_path / ".venv").mkdir()
    run = claim(tmp_path / folder, {})
    with pytest.raises(OwnershipError, match=rf"{folder} is in use by run {run.run_id} \(process {os.getpid()}, "):
        clean.clean(tmp_path)
    assert (tmp_path / ".venv").exists() and (tmp_path / folder).exists()
    run.release()
    clean.clean(tmp_path)
    assert not (tmp_path / ".venv").exists() and not (tmp_path / folder / ".sharebench").exists()


def test_it_knows_all_that_rules_make() -> None:
    text = "".join(path.read_text() for path in RULES.glob("*.smk"))
    # DATA and RESULTS are the same folder to those that make something there.
    made = set(re.findall(r"<results>/([\w.-]+)|RESULTS / f?\"([\w.-]+)", text))
    assert {one or other for one, other in made} <= set(clean.RESULTS)
