"""The cells of faults, and of workloads that only faults or queues use."""

import copy
from typing import Any

import pytest
from unit.studies import study_with

from sharebench.model import faults
from sharebench.model.config import checks
from sharebench.model.spec import FaultSpec
from sharebench.study.cells import Cell
from sharebench.study.study import Study


def plain_study(**changes: Any) -> Study:
    """The default study with these keys changed, without A/A control by default."""
    return study_with({"null_cells": False} | changes)


def fault_study(*kinds: str, **changes: Any) -> Study:
    """A study of the stand-in with these faults and one workload."""
    own = {"node": "cpu", "faults": list(kinds), "strategies": ["mps", "time-slicing"], "workloads": ["matmul"]}
    return plain_study(**own | changes)


def test_every_fault_has_a_cell_with_every_victim_and_strategy_for_two() -> None:
    planned = fault_study(
        "killed", "spin", fault_victims=["memcopy", "matmul"], strategies=["exclusive", "mps", "mig"], workloads=[]
    )
    cells = [cell for cell in planned.requested if cell.workload.startswith("fault-")]
    assert {(cell.strategy, cell.workload) for cell in cells} == {
        (strategy, f"fault-{kind}+{victim}")
        for strategy in ("mps", "mig")
        for kind in ("killed", "spin")
        for victim in ("matmul", "memcopy")
    }
    assert {(cell.replicas, cell.repeat) for cell in cells} == {(2, 1)}
    assert {cell for cell in planned.cells if cell.replicas == 1} == {
        Cell("exclusive", victim, 1, repeat) for victim in ("matmul", "memcopy") for repeat in (1, 2, 3)
    }, "the baselines of the victims, and none of the aggressor"
    assert planned.calibrated_workloads() == ["matmul", "memcopy"]


def test_faults_have_repeats_of_their_own() -> None:
    planned = fault_study("killed", fault_repeats=2, repeats=1)
    repeats = {cell.repeat for cell in planned.requested if cell.workload == "fault-killed+matmul"}
    assert repeats == {1, 2}


@pytest.mark.parametrize(
    "changes, victims",
    [
        ({"workloads": ["detector", "matmul"]}, ["detector", "matmul"]),
        ({"interference": ["memcopy", "empty"]}, ["empty", "memcopy"]),
        ({"interference": ["memcopy", "empty"], "fault_victims": ["matmul"]}, ["matmul"]),
    ],
)
def test_victims_are_the_named_workloads_else_those_of_the_study(changes: dict[str, Any], victims: list[str]) -> None:
    assert [victim for victim, _ in fault_study("killed", **changes).faults.values()] == victims


def test_the_spec_of_a_fault_has_victim_aggressor_and_moment() -> None:
    planned = fault_study("spin")
    cell = Cell("mps", "fault-spin+matmul", 2, 1)
    found = planned.spec(cell)
    assert [tenant.name for tenant in found.workloads] == ["matmul", "fault-spin"]
    assert found.workloads[1].module == "fault"
    assert found.workloads[1].params == {"kind": "spin", "at_fraction": 0.4}
    assert found.fault == FaultSpec(kind="spin", at_fraction=0.4, aggressor=1)
    assert planned.components(cell) == ["matmul"]
    assert planned.workloads_of(cell) == ["matmul", "fault-spin"]
    plain = Cell("exclusive", "matmul", 1, 1)
    assert planned.spec(plain) == plain_study(node="cpu", workloads=["matmul"]).spec(plain), (
        "a fault invalidates no other cell"
    )


def test_only_a_loop_can_be_a_victim() -> None:
    config = copy.deepcopy(fault_study("killed", workloads=["matmul", "memcopy"]).config)
    config["workload_catalogue"]["memcopy"] = config["workload_catalogue"]["memcopy"].changed(kind="job")
    assert faults.victim_workloads(config) == ["matmul"]
    config["fault_victims"] = ["memcopy"]
    line = next(checks._victims(config))
    assert line == "fault_victims: 'memcopy' is of the kind job; name workloads of the kind loop"


def test_workloads_of_only_faults_or_queues_have_no_control() -> None:
    planned = fault_study("killed", fault_victims=["memcopy"], null_cells=True)
    again = {cell.workload for cell in planned.cells if cell.strategy == "exclusive-again"}
    assert again == {"matmul"} and Cell("exclusive", "memcopy", 1, 1) in planned.cells
    queued = plain_study(node="cpu", workloads=["batch-matmul", "matmul"], strategies=["sequential"], null_cells=True)
    assert {cell.strategy for cell in queued.cells} == {"exclusive", "sequential"}
    shared = plain_study(node="cpu", workloads=["batch-matmul"], strategies=["sequential", "mps"], null_cells=True)
    assert {cell.workload for cell in shared.cells if cell.strategy == "exclusive-again"} == {"batch-matmul"}


def test_cells_with_faults_and_queues_are_not_compared() -> None:
    planned = fault_study("killed", workloads=["batch-matmul", "matmul"], strategies=["sequential", "mps"])
    left_out = [cell for cell in planned.cells if not planned.is_compared(cell)]
    assert {(cell.strategy, cell.workload) for cell in left_out} == {
        ("sequential", "batch-matmul"),
        ("mps", "fault-killed+matmul"),
    }
