"""The studies of edition two: possible on a GPU, and as many cells and minutes as their design says."""

import re
from pathlib import Path
from typing import Any

import pytest
from gpu.visit import Edition, Part

from sharebench.config import nodes
from sharebench.config.load import ConfigError
from sharebench.core import capabilities
from sharebench.run import lifecycle
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
    (file,) = FOLDER.glob(f"[0-9][0-9]-{name}.yaml")
    return Part(file, changes).study


def test_the_design_has_the_studies_in_their_order() -> None:
    assert [name for name, _, _ in ROWS] == [part.name for part in Edition(FOLDER, {}).parts]


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


@pytest.mark.parametrize("name", [name for name, _, _ in ROWS])
def test_a_unit_has_its_baselines_and_fits_into_a_visit(name: str) -> None:
    (file,) = FOLDER.glob(f"[0-9][0-9]-{name}.yaml")
    part = Part(file, {})
    assert sorted(cell for unit in part.units for cell in unit) == sorted(part.study.cells)
    for unit in part.units:
        assert len({cell.repeat for cell in unit}) == 1
        alone = {cell.workload for cell in unit if cell.strategy == part.study.baseline}
        assert {own for cell in unit for own in part.study.components(cell)} <= alone or part.study.baseline is None
        line = lifecycle.headline(part.study, {}, unit, {"calibrate": len(alone)})
        assert int(re.findall(r"about (\d+) min", line)[0]) <= 22, "a lease has half an hour"


def test_what_was_measured_is_joined_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path / "none")
    monkeypatch.setattr(capabilities, "GPU_PROC_FOLDER", tmp_path / "none")
    (tmp_path / "part" / "cells").mkdir(parents=True)
    assert opened("tenants", parts=[str(tmp_path / "part")]).node_kind == "nvidia"
    with pytest.raises(ConfigError, match="no NVIDIA GPU"):
        opened("tenants")
