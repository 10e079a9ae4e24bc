"""Staleness of cells by spec, code, and environment of the tenants."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.studies import MIXED, SIMULATED, config_with, simulated, study_with

from sharebench.model import capabilities, gpu_python
from sharebench.model.config.load import load
from sharebench.model.spec import canonical_json
from sharebench.study.cells import Cell
from sharebench.study.study import Study, client_environment, tenant_environment

# Edits, and the cells of the default study that they invalidate, by the values of their axes.
ALL_CELLS: dict[str, Any] = {}
NO_CELLS = None
EDITS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "window": ({"window_seconds": 3}, ALL_CELLS),
    "params of one workload": ({"workload_catalogue.matmul.params": {"size": 64}}, {"workload": "matmul"}),
    "params of an unused workload": ({"workload_catalogue.memcopy.params": {"mebibytes": 8}}, NO_CELLS),
    "load of one workload": (
        {"workload_catalogue.matmul-light.load": {"arrival": "poisson", "rate_of_capacity": 0.3}},
        {"workload": "matmul-light"},
    ),
    "tolerance of one workload": ({"workload_catalogue.matmul.output_tolerance": 1e-3}, {"workload": "matmul"}),
    "description of a workload": ({"workload_catalogue.matmul.description": "another"}, NO_CELLS),
    "smallest window of a workload": ({"workload_catalogue.matmul.min_window_seconds": 0.5}, NO_CELLS),
    "description of a strategy": ({"strategy_catalogue.mps.description": "another"}, NO_CELLS),
    # The limit was 100/N, which is the same with two tenants.
    "a limit of a strategy": (
        {"strategy_catalogue.mps-limited.thread_percent": 50},
        {"strategy": "mps-limited", "replicas": 1},
    ),
    "profile of a strategy": ({"strategy_catalogue.mig.profile": "2g"}, {"strategy": "mig"}),
    "mechanism of a strategy": ({"strategy_catalogue.mps.mechanism": "streams"}, {"strategy": "mps"}),
    "another strategy": ({"strategies": ["exclusive", "mps", "mps-limited", "mig", "streams"]}, NO_CELLS),
    "the list of replicas": ({"replicas": [1, 2, 3]}, NO_CELLS),
    "a strategy's own replicas": ({"strategy_catalogue.mps.replicas": [1, 2]}, NO_CELLS),
    "repeats": ({"repeats": 5}, NO_CELLS),
    "order": ({"order": "strategy"}, NO_CELLS),
    "baseline": ({"baseline": "none"}, NO_CELLS),
    "results": ({"results": "elsewhere"}, NO_CELLS),
    "timeouts": ({"timeouts": {"start_seconds": 90, "record_seconds": 45}}, NO_CELLS),
    "options of another kind of node": ({"cpu.cores": [0]}, NO_CELLS),
    # Virtual tenants are steady from the start.
    "warm-up": ({"warmup.min_iterations": 7}, NO_CELLS),
    "seed": ({"seed": 2}, ALL_CELLS),
    "product": ({"simulated.product": "another"}, ALL_CELLS),
    "model of one workload": (
        {"workload_catalogue.matmul.simulated": {"serial_seconds": 0.001}},
        {"workload": "matmul"},
    ),
    "module of one workload": ({"workload_catalogue.matmul.module": "memcopy"}, NO_CELLS),
}
EDITS_ON_CPU: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "seed": ({"seed": 2}, NO_CELLS),
    "warm-up": ({"warmup.min_iterations": 7}, ALL_CELLS),
    "cores": ({"cpu.cores": [0]}, ALL_CELLS),
    "module of one workload": ({"workload_catalogue.matmul.module": "memcopy"}, {"workload": "matmul"}),
}
EVERYTHING: dict[str, Any] = {"workloads": ["matmul", "matmul-light"], "replicas": [1, 2], "repeats": 2}


def changed_cells(before: dict[str, Any], edit: dict[str, Any]) -> tuple[set[Cell], set[Cell]]:
    """The cells that both studies have, and those of them whose spec the edit changes."""
    old, new = study_with(before), study_with(before | edit)
    shared = set(old.cells) & set(new.cells)
    return shared, {cell for cell in shared if old.spec(cell).text != new.spec(cell).text}


def matching(cells: set[Cell], axes: dict[str, Any] | None) -> set[Cell]:
    """The cells whose axes have these values; none when `axes` is None."""
    if axes is None:
        return set()
    return {cell for cell in cells if all(getattr(cell, axis) == value for axis, value in axes.items())}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_invalidates_exactly_the_dependent_cells(name: str) -> None:
    edit, expected = EDITS[name]
    strategies = {"strategies": ["exclusive", "mps", "mps-limited", "mig"]}
    shared, changed = changed_cells(SIMULATED | EVERYTHING | strategies, edit)
    assert shared
    assert changed == matching(shared, expected)


@pytest.mark.parametrize("name", EDITS_ON_CPU)
def test_an_edit_invalidates_exactly_the_dependent_cells_of_the_stand_in(name: str) -> None:
    edit, expected = EDITS_ON_CPU[name]
    shared, changed = changed_cells({"node": "cpu"} | EVERYTHING, edit)
    assert shared
    assert changed == matching(shared, expected)


def with_reversed_keys(value: Any) -> Any:
    """The value with the keys of every mapping in reverse order."""
    if isinstance(value, dict):
        return {key: with_reversed_keys(value[key]) for key in reversed(list(value))}
    return value


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    config = config_with(SIMULATED)
    one, other = Study(load(config)), Study(load(with_reversed_keys(copy.deepcopy(config))))
    assert [one.spec(cell).text for cell in one.cells] == [other.spec(cell).text for cell in other.cells]
    assert one.strategy_spec("mig-mps").text == other.strategy_spec("mig-mps").text
    assert canonical_json({"b": 1, "a": {"d": [2], "c": "×"}}) == '{"a":{"c":"×","d":[2]},"b":1}'


def test_calibration_depends_on_the_unloaded_workload_alone() -> None:
    before = simulated(strategies=["mps"], workloads=["matmul", "matmul-light"])
    light = before.calibration_spec("matmul-light").spec()
    assert "load" not in light["workload"]
    assert (light["strategy"]["name"], light["replicas"]) == ("exclusive", 1)

    for same in (
        simulated(strategies=["mig"], replicas=[7], repeats=9, workloads=["matmul-light"]),
        simulated({"workload_catalogue.matmul-light.load": {"arrival": "constant", "rate_hz": 5}}),
    ):
        assert same.calibration_spec("matmul-light") == before.calibration_spec("matmul-light")
    for different in (simulated(window_seconds=3), simulated({"workload_catalogue.matmul-light.params": {"size": 64}})):
        assert different.calibration_spec("matmul-light") != before.calibration_spec("matmul-light")
    assert before.calibration_cell("matmul") not in before.cells


def test_the_strategy_spec_does_not_depend_on_description_and_replicas() -> None:
    before = simulated().strategy_spec("mps-limited")
    assert simulated({"strategy_catalogue.mps-limited.description": "x"}).strategy_spec("mps-limited") == before
    assert simulated({"strategy_catalogue.mps-limited.replicas": [3]}).strategy_spec("mps-limited") == before
    assert simulated({"strategy_catalogue.mps-limited.thread_percent": "200/N"}).strategy_spec("mps-limited") != before


def test_cells_on_the_simulator_do_not_depend_on_an_environment() -> None:
    on_cpu = study_with({"node": "cpu"})
    assert on_cpu.spec(on_cpu.cells[0]).environment == tenant_environment("tenant-cpu.txt")
    assert simulated().spec(simulated().cells[0]).environment is None


def test_tenants_on_a_gpu_depend_on_their_own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path)
    monkeypatch.setattr(gpu_python, "GPU_ENVIRONMENT", Path(sys.executable))

    def environment_of(python: str) -> str:
        planned = study_with({"node": "nvidia", "nvidia.python": python})
        spec = planned.spec(planned.cells[0])
        assert sys.executable not in spec.text, "its path differs between hosts"
        return str(spec.environment)

    assert environment_of("auto") == tenant_environment("tenant-gpu.txt") != tenant_environment("tenant-cpu.txt")
    assert "torch==" in environment_of("auto")
    assert environment_of(sys.executable) == "own interpreter"


def test_a_server_depends_on_the_pin_of_its_client() -> None:
    entry = {"kind": "http", "command": ["serve"], "request": {"path": "/"}}
    planned = study_with({"node": "cpu", "workload_catalogue.served": entry, "workloads": ["served"]})
    environment = planned.spec(planned.cells[0]).environment
    assert environment == f"{tenant_environment('tenant-cpu.txt')} client {client_environment()}"


def test_the_spec_of_a_mix_has_the_spec_of_every_tenant() -> None:
    planned = simulated(MIXED, workloads=["both", "matmul", "detector"], replicas=[4])

    def workload(name: str) -> Any:
        return planned.spec(Cell("mps", name, 4, 1)).spec()["workload"]

    assert workload("both") == {
        "name": "both",
        "tenants": [workload(name) for name in ("matmul", "detector", "detector", "matmul")],
    }
    assert "tenants" not in workload("matmul")


@pytest.mark.parametrize(
    "edit, expected",
    [
        ({"workload_catalogue.matmul.simulated.serial_seconds": 0.5}, {"matmul", "both", "detector+matmul"}),
        ({"workload_catalogue.detector.output_tolerance": 0.5}, {"detector", "both", "detector+matmul"}),
        ({"workload_catalogue.both.tenants": ["matmul", "detector", "matmul"]}, {"both"}),
        ({"workload_catalogue.both.description": "another"}, set()),
    ],
)
def test_an_edit_of_a_workload_invalidates_its_mixes_and_pairs(edit: dict[str, Any], expected: set[str]) -> None:
    before = SIMULATED | MIXED | {"workloads": ["both"], "replicas": [3], "interference": ["matmul", "detector"]}
    _, changed = changed_cells(before, edit)
    alike = {"detector+detector"} if "detector" in expected else {"matmul+matmul"} if "matmul" in expected else set()
    assert {cell.workload for cell in changed} == expected | alike


def test_the_code_of_a_cell_depends_on_its_node_and_all_its_workloads() -> None:
    model, planned = simulated(), study_with({"node": "cpu", "interference": ["matmul", "detector", "memcopy"]})
    codes = {planned.code(name) for name in ("matmul", "detector", "detector+matmul", "matmul+memcopy")}
    assert len(codes | {model.code("matmul")}) == 5
    assert planned.code("matmul") == planned.code("matmul-light") == planned.code("matmul+matmul")
    assert model.node_code() != planned.node_code()
