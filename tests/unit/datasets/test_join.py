"""A failed `join` leaves no cells behind; a pipeline test joins whole studies."""

import shutil
from pathlib import Path

import pytest
from unit.studies import study_with

from sharebench.datasets.join import JoinError, join
from sharebench.study.study import Study


@pytest.fixture
def planned() -> Study:
    return study_with({"node": "simulated", "workloads": ["matmul"], "strategies": ["mps"], "repeats": 1})


@pytest.fixture
def part(planned: Study, tmp_path: Path) -> Path:
    for cell in planned.cells:
        (tmp_path / "part" / cell.folder).mkdir(parents=True)
        (tmp_path / "part" / cell.raw).write_text(str(cell))
    return tmp_path / "part"


def test_an_interrupted_join_leaves_no_cells_and_can_be_repeated(
    planned: Study, part: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, copytree, copied = tmp_path / "results", shutil.copytree, []

    def copy_until_full(source: Path, target: Path) -> None:
        if len(copied) == 2:
            raise OSError("No space left on device")
        copied.append(copytree(source, target))

    monkeypatch.setattr(shutil, "copytree", copy_until_full)
    with pytest.raises(OSError, match="No space left"):
        join(planned, [part], results)
    assert not (results / "cells").exists()

    monkeypatch.undo()
    join(planned, [part], results)
    assert {(results / cell.raw).read_text() for cell in planned.cells} == set(map(str, planned.cells))
    assert [path.name for path in results.iterdir()] == ["cells"]


def test_a_cell_in_two_parts_is_refused(planned: Study, part: Path, tmp_path: Path) -> None:
    other = shutil.copytree(part, tmp_path / "other")
    with pytest.raises(JoinError, match="both have cells/"):
        join(planned, [part, other], tmp_path / "results")
