"""The commands `plan` and `restore`, and a dry run: they measure nothing."""

import json
import re

import pytest
from pipeline.harness import Checkout, measuring_jobs


def test_the_plan_of_a_new_study_lists_all_cells_and_writes_nothing(untouched: Checkout) -> None:
    before = untouched.files()
    planned = untouched.plan()
    assert planned.startswith(
        "28 of 28 cells to measure on node simulated: "
        "exclusive 4, time-slicing 8, mps 8, mig 8; 8 node switches; about "
    )
    for strategy, count in {"exclusive": 4, "time-slicing": 8, "mps": 8, "mig": 8}.items():
        assert f" {strategy} {count} of {count} cells " in planned
    assert "changes nothing; the device is simulated" in planned
    assert "`sharebench restore` brings the node back" in planned
    assert not [path for path in untouched.files() - before if not path.startswith(".snakemake")]


def test_the_plan_lists_only_missing_cells(finished: Checkout) -> None:
    finished.delete_records("mig/alpha/2/1", "mig/beta/2/1", "mps/alpha/1/2")
    planned = finished.plan("replicas=[1,2,8]")
    assert "15 of 40 cells to measure on node simulated: time-slicing 4, mps 5, mig 6;" in planned
    assert "replicas 1, 2, 8 (infeasible here: 8)" in planned


def test_the_plan_agrees_with_a_dry_run(finished: Checkout) -> None:
    for calibration in finished.results.glob("calibration/*.json"):
        calibration.unlink()
    assert finished.run(options=["-n"]).ok().jobs == {}
    assert "no cell to measure; files to make: none" in finished.plan()
    (finished.results / "report.html").unlink()
    assert "files to make: report 1" in finished.plan()


def test_restore_restores_the_node_once(finished: Checkout) -> None:
    before = finished.journal(finished.results)
    assert "the node is back in its original state" in finished.ask("restore", "--configfile", finished.study)
    assert finished.journal(finished.results) == [*before, None]
    assert "nothing to restore" in finished.ask("restore", "--configfile", finished.study)
    assert finished.journal(finished.results) == [*before, None]


def test_a_dry_run_lists_jobs_with_reasons_and_changes_nothing(finished: Checkout) -> None:
    finished.delete_records("mig/alpha/2/1")
    before = finished.files()
    planned = finished.run(options=["-n"]).ok()
    assert planned.jobs == measuring_jobs({"mig/alpha/2/1"})
    assert planned.switches == []
    assert "Reason: Missing output files: results/cells/mig/alpha/n2/r1/raw.json" in planned.out
    assert re.search(r"^figures +1$", planned.out, re.MULTILINE)
    longer = finished.run(options=["-n"], config=["window_seconds=7"]).ok()
    assert "before: 'window_seconds 0.5' now: 'window_seconds 7'" in longer.out, "only the changed part"
    assert finished.files() == before


@pytest.mark.thorough
def test_a_config_longer_than_an_argument_is_planned(untouched: Checkout) -> None:
    load = {"arrival": "poisson", "rate_hz": [2 + index / 100 for index in range(130)]}
    study = ["workloads=alpha", "strategies=[mps]", "replicas=[2]", "repeats=1", "baseline=none"]
    config = [f"workload_catalogue={json.dumps({'alpha': {'load': load}})}", *study]
    assert "130 of 130 cells to measure" in untouched.plan(*config)
    assert len(untouched.run(options=["-n"], config=config).ok().cells) == 130
