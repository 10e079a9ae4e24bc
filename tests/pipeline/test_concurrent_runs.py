"""A second run on the same results or device is refused and names the owner; other runs work at the same time."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

from pipeline.harness import Checkout, Hold, Result, measuring_jobs, start_held_in_first_cell

MISSING = {"time-slicing/held/2/1", "mps/held/2/1"}


def modification_times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def refused(result: Result, what: str, owner: dict[str, str]) -> None:
    assert result.code == 1
    assert result.jobs == {}
    assert "Traceback" not in result.out
    [line] = [line for line in result.out.splitlines() if line.startswith("not started: ")]
    assert line.startswith(f"not started: the {what} is in use by run {owner['run_id']} (process {owner['pid']}, ")


def test_a_second_run_is_refused_but_a_plan_is_not(finished_on_cpu: Checkout) -> None:
    checkout = finished_on_cpu
    checkout.delete_records(*MISSING)
    running, hold = start_held_in_first_cell(checkout)
    owner = json.loads((checkout.results / ".sharebench/run.json").read_text())
    assert owner["pid"] == running.process.pid
    before = modification_times(checkout.results)
    run_files = modification_times(checkout.results / ".sharebench")

    refused(checkout.run(), "results folder", owner)
    said = checkout.ask("restore", "--configfile", checkout.study, code=1)
    assert said.startswith(f"the results folder is in use by run {owner['run_id']} (process {owner['pid']}, ")
    assert modification_times(checkout.results) == before, "a refused run writes nothing"

    assert "2 of 6 cells to measure on node cpu" in checkout.plan()
    assert modification_times(checkout.results / ".sharebench") == run_files

    # With another results folder the run still needs the stand-in, which is one device for the whole host.
    other = checkout.results.with_name("others")
    refused(checkout.run(config=["results=others"], results=other), "node", owner)
    assert not list(other.rglob("*.json"))

    hold.release()
    finished = running.wait().ok()
    assert finished.jobs == measuring_jobs(MISSING)
    assert {checkout.record(cell)["provenance"]["run_id"] for cell in MISSING} == {owner["run_id"]}


def test_two_results_folders_can_be_measured_at_once_from_one_checkout(finished: Checkout) -> None:
    folders = [finished.root / "tmp" / name for name in ("here", "there")]
    for folder in folders:
        folder.mkdir()
        shutil.copytree(finished.results, folder / "results")
        shutil.copytree(finished.root / ".snakemake", folder / ".snakemake")
        (folder / "results/cells/mig/alpha/n2/r1/raw.json").unlink()
    before = modification_times(finished.results)
    runs = [
        finished.start(
            options=["--directory", str(folder)],
            results=folder / "results",
            study=str(finished.root / finished.study),
            forks_jobs=True,
        )
        for folder in folders
    ]
    results = [running.wait().ok() for running in runs]
    for folder, result in zip(folders, results, strict=True):
        assert result.jobs == measuring_jobs({"mig/alpha/2/1"})
        assert result.switches == ["mig block 1"]
        assert re.search(r"^report: results/report.html", result.out, re.M)
        assert json.loads((folder / "results/.sharebench/run.json").read_text())["ended"]
    assert modification_times(finished.results) == before, "the checkout's own results are not touched"


def test_cells_of_one_device_never_overlap_whatever_the_rules_say(finished_on_cpu: Checkout) -> None:
    checkout = finished_on_cpu
    cells = {f"{strategy}/{workload}/2/1" for strategy in ("time-slicing", "mps") for workload in ("held", "product")}
    checkout.delete_records(*cells)
    device = "**one_device(lambda wildcards, cells=CELLS: cell_device(cells(wildcards))),"
    checkout.edit("rules/measure.smk", device, "mem_mb=100,")
    hold = Hold(checkout)
    running = checkout.start(cores=4, environment=hold.environment, forks_jobs=True)
    # One of the two cells that can be held waits for the other.
    running.wait_for_text("another job uses this device: waiting for its end")
    hold.release()
    assert running.wait().ok().jobs == measuring_jobs(cells)
    windows = [checkout.record(cell)["window"] for cell in cells]
    times = sorted((window["start_epoch_seconds"], window["end_epoch_seconds"]) for window in windows)
    assert all(end <= start for (_, end), (start, _) in pairwise(times))
