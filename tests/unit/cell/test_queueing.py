"""A queue: one tenant at a time, and one record for all."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit import factories
from unit.studies import config_with, study_with

from sharebench.measure.cell.cell import CellRun
from sharebench.measure.cell.queue import join_jobs, run_queue
from sharebench.measure.nodes.simulated.node import SimulatedNode
from sharebench.model.config.load import load
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY
from sharebench.model.workload import Job
from sharebench.read.gates.gates import is_valid
from sharebench.study.cells import Cell
from sharebench.study.study import Study

SETTINGS = {"timeouts": {"start_seconds": 60, "record_seconds": 30}, "cell_folder": "cells/here"}


@pytest.fixture
def simulated() -> Study:
    changes = {
        "node": "simulated",
        "strategies": "sequential,mps",
        "workloads": "batch-matmul",
        "simulated.noise.cell_cv": 0,
    }
    return study_with(changes)


def run(simulated: Study, tmp_path: Path, replicas: int = 3) -> dict[str, Any]:
    node = SimulatedNode(simulated.config["simulated"], tmp_path)
    cell = Cell("sequential", "batch-matmul", replicas, 1)
    calibration = {"output_digest": [1.0], "capacity_hz": None, "roofs": None, "idle_power_watts": None}
    measured, rows = run_queue(
        node,
        simulated.strategies["sequential"],
        simulated.spec(cell),
        1,
        SETTINGS,
        {"batch-matmul": calibration},
    )
    assert rows == []
    return measured


def test_each_job_of_a_queue_runs_alone(simulated: Study, tmp_path: Path) -> None:
    measured = run(simulated, tmp_path)
    work = simulated.config["workload_catalogue"]["batch-matmul"].simulated
    assert work is not None
    alone = 1500 * (work.serial_seconds + work.parallel_sm_seconds / 108)
    assert [tenant["index"] for tenant in measured["tenants"]] == [0, 1, 2]
    for tenant in measured["tenants"]:
        assert tenant["job"]["completed"] == tenant["count"] == 1500
        assert tenant["job"]["completion_seconds"] == pytest.approx(alone, rel=0.01)
    assert len(measured["window"]["turns"]) == 3
    assert len(measured["evidence"]) == 3
    assert measured["cell"]["replicas"] == 3 and json.loads(measured["spec"])["replicas"] == 3
    assert measured["timing"]["total_seconds"] > 0
    assert is_valid(factories.write_and_read(tmp_path / "raw.json", measured))


def test_a_queue_ends_with_the_first_job_that_fails(simulated: Study, tmp_path: Path) -> None:
    (tmp_path / "outage.json").write_text(json.dumps({"tenants": {"cells/here": "crashed"}}))
    measured = run(simulated, tmp_path)
    assert measured["status"] == "crashed" and "1 of 3 tenants crashed" in measured["reason"]
    assert [tenant["status"] for tenant in measured["tenants"]] == ["crashed", "not-measured", "not-measured"]
    assert measured["window"] is None
    factories.write_and_read(tmp_path / "raw.json", measured)


def test_a_job_of_a_queue_that_misses_its_deadline_keeps_its_progress(simulated: Study, tmp_path: Path) -> None:
    catalogue = simulated.config["workload_catalogue"]
    catalogue["batch-matmul"] = catalogue["batch-matmul"].changed(job=Job(iterations=1500, max_seconds=0.1))
    measured = run(simulated, tmp_path, replicas=2)
    assert measured["status"] == "hung" and "1 of 2 tenants hung" in measured["reason"]
    assert 0 < measured["tenants"][0]["job"]["completed"] < 1500
    assert measured["tenants"][1]["status"] == "not-measured"


def test_telemetry_of_a_queue_weighs_each_job_by_its_duration(simulated: Study, tmp_path: Path) -> None:
    cell = Cell("sequential", "batch-matmul", 2, 1)
    one = run(simulated, tmp_path, replicas=1)
    turns = []
    for start, seconds, watts, hottest, reasons in (
        (100.0, 1.0, 100.0, 50, {"a": 10.0}),
        (110.0, 3.0, 200.0, 60, {"b": 4.0}),
    ):
        window = one["window"] | {"start_monotonic_seconds": start, "end_monotonic_seconds": start + seconds}
        window.pop("turns", None)
        summary = {
            **{"power_mean_watts": watts, "energy_joules": watts * seconds, "samples": 5, "throttle_reasons": reasons},
            **{"temperature_max_celsius": hottest, "temperature_start_celsius": 40, "temperature_end_celsius": hottest},
            **{"tenant_memory_mib": [watts], "foreign_processes": {"compute": 0, "graphics": 0, "mps": 0}},
        }
        turns.append(one | {"window": window, "telemetry": one["telemetry"] | summary})
    telemetry = join_jobs(simulated.spec(cell), turns, {})["telemetry"]
    assert telemetry.keys() == UNKNOWN_TELEMETRY.keys()
    assert telemetry["power_mean_watts"] == pytest.approx(175)
    assert telemetry["energy_joules"] == pytest.approx(700)
    assert telemetry["samples"] == 10
    assert telemetry["temperature_max_celsius"] == 60
    assert (telemetry["temperature_start_celsius"], telemetry["temperature_end_celsius"]) == (40, 60)
    assert telemetry["tenant_memory_mib"] == [100.0, 200.0]
    assert telemetry["throttle_reasons"] == pytest.approx({"a": 2.5, "b": 3.0})
    assert telemetry["host_steal_percent"] is None


def test_a_queue_has_cells_of_jobs_only() -> None:
    mixed = yaml.safe_load("{pair-of-jobs: {tenants: [batch-matmul, batch-matmul]}}")
    changes = {
        **{"strategies": "sequential,mps", "replicas": "1,2"},
        **{"workloads": "batch-matmul,matmul,service-and-batch,pair-of-jobs", "interference": "batch-matmul,matmul"},
        "workload_catalogue.pair-of-jobs": mixed["pair-of-jobs"],
    }
    cells = study_with(changes).cells
    queued = {(cell.workload, cell.replicas) for cell in cells if cell.strategy == "sequential"}
    assert queued == {("batch-matmul", 1), ("batch-matmul", 2), ("pair-of-jobs", 2)}


def test_a_simulated_job_runs_alone_after_its_neighbour_is_done(tmp_path: Path) -> None:
    catalogue = {
        name: {
            **{"kind": "job", "job": {"iterations": iterations}},
            "simulated": {"serial_seconds": 0.001, "parallel_sm_seconds": 0},
        }
        for name, iterations in (("long", 1000), ("short", 500))
    }
    exact = {"node": "simulated", "simulated.noise.cell_cv": 0, "simulated.noise.iteration_cv": 0}
    added = {f"workload_catalogue.{name}": entry for name, entry in catalogue.items()}
    both = {"workload_catalogue.both": {"tenants": ["long", "short"]}}
    shared = Study(
        load(config_with(exact | added | both | {"strategies": "time-slicing", "workloads": "both", "replicas": 2}))
    )
    node = SimulatedNode(shared.config["simulated"], tmp_path)
    calibration = {"output_digest": [1.0], "capacity_hz": None, "roofs": None, "idle_power_watts": None}
    measured, _ = CellRun(
        node,
        shared.strategies["time-slicing"],
        shared.spec(Cell("time-slicing", "both", 2, 1)),
        1,
        SETTINGS,
        dict.fromkeys(("long", "short"), calibration),
    ).measure()
    turns = 2 * 0.001 * (1 + shared.config["simulated"]["time_slicing_overhead"])
    took = [tenant["job"]["completion_seconds"] for tenant in measured["tenants"]]
    # Both run under time-slicing until the short one is done, then the long one runs alone.
    assert took == pytest.approx([500 * turns + 500 * 0.001, 500 * turns], rel=0.01)
    window = measured["window"]
    assert window["end_monotonic_seconds"] - window["start_monotonic_seconds"] == pytest.approx(took[0])
