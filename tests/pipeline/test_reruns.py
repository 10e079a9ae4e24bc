"""The exact jobs that each change to a finished study runs."""

import itertools
import json

import pytest
from pipeline.harness import Checkout, measuring_jobs, node_states, table_jobs

BASELINE = {f"exclusive/{w}/1/{r}" for w in ("alpha", "beta") for r in (1, 2)}
REQUESTED = {
    f"{s}/{w}/{n}/{r}"
    for s, w, n, r in itertools.product(("time-slicing", "mps", "mig"), ("alpha", "beta"), (1, 2), (1, 2))
}
CELLS = BASELINE | REQUESTED
EVERYTHING = {
    "characterise_node": {""},
    "calibrate": {"alpha", "beta"},
    "configure_node": {"exclusive", "time-slicing", "mps", "mig"},
    **measuring_jobs(CELLS),
}


@pytest.fixture
def cores() -> int:
    """More than one, so that jobs may run at the same time; a failing run is also tested with one core."""
    return 4


def test_a_first_run_does_every_job_once(finished: Checkout) -> None:
    jobs, switches = finished.first_run()
    assert jobs == EVERYTHING
    # Each of the 4 states is set once in each of the 2 blocks, and the first one of the baseline also by calibration.
    assert sorted(map(str, switches)) == sorted([*node_states(CELLS), "exclusive block 1"])
    assert_nothing_ran_during_a_measurement(finished)


def assert_nothing_ran_during_a_measurement(checkout: Checkout) -> None:
    """Compare the times in Snakemake's metadata of each job's output."""
    jobs = set()
    for path in (checkout.root / ".snakemake/metadata").iterdir():
        entry = json.loads(path.read_text())
        jobs.add((entry["starttime"], entry["endtime"], entry["rule"]))
    measuring = [job for job in jobs if job[2] in ("characterise_node", "calibrate", "configure_node", "run_cell")]
    # A cell has two outputs, each with its own start.
    assert 1 + 2 + 4 + len(CELLS) <= len(measuring) <= 1 + 2 + 4 + 2 * len(CELLS)
    for start, end, rule in measuring:
        concurrent = [other for other in jobs if other[0] < end and start < other[1]]
        assert {other for _, _, other in concurrent} == {rule}
        assert len(concurrent) <= 2


def test_a_second_run_does_nothing(finished: Checkout, cores: int) -> None:
    before = (finished.results / ".sharebench/run.json").read_text()
    result = finished.run(cores=cores).ok()
    assert result.jobs == {}
    assert (finished.results / ".sharebench/run.json").read_text() == before, "a run began, though with nothing to do"


def test_a_deleted_cell_is_remeasured(finished: Checkout, cores: int) -> None:
    finished.delete_records("mig/alpha/2/1")
    result = finished.run(cores=cores).ok()
    assert result.jobs == measuring_jobs({"mig/alpha/2/1"})
    assert result.switches == ["mig block 1"]


def test_a_node_already_in_the_state_of_a_cell_is_not_switched(finished: Checkout, cores: int) -> None:
    last = finished.journal()[-1]
    assert last is not None
    strategy, _, repeat = last.split(" ")
    cell = f"{strategy}/alpha/1/{repeat}"
    finished.delete_records(cell)
    result = finished.run(cores=cores).ok()
    assert result.jobs == measuring_jobs({cell})
    assert result.switches == []


def test_two_deleted_cells_cost_one_switch_each(finished: Checkout, cores: int) -> None:
    cells = {"mps/beta/1/2", "time-slicing/alpha/2/2"}
    finished.delete_records(*cells)
    result = finished.run(cores=cores).ok()
    assert result.jobs == measuring_jobs(cells)
    assert sorted(map(str, result.switches)) == ["mps block 2", "time-slicing block 2"]


def test_a_changed_workload_invalidates_only_its_cells(finished: Checkout, cores: int) -> None:
    finished.edit("simulated.yaml", "serial_seconds: 0.002", "serial_seconds: 0.003")
    result = finished.run(cores=cores).ok()
    assert result.jobs == {"calibrate": {"alpha"}, **measuring_jobs(cell for cell in CELLS if "/alpha/" in cell)}
    assert sorted(map(str, result.switches)) == sorted([*node_states(CELLS), "exclusive block 1"])


def test_a_changed_option_of_the_node_remakes_its_facts_too(finished: Checkout, cores: int) -> None:
    planned = finished.run(cores=cores, config=["simulated={sms: 100}"], options=["--dry-run"]).ok()
    assert planned.jobs == EVERYTHING


def test_more_replicas_measure_only_the_new_cells(finished: Checkout, cores: int) -> None:
    new = {f"mig/{w}/4/{r}" for w in ("alpha", "beta") for r in (1, 2)}
    result = finished.run(cores=cores, config=["strategies=[mig]", "replicas=[1,2,4]"]).ok()
    assert result.jobs == measuring_jobs(new)
    assert sorted(map(str, result.switches)) == ["mig block 1", "mig block 2"]

    back = finished.run(cores=cores).ok()
    assert back.jobs == table_jobs({"mig/alpha", "mig/beta"}), "tables and figures show the default matrix again"
    assert back.switches == []


def test_touched_sources_and_a_comment_run_nothing(finished: Checkout, cores: int) -> None:
    for folder in ("scripts", "rules", "config", "envs"):
        for path in (finished.root / folder).rglob("*.*"):
            path.touch()
    for file in ("cell/cell.py", "nodes/simulated/node.py", "nodes/simulated/tenants.py"):
        path = finished.root / "scripts/sharebench/measure" / file
        path.write_text(path.read_text() + "\n\n# A thought.\n")
    assert finished.run(cores=cores).ok().jobs == {}


def test_a_change_of_the_measuring_code_invalidates_every_cell(finished: Checkout, cores: int) -> None:
    finished.edit("scripts/sharebench/measure/nodes/simulated/tenants.py", "START_SECONDS = 1.0", "START_SECONDS = 2.0")
    planned = finished.run(cores=cores, options=["--dry-run"]).ok()
    assert planned.jobs == EVERYTHING


@pytest.mark.parametrize("cores", [pytest.param(1, marks=pytest.mark.thorough), 4])
def test_a_failed_cell_stops_no_other_and_the_next_run_does_only_that_cell(finished: Checkout, cores: int) -> None:
    bad, good = "mig/alpha/2/1", {"mps/beta/1/2", "mig/alpha/1/2"}
    finished.delete_records(bad, *good)
    finished.plant_outage({"cells": ["cells/mig/alpha/n2/r1"]})
    result = finished.run(cores=cores)
    assert result.code == 1
    # The export of mig/alpha waits for the bad cell, and the tables wait for all.
    assert result.jobs == {"run_cell": {bad, *good}, "export_histograms": {"mps/beta"}}
    assert result.failed == {"run_cell": {bad}}
    assert sorted(map(str, result.switches)) == ["mig block 1", "mig block 2", "mps block 2"]

    finished.plant_outage(None)
    again = finished.run(cores=cores).ok()
    assert again.jobs == {"run_cell": {bad}, **table_jobs({"mig/alpha"})}
    assert again.switches == ["mig block 1"]


def test_a_strategy_that_cannot_be_set_up_is_tried_once(finished: Checkout, cores: int) -> None:
    mps, mig = {cell for cell in CELLS if cell.startswith("mps/")}, "mig/beta/1/1"
    finished.delete_records(*mps, mig)
    (finished.results / "nodes/mps.json").unlink()
    finished.plant_outage({"strategies": ["mps"]})
    result = finished.run(cores=cores)
    assert result.code == 1
    assert result.jobs == {"configure_node": {"mps"}, "run_cell": {mig}, "export_histograms": {"mig/beta"}}
    assert result.failed == {"configure_node": {"mps"}}
    assert "cannot be set to mps" in result.out

    finished.plant_outage(None)
    again = finished.run(cores=cores).ok()
    assert again.jobs == {"configure_node": {"mps"}, "run_cell": mps, **table_jobs({"mps/alpha", "mps/beta"})}
    assert sorted(map(str, again.switches)) == ["mps block 1", "mps block 2"]
