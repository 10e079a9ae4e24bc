"""The studies of edition two: possible on a GPU, and as many cells and minutes as their design says."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.utils import update_config
from unit.studies import files

from sharebench.config import nodes
from sharebench.core import capabilities
from sharebench.run import lifecycle
from sharebench.study.opened import open_study
from sharebench.study.study import Study

FOLDER = Path(__file__).parents[3] / "published" / "edition-two"
DESIGN = (FOLDER / "DESIGN.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+) \| (\d+) \|", DESIGN, flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path / "nvidia0")
    monkeypatch.setattr(nodes, "gpu_python", lambda _: tmp_path / "nvidia0")


def opened(name: str, **changes: Any) -> Study:
    config = copy.deepcopy(files())
    update_config(config, yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))
    return open_study(config | changes)


def test_the_design_has_every_study() -> None:
    assert {name for name, _, _ in ROWS} == {path.stem for path in FOLDER.glob("*.yaml")}


@pytest.mark.parametrize(("name", "cells", "minutes"), ROWS)
def test_a_repeat_takes_what_the_design_says(name: str, cells: str, minutes: str) -> None:
    once = opened(name, repeats=1, fault_repeats=1)
    assert len(once.cells) == int(cells)
    line = lifecycle.headline(once, {}, once.cells, {"calibrate": len(once.calibrated())})
    planned = re.search(r"about (\d+) min (\d+) s$", line)
    assert planned and round(int(planned[1]) + int(planned[2]) / 60) == int(minutes)


def test_all_repeats_are_as_many_cells_as_the_design_says() -> None:
    assert f"All repeats are {sum(len(opened(name).cells) for name, _, _ in ROWS)} cells" in DESIGN


@pytest.mark.parametrize("name", [name for name, _, _ in ROWS])
def test_windows_are_those_of_the_catalogue_or_longer(name: str) -> None:
    study = opened(name)
    least = max(study.config["workload_catalogue"][own]["min_window_seconds"] for own in study.calibrated())
    assert study.config["window_seconds"] >= least or all(map(study.is_job, study.workloads()))
