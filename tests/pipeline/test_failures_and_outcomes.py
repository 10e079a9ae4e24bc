"""What a broken node costs, and how the tables show failed and infeasible cells."""

from collections.abc import Mapping

from pipeline.harness import Checkout, export_names, measuring_jobs, table_jobs
from tables import rows


def folder(cell: str) -> str:
    """The cell's folder, by which an outage names it."""
    strategy, workload, replicas, repeat = cell.split("/")
    return f"cells/{strategy}/{workload}/n{replicas}/r{repeat}"


def last_rows(checkout: Checkout) -> dict[str, Mapping[str, str]]:
    """The last row of each cell in cells.csv."""
    axes = ("strategy", "workload", "replicas", "repeat")
    return {"/".join(row[axis] for axis in axes): row for row in rows(checkout.results / "tables/cells.csv")}


def test_a_failed_cell_is_shown_and_the_others_get_partial_tables(finished: Checkout) -> None:
    bad = "mig/alpha/2/1"
    finished.delete_records(bad)
    finished.plant_outage({"cells": [folder(bad)]})
    result = finished.run()
    assert result.code == 1
    assert result.failed == {"run_cell": {bad}}
    assert f"--- results/{folder(bad)}/run.log\nfailed: the simulated device does not answer\n" in result.out
    assert "27 of 28 cells are measured; their tables are in results/partial" in result.out
    caption = (finished.results / "partial/summary.md").read_text().splitlines()[0]
    assert "PARTIAL: 27 of 28 cells." in caption
    tables = {path.name for path in (finished.results / "partial").iterdir()}
    judged = ("gates", "evidence", "outcomes")
    measured = ("cells", "contrasts", "devices", "summary", "stages", "startup")
    assert tables == {f"{name}.csv" for name in (*judged, *measured)} | {"summary.md"}

    finished.plant_outage(None)
    assert finished.run().ok().jobs == measuring_jobs({bad})
    assert not (finished.results / "partial").exists(), "partial tables of a study that is complete"


def test_no_cell_is_tried_on_a_node_that_is_down(finished: Checkout) -> None:
    cells = {f"mig/{workload}/{n}/{repeat}" for workload in ("alpha", "beta") for n in (1, 2) for repeat in (1, 2)}
    finished.delete_records(*cells)
    finished.plant_outage({"cells_left": 3})
    result = finished.run()
    assert result.code == 1
    assert result.cells == cells
    failed = result.failed["run_cell"]
    assert len(cells - failed) == 3
    logs = [finished.record_path(cell).with_name("run.log").read_text().strip() for cell in failed]
    cause = "the simulated device does not answer"
    assert logs.count(f"failed: {cause}") == 2
    assert logs.count(f"failed: not tried, the node is down: NodeError: {cause}") == 3
    assert f"the node is down: NodeError: {cause}" in result.out.splitlines()
    # The fourth cell, the first to fail, is the last of block 1. One cell of block 2 still switches the node.
    assert result.switches == ["mig block 1", "mig block 2"]

    finished.plant_outage(None)
    again = finished.run().ok()
    assert again.jobs == {"run_cell": failed, **table_jobs(export_names(cells))}
    assert again.switches == ["mig block 1", "mig block 2"]


def test_failures_of_tenants_are_rows_and_are_not_remeasured(finished: Checkout) -> None:
    planted = {"mps/alpha/2/1": "oom", "mps/beta/2/1": "crashed", "mig/alpha/2/2": "killed", "mig/beta/1/1": "hung"}
    finished.delete_records(*planted)
    finished.plant_outage({"tenants": {folder(cell): status for cell, status in planted.items()}})
    assert finished.run().ok().jobs == measuring_jobs(planted)
    table = last_rows(finished)
    assert {cell: table[cell]["status"] for cell in planted} == planted
    assert table["mps/alpha/2/1"]["reason"] == "1 of 2 tenants fit into memory"
    assert table["mps/beta/2/1"]["reason"] == "1 of 2 tenants crashed: planted in the simulation"
    assert not any(table[cell]["latency_mean_seconds"] for cell in planted)
    assert finished.run().ok().jobs == {}


def test_an_infeasible_cell_is_a_row(finished: Checkout) -> None:
    config = ["strategies=[mig]", "replicas=[2,8]", "workloads=alpha"]
    result = finished.run(config=config).ok()
    assert result.jobs == measuring_jobs({"mig/alpha/8/1", "mig/alpha/8/2"})
    assert result.switches == [], "there is no state to set for it"
    row = last_rows(finished)["mig/alpha/8/1"]
    assert row["status"] == "infeasible"
    assert row["reason"] == "8 instances of 1 slice(s) do not fit into 7 slices"
    assert row["tenant"] == ""
    assert finished.run(config=config).ok().jobs == {}


def test_a_run_that_could_not_restore_the_node_does_not_end_with_0(finished: Checkout) -> None:
    bad = "mig/alpha/2/1"
    finished.delete_records(bad)
    finished.edit("scripts/sharebench/measure/run/lifecycle.py", "    return not failures\n", "    return False\n")
    finished.edit("scripts/sharebench/measure/run/lifecycle.py", "claim.end_processes()", "__import__('time').sleep(1)")
    finished.edit("scripts/sharebench/measure/run/progress.py", "QUIET_SECONDS = 8.0", "QUIET_SECONDS = 0.5")
    finished.edit("scripts/sharebench/measure/run/progress.py", "LOOK_SECONDS = 3.0", "LOOK_SECONDS = 0.1")
    result = finished.run()
    assert result.code == 1
    assert result.jobs == measuring_jobs({bad}) and not result.failed
    assert "Traceback" not in result.out
    assert f"report: {finished.results.name}/report.html" in result.out
    assert result.out.rindex("  ending the run, ") > result.out.rindex("writing the report")
