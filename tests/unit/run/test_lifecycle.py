"""The start and the end of a run: claiming the node, and the closing lines."""

import csv
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.studies import study_with

from sharebench.core import run_names
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.simulated.node import SimulatedNode
from sharebench.measure.run import lifecycle, ownership, placement
from sharebench.measure.run.lifecycle import closing_lines, relative_argv
from sharebench.measure.run.ownership import OwnershipError
from sharebench.model import run_record
from sharebench.study.cells import Cell
from sharebench.study.study import Study


def simulated_study(**changes: Any) -> Study:
    """The default study on the simulated node with one workload and some keys changed."""
    return study_with({"node": "simulated", "workloads": ["matmul"], "null_cells": False} | changes)


def test_the_recorded_command_has_no_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = [str(tmp_path / ".venv/bin/snakemake"), "--cores", "1", "--configfile", str(tmp_path / "config/quick.yaml")]
    assert relative_argv(argv) == ["snakemake", "--cores", "1", "--configfile", "config/quick.yaml"]
    assert relative_argv(["snakemake", "--config", "strategies=[mps,mig]"])[-1] == "strategies=[mps,mig]"
    assert relative_argv(["/lib/snakemake/__main__.py", "-n"]) == ["snakemake", "-n"], "python -m snakemake"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A results root; the run id that `begin` puts into the environment is removed after the test."""
    for name in (run_names.RUN_ID_VARIABLE, run_names.RUN_OWNER_VARIABLE):
        monkeypatch.setenv(name, "")
    yield tmp_path / "results"


def needed_outputs(cells: list[Cell], results: Path, **others: list[str]) -> dict[str, list[str]]:
    """The DAG's jobs: the first output of each, by rule."""
    return {"run_cell": [str(results / cell.raw) for cell in cells], "all": [""]} | others


def test_begin_claims_the_results_and_prints_the_plan(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = simulated_study()
    cells = planned.cells[:2]
    claim = lifecycle.begin(
        planned, results, needed_outputs(cells, results), ["snakemake", "--cores", "1"], "Not shown: x."
    )
    assert os.environ[run_names.RUN_ID_VARIABLE] == claim.run_id
    run = ownership.verify(results)
    assert (run["planned"], run["argv"], run["not_shown"]) == (2, ["snakemake", "--cores", "1"], "Not shown: x.")
    assert (run["node_kind"], run["order"], run["config"]) == ("simulated", "blocks", planned.config)
    assert capsys.readouterr().err.startswith(f"2 of {len(planned.cells)} cells to measure")
    with pytest.raises(OwnershipError, match=claim.run_id):
        lifecycle.begin(planned, results, needed_outputs(cells, results), ["snakemake"], "")
    claim.release()


@pytest.mark.parametrize("when", ["claim", "sweep"])
def test_an_interrupted_start_is_reported_and_releases_the_claim(
    results: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    released: list[str] = []
    monkeypatch.setattr(f"sharebench.measure.nodes.simulated.node.SimulatedNode.{when}", interrupt)
    monkeypatch.setattr(
        "sharebench.measure.nodes.simulated.node.SimulatedNode.release", lambda self: released.append(when)
    )
    with pytest.raises(OwnershipError, match=r"^interrupted$"):
        lifecycle.begin(simulated_study(), results, {"run_cell": []}, ["snakemake"], "")
    assert run_record.read_run(results)["ended"]
    assert released == (["sweep"] if when == "sweep" else [])


def test_only_a_measuring_run_claims_the_node(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "node.lock"
    monkeypatch.setattr("sharebench.measure.nodes.host.cpu.CpuNode.lock_path", lock)
    planned = study_with({"node": "cpu"})
    measuring = lifecycle.begin(planned, results, needed_outputs(planned.cells[:1], results), ["snakemake"], "")
    drawing = lifecycle.begin(planned, tmp_path / "other", {"figures": ["x.svg"], "all": [""]}, ["snakemake"], "")
    drawing.release()
    for rule in ("run_cell", "calibrate", "configure_node", "characterise_node", "restore"):
        with pytest.raises(OwnershipError, match="the node is in use"):
            outputs = [str(results / planned.cells[0].raw)] if rule == "run_cell" else ["file"]
            lifecycle.begin(planned, tmp_path / "other", {rule: outputs}, ["snakemake"], "")
    measuring.release()


@pytest.mark.parametrize("rule, numbers", [("calibrate", [0]), ("restore", [0, 1])])
def test_restore_includes_devices_that_were_down(results: Path, rule: str, numbers: list[int]) -> None:
    two = simulated_study(**{"simulated.devices": 2})
    broken = lifecycle.begin(two, results, {"run_cell": []}, ["snakemake"], "")
    for output in ("one", "other"):
        ownership.record_outcome(results, "NodeError: no answer", output, number=1)
    broken.release()
    places = placement.study_placement(two, results)
    lifecycle.begin(two, results, {rule: [""]}, ["snakemake"], "", places).release()
    assert [entry["number"] for entry in run_record.read_run(results)["devices"]] == numbers


def summary(results: Path, rows: list[dict[str, Any]]) -> None:
    """Write a summary.csv with these rows; other columns are blank."""
    group_columns = ("strategy", "workload", "tenant_workload", "replicas", "status")
    names = [*group_columns, "reason", "latency_mean_seconds", "slowdown", "throughput_total_hz", "label"]
    names += dict.fromkeys(name for row in rows for name in row if name not in (*names, "workload"))
    path = results / "tables" / "summary.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows({"workload": "matmul", "tenant_workload": "matmul", "status": "ok"} | row for row in rows)
    cells(results, [])


def cells(results: Path, rows: list[dict[str, Any]]) -> None:
    """Write a cells.csv with these rows: valid cells of one tenant, unless a row overrides that."""
    names = ("strategy", "workload", "replicas", "repeat", "tenant", "status", "valid", "reason", "warnings")
    with (results / "tables" / "cells.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        usual = {"strategy": "mps", "workload": "matmul", "replicas": 1, "tenant": 0, "status": "ok", "valid": True}
        writer.writerows(usual | row for row in rows)


def test_closing_lines_show_the_largest_number_of_tenants_of_each_strategy(results: Path) -> None:
    values = {"latency_mean_seconds": 0.0123456, "slowdown": 3.456, "throughput_total_hz": 324.04}
    rows = [
        {"strategy": "exclusive", "replicas": 1, "latency_mean_seconds": 0.0035},
        {"strategy": "mps", "replicas": 2, "latency_mean_seconds": 0.005},
        {"strategy": "mps", "replicas": 10} | values,
        {"strategy": "mig", "replicas": 2, "latency_mean_seconds": 0.004, "slowdown": 1.1},
        {"strategy": "mig", "replicas": 4, "status": "infeasible"},
    ]
    summary(results, rows)
    assert closing_lines(results) == [
        "matmul, exclusive × 1: 3.5 ms",
        "matmul, mps × 10: 12.35 ms, slowdown 3.46, 324/s in all",
        "matmul, mig × 2: 4 ms, slowdown 1.10",
        f"report: {results / 'report.html'}",
    ]


def test_closing_lines_show_ttft_and_tpot_of_streamed_answers(results: Path) -> None:
    values = {"latency_mean_seconds": 1.2, "slowdown": 1.5, "throughput_total_hz": 8.0, "ttft_p50_seconds": 0.0612}
    whole = {"tpot_p50_seconds": 0.0211, "output_tokens_total_hz": 812, "goodput_total_hz": 7.5}
    rows = [{"replicas": 2} | values | own for own in ({"strategy": "mps"} | whole, {"strategy": "mig"})]
    summary(results, rows)
    assert closing_lines(results)[:2] == [
        "matmul, mps × 2: median TTFT 61.2 ms, TPOT 21.1 ms, slowdown 1.50, 812 tokens/s in all, 7.5/s within the SLO",
        "matmul, mig × 2: median TTFT 61.2 ms, slowdown 1.50, 8/s in all",
    ], "answers of one token have no time per token"


def test_closing_lines_list_each_workload_of_a_mix(results: Path) -> None:
    mixed = {"workload": "matmul+memcopy", "replicas": 2}
    summary(
        results,
        [
            {"strategy": "exclusive", "replicas": 1, "latency_mean_seconds": 0.0035},
            mixed | {"strategy": "mps", "tenant_workload": "matmul", "latency_mean_seconds": 0.007, "slowdown": 2},
            mixed | {"strategy": "mps", "tenant_workload": "memcopy", "latency_mean_seconds": 0.03, "slowdown": 3},
        ],
    )
    assert closing_lines(results)[:3] == [
        "matmul in matmul+memcopy, mps × 2: 7 ms, slowdown 2.00",
        "memcopy in matmul+memcopy, mps × 2: 30 ms, slowdown 3.00",
        "matmul, exclusive × 1: 3.5 ms",
    ]


def test_closing_lines_show_the_label_and_why_a_mean_is_missing(results: Path) -> None:
    row = {"strategy": "mps", "replicas": 2, "label": "CPU stand-in, not a GPU", "reason": "cpu_stolen: 9 %"}
    summary(results, [row])
    lines = closing_lines(results)
    assert lines[:2] == ["CPU stand-in, not a GPU:", "matmul, mps × 2: no mean (cpu_stolen: 9 %)"]


def test_closing_lines_mention_a_strategy_without_a_result(results: Path) -> None:
    rows = [{"strategy": "mps", "replicas": n, "status": "killed", "reason": "ended by SIGKILL"} for n in (2, 4)]
    summary(results, [{"strategy": "mig", "replicas": 1}, *rows])
    assert closing_lines(results)[:2] == ["matmul, mig × 1: no mean", "matmul, mps × 4: killed (ended by SIGKILL)"]


def test_closing_lines_count_failed_excluded_and_warned_cells(results: Path) -> None:
    summary(results, [{"strategy": "mps", "replicas": 2}])
    hung = {"status": "hung", "valid": False, "reason": "1 of 2 tenants hung: not ready after 12 s", "replicas": 2}
    silent = {"valid": False, "reason": "nothing_finished: tenant 0: all of 7 requests failed; cpu_stolen: 9 %"}
    cells(
        results,
        [
            {"repeat": 1, "warnings": "foreign_cpu;drift"},
            {"repeat": 2, "warnings": "foreign_cpu"},
            *({"repeat": 1, "tenant": tenant} | hung for tenant in (0, 1)),
            {"repeat": 3, "replicas": 8, "status": "infeasible", "valid": False, "reason": "no room"},
            *({"repeat": repeat, "strategy": "mig"} | silent for repeat in (1, 2)),
            {"repeat": 1, "strategy": "mig", "workload": "memcopy"} | silent,
        ],
    )
    assert closing_lines(results)[1:] == [
        "1 of 7 cells hung: matmul, mps × 2: 1 of 2 tenants hung: not ready after 12 s",
        "3 of 7 cells excluded by nothing_finished 3, cpu_stolen 3: matmul, mig × 1 and 1 other: "
        "nothing_finished: tenant 0: all of 7 requests failed",
        f"2 of 7 cells carry a warning: foreign_cpu 2, drift 1; see {results / 'report.html'}",
        f"report: {results / 'report.html'}",
    ]
    cells(results, [{"repeat": 1, "warnings": "foreign_cpu"}])
    named = f"1 of 1 cells carry a warning: foreign_cpu 1; see {results / 'report.html'}"
    assert closing_lines(results)[1] == named


def test_only_logs_of_this_run_are_shown(tmp_path: Path) -> None:
    new, empty, old = (tmp_path / name for name in ("new.log", "empty.log", "old.log"))
    new.write_text("".join(f"line {number}\n" for number in range(50)))
    empty.write_text("\n")
    old.write_text("of yesterday\n")
    os.utime(old, (1, 1))
    lines = lifecycle.failed_logs([new, empty, old, tmp_path / "missing.log"], time.time() - 60)
    assert lines[0] == f"--- {new}"
    assert lines[1:21] == [f"line {number}" for number in range(30, 50)]
    killed = "ended without a message: killed, by the kernel if memory was short (see dmesg)"
    assert lines[21:] == [f"--- {empty}", killed]


def begin_run(planned: Study, results: Path, **others: list[str]) -> ownership.Claim:
    """Begin a run that measures every cell."""
    return lifecycle.begin(planned, results, needed_outputs(planned.cells, results, **others), ["snakemake"], "")


def test_a_failed_run_shows_the_cause_and_the_remedy(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = simulated_study()
    claim = begin_run(planned, results)
    log = results / "failed.log"
    log.write_text("failed: no answer\n")
    for output in ("one", "other"):
        ownership.record_outcome(results, "NodeError: no answer", output)
    lifecycle.finish(claim, planned, [log, results / "never.log"])
    printed = capsys.readouterr().err
    assert f"--- {log}\nfailed: no answer\n" in printed
    assert "the node is down: NodeError: no answer" in printed
    assert printed.splitlines()[-1].startswith("not complete")
    assert "Traceback" not in printed
    assert run_record.read_run(results)["ended"]


def test_a_node_that_could_not_be_restored_is_named_with_the_command(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise NodeError("its label cannot be written")

    monkeypatch.setattr(SimulatedNode, "state_outlives_run", False)
    planned = simulated_study()
    argv = ["snakemake", "all", "--cores", "1", "--config", "node=simulated"]
    claim = lifecycle.begin(planned, results, {"run_cell": []}, argv, "")
    monkeypatch.setattr(SimulatedNode, "current", lambda _: "mps")
    command = "snakemake restore --cores 1 --config node=simulated"
    assert lifecycle.left_line(claim.record) == f"the node is left as it is; restore it: {command}"
    monkeypatch.setattr(SimulatedNode, "restore", refuse)
    assert not lifecycle.finish(claim, planned, [])
    lines = capsys.readouterr().err.splitlines()
    assert "restoring the node; press Ctrl-C again to leave it as it is" in lines
    assert lines[-1] == f"the node could not be restored: its label cannot be written; restore it: {command}"
