"""The studies of edition two are possible on a GPU, and have the cells and minutes of their design."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gpu import visit
from gpu.visit import FIRST_REPEATS, Edition, Part

from sharebench.core.files import Refusal
from sharebench.measure.run import plan
from sharebench.model import capabilities
from sharebench.model.config import nodes
from sharebench.study.cells import Cell
from sharebench.study.study import Study

pytestmark = pytest.mark.thorough

FOLDER = Path(__file__).parents[3] / "published" / "edition-two"
DESIGN = (FOLDER / "DESIGN.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+) \| (\d+) \|", DESIGN, flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path / "nvidia0")
    monkeypatch.setattr(nodes, "gpu_python", lambda _: tmp_path / "nvidia0")


@cache
def whole(name: str) -> Part:
    (file,) = FOLDER.glob(f"[0-9][0-9]-{name}.yaml")
    return Part(file, {})


def study_named(name: str, **changes: Any) -> Study:
    if not changes:
        return whole(name).study
    (file,) = FOLDER.glob(f"[0-9][0-9]-{name}.yaml")
    return Part(file, changes).study


def test_the_design_lists_the_studies_in_order() -> None:
    assert [name for name, _, _ in ROWS] == [part.name for part in Edition(FOLDER, {}).parts]


@pytest.mark.parametrize(("name", "cells", "minutes"), ROWS)
def test_a_repeat_has_the_cells_and_minutes_of_the_design(name: str, cells: str, minutes: str) -> None:
    once = study_named(name, repeats=1, fault_repeats=1)
    assert len(once.cells) == int(cells)
    line = plan.headline(once, {}, once.cells, {"calibrate": len(once.calibrated_workloads())})
    planned = re.search(r"about (\d+) min (\d+) s$", line)
    assert planned and round(int(planned[1]) + int(planned[2]) / 60) == int(minutes)


def test_all_repeats_have_the_number_of_cells_of_the_design() -> None:
    assert f"All repeats are {sum(len(study_named(name).cells) for name, _, _ in ROWS)} cells" in DESIGN


def test_studies_that_the_host_limits_use_one_gpu() -> None:
    named = re.search(r"\*\*Host-bound studies\*\* \(([^)]*)\)", DESIGN)
    assert named is not None
    alone = {name for name, _, _ in ROWS if study_named(name).config["nvidia"]["gpu"] == "0"}
    assert alone == set(re.findall("`([a-z0-9-]+)`", named[1]))


@pytest.mark.parametrize("name", [name for name, _, _ in ROWS])
def test_a_unit_has_its_baselines_and_fits_into_a_visit(name: str) -> None:
    part = whole(name)
    assert sorted(cell for unit in part.units for cell in unit) == sorted(part.study.cells)
    for unit in part.units:
        assert len({cell.repeat for cell in unit}) == 1
        alone = {cell.workload for cell in unit if cell.strategy == part.study.baseline}
        assert {own for cell in unit for own in part.study.components(cell)} <= alone or part.study.baseline is None
        line = plan.headline(part.study, {}, unit, {"calibrate": len(alone)})
        assert int(re.findall(r"about (\d+) min", line)[0]) <= 22, "a lease has half an hour"


def test_parts_are_joined_on_a_host_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path / "none")
    monkeypatch.setattr(capabilities, "GPU_PROC_FOLDER", tmp_path / "none")
    (tmp_path / "part" / "cells").mkdir(parents=True)
    assert study_named("tenants", parts=[str(tmp_path / "part")]).node_kind == "nvidia"
    monkeypatch.setattr(visit, "REPOSITORY", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^config: node: 'nvidia' is not possible on this host"):
        visit.main(["--python", "python3"])


def devices_of_two_gpus(part: Part) -> list[str]:
    return ["one"] if part.study.config["nvidia"]["gpu"] == "0" else ["one", "two"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, set[Cell]]]:
    """The studies and cells that a visit to a host with two GPUs starts in order, without measuring."""
    found: list[tuple[str, set[Cell]]] = []

    def cells_of_part(part: Part, *_: Path) -> set[Cell]:
        return {cell for name, cells in found for cell in cells if name == part.name}

    def snakemake(part: Part, folder: Path, *_: str, exclude: list[str], **__: object) -> bool:
        wanted = {cell for cell in part.study.cells if cell.folder.removeprefix("cells/") not in exclude}
        assert cells_of_part(part) < wanted
        found.append((part.name, wanted - cells_of_part(part)))
        return True

    monkeypatch.setattr(visit, "REPOSITORY", tmp_path)
    monkeypatch.setattr(Part, "devices", property(devices_of_two_gpus))
    monkeypatch.setattr(Part, "checked", cells_of_part)
    monkeypatch.setattr(Part, "snakemake", snakemake)
    return found


def test_a_visit_measures_the_first_repeats_of_all_studies_before_the_others(
    begun: list[tuple[str, set[Cell]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [f"device {number}" for number in range(10)]
    monkeypatch.setattr(Part, "devices", property(lambda _: many))
    edition = Edition(FOLDER, {})
    assert edition.measure(float("inf"), float("inf"))
    names = [part.name for part in edition.parts]
    order = [(min(cell.repeat for cell in cells) > FIRST_REPEATS, names.index(name)) for name, cells in begun]
    assert order == sorted(order) and len(set(order)) > len(names)


def test_a_visit_measures_every_cell_once_a_unit_on_each_device(begun: list[tuple[str, set[Cell]]]) -> None:
    edition = Edition(FOLDER, {})
    assert edition.measure(float("inf"), float("inf"))
    for part in edition.parts:
        own = [cells for name, cells in begun if name == part.name]
        assert set().union(*own) == set(part.study.cells) and sum(map(len, own)) == len(part.study.cells)
        units = [sum(set(unit) <= cells for unit in part.units) for cells in own]
        assert set(units) <= ({1} if part.study.config["nvidia"]["gpu"] == "0" else {1, 2})


def test_a_device_measures_all_units_before_a_second_repeat(
    begun: list[tuple[str, set[Cell]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Part, "devices", property(lambda _: ["one"]))
    edition = Edition(FOLDER, {})
    assert edition.measure(float("inf"), float("inf"))
    units = [(part.name, part.group(unit)) for part in edition.parts for unit in part.units]
    first = begun[: len(set(units))]
    assert {(name, whole(name).group(sorted(cells))) for name, cells in first} == set(units)
    assert {cell.repeat for _, cells in first for cell in cells} == {1}


def test_units_that_an_earlier_visit_measured_on_the_device_come_last(
    begun: list[tuple[str, set[Cell]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Part, "devices", property(lambda _: ["one"]))
    for device, workload in (("one", "resnet50-graph"), ("another", "yolos-graph")):
        record = tmp_path / "before" / "tenants" / "cells" / "mps" / workload / "n2" / "r2" / "raw.json"
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps({"node": {"device": device, "details": {}}}))
    monkeypatch.setattr(Edition, "visits", {Path("before.zip"): tmp_path / "before"})
    batches = [str(batch) for batch in Edition(FOLDER, {}).batches()]
    assert batches[0] == "tenants: 25 cells, repeat 1 of yolos-graph"
    groups = {(part.name, part.group(unit)) for part in Edition(FOLDER, {}).parts for unit in part.units}
    assert batches.index("tenants: 25 cells, repeat 1 of resnet50-graph") == len(groups) - 1
    assert not begun


def test_a_failing_study_does_not_stop_the_others(
    begun: list[tuple[str, set[Cell]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Part.snakemake

    def snakemake(part: Part, folder: Path, *words: str, **how: Any) -> bool:
        if part.name == "yolov8":
            raise subprocess.CalledProcessError(1, "snakemake")
        return measured(part, folder, *words, **how)

    monkeypatch.setattr(Part, "snakemake", snakemake)
    edition = Edition(FOLDER, {}, ["many"])
    with pytest.raises(Refusal, match="failed: yolov8; "):
        edition.measure(float("inf"), float("inf"))
    assert {name for name, _ in begun} == {part.name for part in edition.parts} - {"yolov8"}
    assert "many" not in {part.name for part in edition.parts}


def test_probes_of_each_number_of_tenants_are_carried_into_the_table(
    begun: list[tuple[str, set[Cell]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[int] = []

    def snakemake(part: Part, folder: Path, *words: str, timeslice_tenants: int, **_: object) -> bool:
        assert words == ("measure_timeslice",) and not (folder / "nodes/timeslice.json").exists()
        orders.append(timeslice_tenants)
        seen = dict.fromkeys(("tenants_on_device_mean", "idle_ratio", "overlap_ratio"), 0.5)
        lengths = {"count": 9, "p5_us": 1.0, "p50_us": 150.0 + timeslice_tenants, "p95_us": 200.0}
        found = {
            "node": {"device": "one", "details": {}},
            "tenants": timeslice_tenants,
            "strategies": {
                "time-slicing": {"infeasible": None, **seen, "run": lengths, "switch": lengths},
                "mps": {"infeasible": None, **seen, "run": None, "switch": None},
                "streams": {"infeasible": "no graph"},
            },
            "provenance": {"run_id": "20261123-200500-00000000"},
        }
        for name in ("nodes", "tables"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "nodes/timeslice.json").write_text(json.dumps(found))
        (folder / "tables/timeslice.csv").write_text("strategy\n")
        return True

    monkeypatch.setattr(Part, "snakemake", snakemake)
    edition = Edition(FOLDER, {}, product="h200")
    assert edition.probe() and edition.probe() and orders == [2, 3, 7]
    made = edition.pack()
    assert made is not None and made.name == "20261123-200500-00000000.zip" and not begun
    edition.archives.mkdir(parents=True)
    made.rename(edition.archives / made.name)
    joined = Edition(FOLDER, {}, product="h200")
    assert next(joined.join()).startswith("probes: 6 rows of 1 devices in ")
    table = pd.read_csv(joined.results / "h200/probes.csv")
    sliced = table[table["strategy"] == "time-slicing"]
    assert list(sliced["tenants"]) == [2, 3, 7] and list(sliced["switch_p50_us"]) == [152, 153, 157]


@pytest.mark.usefixtures("begun")
def test_the_plan_lists_the_units_that_a_call_starts_and_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "devices", property(lambda _: ["one"]))
    graphs = [f"tenants: 25 cells, repeat 1 of {name}, about 520 s" for name in ("resnet50-graph", "yolos-graph")]
    edition = Edition(FOLDER, {})
    assert list(edition.plan(minutes=8, left=24)) == [f"plan: after 0 s: {graphs[0]}"]
    *begun, last = edition.plan(minutes=18, left=18)
    assert begun == [f"plan: after 0 s: {graphs[0]}", f"plan: after 520 s: {graphs[1]}"]
    assert last.startswith("plan: too long for what is left then: ") and "neighbours" in last
