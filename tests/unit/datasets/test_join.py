"""A failed `join` leaves no cells behind; a pipeline test joins whole studies."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from unit.measured import write_data_set
from unit.studies import study_with

from sharebench.datasets.archive import CHECKSUMS, ArchiveError
from sharebench.datasets.join import JoinError, join
from sharebench.read import aggregate
from sharebench.read.checker import RecordsRefused
from sharebench.study.cells import Cell
from sharebench.study.study import Study


@pytest.fixture
def planned() -> Study:
    return study_with({"node": "simulated", "workloads": ["matmul"], "strategies": ["mps"], "repeats": 1})


def record_text(study: Study, cell: Cell) -> str:
    return json.dumps({"spec": study.spec(cell).text, "code": "code-1"})


@pytest.fixture
def part(planned: Study, tmp_path: Path) -> Path:
    for cell in planned.cells:
        (tmp_path / "part" / cell.folder).mkdir(parents=True)
        (tmp_path / "part" / cell.raw).write_text(record_text(planned, cell))
    return tmp_path / "part"


def test_an_interrupted_join_leaves_no_cells_and_can_be_repeated(
    planned: Study, part: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, copytree, copied = tmp_path / "results", shutil.copytree, []

    def copy_until_full(source: Path, target: Path, **options: Any) -> None:
        if len(copied) == 2:
            raise OSError("No space left on device")
        copied.append(copytree(source, target, **options))

    monkeypatch.setattr(shutil, "copytree", copy_until_full)
    with pytest.raises(OSError, match="No space left"):
        join(planned, [part], results)
    assert not (results / "cells").exists()

    monkeypatch.undo()
    join(planned, [part], results)
    assert all((results / cell.raw).read_text() == record_text(planned, cell) for cell in planned.cells)
    assert {path.name for path in results.iterdir()} == {"cells", ".sharebench"}


def test_a_cell_in_two_parts_is_refused(planned: Study, part: Path, tmp_path: Path) -> None:
    other = shutil.copytree(part, tmp_path / "other")
    with pytest.raises(JoinError, match="both have cells/"):
        join(planned, [part, other], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_part_of_another_study_is_refused(planned: Study, part: Path, tmp_path: Path) -> None:
    other = Study(planned.config | {"window_seconds": 7})
    (part / planned.cells[-1].raw).write_text(record_text(other, planned.cells[-1]))
    with pytest.raises(
        JoinError, match=r"raw\.json is of another study: window_seconds 7 → [0-9.]+; leave its part out$"
    ):
        join(planned, [part], tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("place", ["nodes/x.json", "cells/mps/x.json", "calibration"])
def test_a_link_in_a_part_is_not_followed(place: str, planned: Study, part: Path, tmp_path: Path) -> None:
    (tmp_path / "private.json").write_text("{}")
    (part / place).parent.mkdir(parents=True, exist_ok=True)
    (part / place).symlink_to(tmp_path / "private.json")
    with pytest.raises(ArchiveError, match=f"{place} is a link or a device"):
        join(planned, [part], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_pipe_in_a_part_and_a_changed_part_are_refused(planned: Study, part: Path, tmp_path: Path) -> None:
    pipe = part / planned.cells[0].folder / "run.log"
    os.mkfifo(pipe)
    with pytest.raises(ArchiveError, match=r"run\.log is a link or a device"):
        join(planned, [part], tmp_path / "results")
    pipe.unlink()
    (part / CHECKSUMS).write_text(f"{'0' * 64}  {planned.cells[0].raw}\n")
    with pytest.raises(ArchiveError, match=r"raw\.json is not what was published"):
        join(planned, [part], tmp_path / "results")


def test_only_a_cells_own_files_are_copied(planned: Study, part: Path, tmp_path: Path) -> None:
    for name in ("run.log", "notes.txt", "more/raw.json"):
        path = part / planned.cells[0].folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    join(planned, [part], tmp_path / "results")
    copied = tmp_path / "results" / planned.cells[0].folder
    assert {path.name for path in copied.iterdir()} == {"raw.json", "run.log"}


@pytest.mark.parametrize("is_joined", [False, True])
@pytest.mark.parametrize("is_changed", [False, True, None])
def test_the_manifest_of_a_joined_study_names_the_commits_that_measured(
    tmp_path: Path, is_joined: bool, is_changed: bool | None
) -> None:
    keys = {"node": "simulated", "workloads": ["matmul"], "strategies": ["mps"], "replicas": [2], "repeats": 2}
    study = study_with(keys | {"null_cells": False, "measured_elsewhere": is_joined})

    def measured_by_two(record: Any) -> Any:
        repeat = record["cell"]["repeat"]
        return record | {
            "provenance": record["provenance"] | {"git_commit": f"commit{repeat}", "git_dirty": is_changed}
        }

    run = write_data_set(tmp_path, study, measured_by_two)
    study.config["from"] = [str(tmp_path)]
    aggregate.write_tables(study, tmp_path, tmp_path, dict(run) | {"git_commit": "merger", "git_dirty": None})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["git_commit"] == ("commit1, commit2" if is_joined else "merger")
    assert manifest["git_dirty"] is (True if is_joined and is_changed else None)


def test_a_joined_study_of_unknown_commits_names_none(tmp_path: Path) -> None:
    keys = {"node": "simulated", "workloads": ["matmul"], "strategies": ["mps"], "replicas": [2], "repeats": 1}
    study = study_with(keys | {"null_cells": False, "measured_elsewhere": True})
    run = write_data_set(tmp_path, study)
    study.config["from"] = [str(tmp_path)]
    aggregate.write_tables(study, tmp_path, tmp_path, dict(run) | {"git_commit": "merger", "git_dirty": True})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["git_commit"], manifest["git_dirty"]) == (None, None)


@pytest.mark.parametrize("is_other", [False, True])
def test_mixes_that_share_a_workload_share_its_calibration(tmp_path: Path, is_other: bool) -> None:
    model = {"min_window_seconds": 0.1, "simulated": {"serial_seconds": 0.001, "parallel_sm_seconds": 0.5}}
    mixes = {f"with-{name}": {"tenants": ["alpha", name]} for name in ("beta", "gamma")}
    catalogue = dict.fromkeys(("alpha", "beta", "gamma"), model) | mixes
    keys = {"node": "simulated", "workloads": [*mixes], "workload_catalogue": catalogue, "strategies": ["mps"]}
    study = study_with({**keys, "replicas": [2], "repeats": 1, "null_cells": False, "measured_elsewhere": True})

    def calibrated(record: Any) -> Any:
        alone = record["calibration"]
        if is_other and record["cell"]["workload"] == "with-gamma":
            alone |= {"workloads": alone["workloads"] | {"alpha": {"output_digest": [2.0], "capacity_hz": None}}}
        return record

    run = write_data_set(tmp_path, study, calibrated)
    study.config["from"] = [str(tmp_path)]
    with pytest.raises(RecordsRefused, match="another calibration") if is_other else contextlib.nullcontext():
        aggregate.write_tables(study, tmp_path, tmp_path, run)
