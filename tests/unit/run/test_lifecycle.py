"""The start and the end of a run: claiming the node, and the closing lines."""

import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.studies import study_with

from sharebench.core import run_names
from sharebench.core.files import write_json
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.simulated.node import SimulatedNode
from sharebench.measure.run import interrupts, lifecycle, ownership, placement
from sharebench.measure.run.lifecycle import relative_argv
from sharebench.measure.run.ownership import OwnershipError
from sharebench.measure.run.restore import restore_node
from sharebench.model import run_record
from sharebench.model.study_config import to_json
from sharebench.study.cells import Cell
from sharebench.study.study import Study

# linux/prctl.h
PR_GET_CHILD_SUBREAPER = 37


def simulated_study(**changes: Any) -> Study:
    """The default study on the simulated node with one workload and some keys changed."""
    return study_with({"node": "simulated", "workloads": ["matmul"], "null_cells": False} | changes)


def test_the_recorded_command_has_no_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = [str(tmp_path / ".venv/bin/snakemake"), "--cores", "1", "--configfile", str(tmp_path / "config/quick.yaml")]
    assert relative_argv(argv) == ["snakemake", "--cores", "1", "--configfile", "config/quick.yaml"]
    assert relative_argv(["snakemake", "--config", "strategies=[mps,mig]"])[-1] == "strategies=[mps,mig]"
    assert relative_argv(["/lib/snakemake/__main__.py", "-n"]) == ["snakemake", "-n"], "python -m snakemake"
    assert relative_argv(["/bin/sharebench", "restore"]) == ["sharebench", "restore"]


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
    assert (run["node_kind"], run["order"], run["config"]) == ("simulated", "blocks", to_json(planned.config))
    assert capsys.readouterr().err.startswith(f"2 of {len(planned.cells)} cells to measure")
    with pytest.raises(OwnershipError, match=claim.run_id):
        lifecycle.begin(planned, results, needed_outputs(cells, results), ["snakemake"], "")
    assert _is_subreaper()
    claim.release()
    assert not _is_subreaper()


def test_a_run_that_replaces_records_by_other_code_says_so_first(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = simulated_study()
    first, second, third = planned.cells[:3]
    old = {"code": "measuring code 0", "provenance": {"git_commit": "dad898e1af41fdff"}}
    write_json(results / first.raw, old)
    write_json(results / second.raw, old | {"code": planned.code(second.workload)})
    (results / third.raw).parent.mkdir(parents=True, exist_ok=True)
    (results / third.raw).write_text("damaged")
    lifecycle.begin(planned, results, needed_outputs([first, second, third], results), ["snakemake"], "").release()
    said = " ".join(capsys.readouterr().err.split())
    assert "1 of these cells have a record by other code (commit dad898e1) than this version's" in said
    assert "a run into another folder keeps them (--config results=…)" in said
    assert lifecycle.replaced_text(planned, results, [second, third]) == ""


def _is_subreaper() -> bool:
    state = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(state))
    return bool(state.value)


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
    monkeypatch.setattr(SimulatedNode, "state_outlives_run", False)
    left = r"^interrupted; an earlier run may have left the node changed; restore it: .*sharebench restore -x$"
    with pytest.raises(OwnershipError, match=left):
        lifecycle.begin(simulated_study(), results, {"run_cell": []}, ["snakemake"], "", config_words=["-x"])
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


def test_only_logs_of_this_run_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, empty, old = (tmp_path / name for name in ("new.log", "empty.log", "old.log"))
    new.write_text("".join(f"line {number}\n" for number in range(50)))
    empty.write_text("\n")
    old.write_text("of yesterday\n")
    os.utime(old, (1, 1))
    lines = lifecycle.failed_logs([new, empty, old, tmp_path / "missing.log"], time.time() - 60)
    assert lines[0] == f"--- {new}"
    assert lines[1:21] == [f"line {number}" for number in range(30, 50)]
    killed = "ended without a message: killed with the run, or by the kernel if memory was short (see dmesg)"
    assert lines[21:] == [f"--- {empty}", killed]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=8192))
    assert lifecycle.failed_logs([empty], 0) == [f"--- {empty}", "ended without a message"]


def no_closing_lines(_: Path) -> list[str]:
    return []


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
    lifecycle.finish(claim, planned, [log, results / "never.log"], no_closing_lines)
    printed = capsys.readouterr().err
    assert f"--- {log}\nfailed: no answer\n" in printed
    assert "the node is down: NodeError: no answer" in printed
    assert printed.splitlines()[-1].startswith("not complete")
    assert "Traceback" not in printed
    assert run_record.read_run(results)["ended"]


def test_a_finished_archive_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = simulated_study()
    claim = lifecycle.begin(planned, results, {"archive": []}, ["snakemake"], "")
    assert lifecycle.finish(claim, planned, None, no_closing_lines)
    assert capsys.readouterr().err.splitlines()[-1] == f"archive: {results / 'archive.zip'}"


def test_a_node_that_could_not_be_restored_is_named_with_the_command(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise NodeError("its label cannot be written")

    monkeypatch.setattr(SimulatedNode, "state_outlives_run", False)
    planned = simulated_study()
    monkeypatch.setenv("PWD", str(Path.cwd()))
    words = ["--config", "node=simulated"]
    claim = lifecycle.begin(planned, results, {"run_cell": []}, ["snakemake"], "", config_words=words)
    monkeypatch.setattr(SimulatedNode, "current", lambda _: "mps")
    command = "sharebench restore --config node=simulated"
    back: list[str] = []
    line = lifecycle.left_line(claim, lambda may_wait: bool(back) and not may_wait)
    assert line() == f"the node is left as it is; restore it: {command}"
    back.append("by the run itself")
    assert line() == "left at once; the same command again does only what is missing"
    monkeypatch.setattr(SimulatedNode, "restore", refuse)
    assert not lifecycle.finish(claim, planned, [], no_closing_lines)
    lines = capsys.readouterr().err.splitlines()
    assert "restoring the node; press Ctrl-C again to leave it as it is" in lines
    assert lines[-1] == f"the node could not be restored: its label cannot be written; restore it: {command}"


def test_the_command_that_restores_has_the_config_and_the_folder_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["--configfile", "/a.yaml", "--config", "node=cpu"]
    monkeypatch.setenv("PWD", str(Path.cwd()))
    restored = lifecycle.restore_command(words)
    assert restored == "sharebench restore --configfile /a.yaml --config node=cpu"
    # Snakemake changes its folder, and then the shell that called it is elsewhere.
    monkeypatch.chdir(tmp_path)
    assert lifecycle.restore_command(words) == f"cd {tmp_path} && {restored}"


def test_a_restore_that_fails_ends_with_1_and_releases_node_and_results(
    results: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> bool:
        raise NodeError("its label cannot be written")

    monkeypatch.setattr(SimulatedNode, "restore", refuse)
    # It would handle the signals of all tests after this one.
    monkeypatch.setattr(interrupts, "end_run_at_first", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        restore_node(simulated_study(), results, ["sharebench", "restore"], "")
    assert ended.value.code == 1
    assert "failed: its label cannot be written" in capfd.readouterr().err
    assert run_record.read_run(results)["ended"]
    lifecycle.begin(simulated_study(), results, {"restore": [""]}, ["sharebench"], "").release()


@pytest.mark.parametrize(("written", "commit"), [("0123456789" * 4 + "\n", "0123456789" * 4), ("$Format:%H$\n", None)])
def test_an_archived_tree_brings_its_commit(written: str, commit: str | None, tmp_path: Path) -> None:
    assert lifecycle.archived_commit(tmp_path) is None
    (tmp_path / ".git-commit").write_text(written)
    assert lifecycle.archived_commit(tmp_path) == commit
