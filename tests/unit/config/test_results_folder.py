"""Which folders a study may write into."""

import re
from pathlib import Path

import pytest
from unit.studies import study_with

from sharebench.core.files import write_json
from sharebench.model.config.load import ConfigError

REFUSED = {
    "a file of someone": ["report.html"],
    "a manifest of someone": ["manifest.json", "tables/summary.csv"],
    "a home": [".bashrc"],
}
TAKEN = {
    "nothing": [],
    "a results folder": [".sharebench/lock", "report.html", "notes.txt"],
    "cells that were carried there": ["cells/mps/matmul/n1/r1/raw.json", "nodes/device.json"],
    "other studies": ["README.md", "quick/.sharebench/run.json", "survey/survey.md"],
    "a study": ["study.yaml"],
    "a fresh disk": ["lost+found/x"],
    "a folder that git or a desktop marks": [".gitkeep", ".DS_Store"],
}


def folder_with(root: Path, files: list[str]) -> Path:
    for name in files:
        write_json(root / name, {})
    return root


@pytest.mark.parametrize("files", REFUSED.values(), ids=REFUSED)
def test_a_folder_of_someone_else_is_refused(tmp_path: Path, files: list[str]) -> None:
    line = (
        rf"^config: results: '{tmp_path}' holds {re.escape(files[0])}, which is not of a study; name a new folder, .*"
    )
    with pytest.raises(ConfigError, match=line):
        study_with({"results": str(folder_with(tmp_path, files))})


@pytest.mark.parametrize("files", TAKEN.values(), ids=TAKEN)
def test_a_folder_of_a_study_or_a_new_one_is_taken(tmp_path: Path, files: list[str]) -> None:
    study_with({"results": str(folder_with(tmp_path, files))})


def test_an_unpacked_data_set_is_taken(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", {"config": {}, "node_kind": "cpu"})
    study_with({"results": str(tmp_path)})


def test_a_folder_inside_results_or_an_environment_is_refused(tmp_path: Path) -> None:
    folder_with(tmp_path, [".sharebench/run.json"])
    study_with({"results": str(tmp_path / "other")})
    with pytest.raises(ConfigError, match=f"is a part of {tmp_path}; name a new folder"):
        study_with({"results": str(tmp_path / "cells/mps")})
    with pytest.raises(ConfigError, match=r"'\.snakemake/x' holds more than results"):
        study_with({"results": ".snakemake/x"})
