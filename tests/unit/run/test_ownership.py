"""Locks, the run record, the takeover from a dead run, the circuit breaker, and interrupts."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.nodes.host.tenants import is_alive, wait_for

from sharebench.core import run_names
from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import NodeError, UnrecoverableNodeError, WorkloadError
from sharebench.measure.run import jobs, leftovers, ownership
from sharebench.measure.run.ownership import OwnershipError, claim, record_outcome, verify
from sharebench.model import run_record
from sharebench.model.run_record import read_run

SCRIPTS = Path(ownership.__file__).resolve().parents[3]
OWNER = """
import os, subprocess, sys, time
from pathlib import Path
from sharebench.measure.run.leftovers import run_environment
from sharebench.measure.run.ownership import claim
held = claim(Path(sys.argv[1]), {}, Path(sys.argv[2]))
held.guard._process.kill()
orphan = subprocess.Popen(["sleep", "600"], env=os.environ | run_environment(held.run_id))
print(held.run_id, orphan.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results root with a scratch folder of its own; no run is in the environment."""
    monkeypatch.delenv(RUN_ID_VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "results"


@pytest.fixture
def other(results: Path, tmp_path: Path) -> Iterator[Any]:
    """Another process that owns the results and the node, and has started a process that outlives it."""
    command = [sys.executable, "-c", OWNER, str(results), str(tmp_path / "node.lock")]
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    run_id, orphan = process.stdout.readline().split()

    class Other:
        def __init__(self) -> None:
            self.run_id, self.orphan, self.pid = run_id, int(orphan), process.pid

        def die(self) -> None:
            process.kill()
            process.wait()

    yield Other()
    for pid in (process.pid, int(orphan)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_live_owner_is_named_and_left_alone(results: Path, tmp_path: Path, other: Any) -> None:
    before = read_run(results)
    for node_locks in ([], [tmp_path / "node.lock"]):
        with pytest.raises(OwnershipError) as refused:
            claim(results, {}, *node_locks)
        line = str(refused.value)
        assert "\n" not in line
        for word in ("results folder", other.run_id, str(other.pid), os.path.relpath(results)):
            assert word in line
    assert is_alive(other.pid) and is_alive(other.orphan)
    assert read_run(results) == before


def test_a_busy_node_refuses_another_study_and_leaves_its_results_free(
    results: Path, tmp_path: Path, other: Any
) -> None:
    with pytest.raises(OwnershipError, match=f"the node is in use by run {other.run_id}"):
        claim(tmp_path / "study", {}, tmp_path / "node.lock")
    assert read_run(tmp_path / "study") == {}
    claim(tmp_path / "study", {}).release()
    assert is_alive(other.orphan)


@pytest.mark.parametrize(("study", "node_locks"), [("results", []), ("another", ["node.lock"])])
def test_leftovers_of_a_dead_owner_are_swept_before_taking_over(
    study: str, node_locks: list[str], tmp_path: Path, other: Any
) -> None:
    scratch = tmp_path / f"{run_names.scratch_prefix(other.run_id)}x"
    foreign = tmp_path / f"{run_names.scratch_prefix('another')}x"
    for folder in (scratch, foreign):
        (folder / "0").mkdir(parents=True)
    assert is_alive(other.orphan)
    other.die()
    mine = claim(tmp_path / study, {}, *(tmp_path / lock for lock in node_locks))
    assert mine.run_id != other.run_id
    # By this claim, or by that of another test's run, which was there first.
    wait_for(lambda: not is_alive(other.orphan) and not scratch.exists())
    assert foreign.exists()
    mine.release()


def test_a_dead_runs_processes_are_swept_whatever_its_lock_says(
    results: Path, tmp_path: Path, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / f"{run_names.scratch_prefix(other.run_id)}x"
    scratch.mkdir()
    other.die()
    (run_record.state_folder(results) / "lock").write_text("")
    (tmp_path / "node.lock").unlink()
    # The next run has another folder for temporary files.
    monkeypatch.setattr(tempfile, "tempdir", str(results))
    claim(tmp_path / "elsewhere", {}).release()
    wait_for(lambda: not is_alive(other.orphan) and not scratch.exists())


def test_the_guard_ends_what_a_killed_run_leaves(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = claim(results, {})
    orphan = subprocess.Popen(["sleep", "600"], env=os.environ | leftovers.run_environment(mine.run_id))
    # The run's end of the pipe closes when it dies, however that happens.
    assert mine.guard._process.stdin is not None
    mine.guard._process.stdin.close()
    assert orphan.wait(60) == -signal.SIGTERM
    assert mine.guard._process.wait(60) == 0
    mine.release()


def test_a_run_that_sweeps_leaves_the_guard_of_a_dead_run_its_work(results: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER.replace("held.guard._process.kill()", "")]
    command[-1] = command[-1].replace("held.run_id, orphan.pid", "held.guard._process.pid")
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    with subprocess.Popen(
        [*command, str(results), str(tmp_path / "node.lock")], env=environment, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        guard = int(owner.stdout.readline())
        os.kill(guard, signal.SIGSTOP)
        owner.kill()
        owner.wait()
        claim(tmp_path / "another", {}).release()
        assert is_alive(guard)
        os.kill(guard, signal.SIGCONT)


def test_a_copy_of_the_results_of_a_live_run_sweeps_nothing(results: Path, tmp_path: Path, other: Any) -> None:
    shutil.copytree(results, tmp_path / "copy")
    claim(tmp_path / "copy", {}).release()
    assert is_alive(other.pid) and is_alive(other.orphan)


def test_a_run_that_ended_frees_its_locks_and_keeps_its_record(results: Path, tmp_path: Path) -> None:
    lock = tmp_path / "node.lock"
    mine = claim(results, {"planned": 3}, lock)
    record = read_run(results)
    assert (record["run_id"], record["planned"], record["ended"], record["pid"]) == (mine.run_id, 3, False, os.getpid())
    mine.release()
    assert read_run(results) == record | {"ended": True}
    again = claim(results, {}, lock)
    assert again.run_id != mine.run_id
    assert read_run(results)["run_id"] == again.run_id
    mine.release()
    assert not read_run(results)["ended"], "a release that comes late ends only its own run"
    again.release()


@pytest.fixture
def run(results: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ownership.Claim]:
    """A run of this process; its id is in the environment, as for its jobs."""
    mine = claim(results, {"planned": 4})
    monkeypatch.setenv(RUN_ID_VARIABLE, mine.run_id)
    yield mine
    if mine.locks:
        mine.release()


def test_only_a_job_of_the_running_run_gets_its_record(
    results: Path, run: ownership.Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (verify(results)["planned"], verify(results)["run_id"]) == (4, run.run_id)
    with pytest.raises(OwnershipError):
        verify(results / "never")
    monkeypatch.setenv(RUN_ID_VARIABLE, "19990101-000000-0000")
    with pytest.raises(OwnershipError, match="no longer owns"):
        verify(results)
    monkeypatch.delenv(RUN_ID_VARIABLE)
    with pytest.raises(OwnershipError, match="outside a run"):
        verify(results)
    monkeypatch.setenv(RUN_ID_VARIABLE, run.run_id)
    run.release()
    with pytest.raises(OwnershipError, match="no longer owns"):
        verify(results)


def test_a_job_whose_run_was_taken_over_is_refused(results: Path, run: ownership.Claim) -> None:
    for lock in run.locks:
        lock.close()
    run.locks.clear()
    (run_record.state_folder(results) / "lock").write_text("")
    thief = claim(results, {})
    with pytest.raises(OwnershipError, match="no longer owns"):
        verify(results)
    record_outcome(results, A, is_final=True)
    assert read_run(results)["down"] is None, "a failure is recorded only in the job's own run"
    thief.release()


def test_a_job_whose_runs_lock_was_removed_is_refused(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_lock = tmp_path / "node.lock"
    mine = claim(results, {}, node_lock)
    monkeypatch.setenv(RUN_ID_VARIABLE, mine.run_id)
    verify(results)
    node_lock.unlink()
    claim(tmp_path / "another", {}, node_lock).release()
    with pytest.raises(OwnershipError, match=rf"{node_lock} was removed while run {mine.run_id} held it"):
        verify(results)
    mine.release()


def test_a_job_whose_run_has_died_is_refused(results: Path, run: ownership.Claim) -> None:
    for lock in run.locks:
        lock.close()
    run.locks.clear()
    with pytest.raises(OwnershipError, match="has died"):
        verify(results)
    claim(results, {}).release()


@pytest.mark.parametrize("content", ["{", "[]", "", '{"ended": false}', "{'run_id': 1, 'ended': true}"])
def test_a_damaged_run_record_fails_its_jobs_in_one_line_and_is_replaced_by_the_next_run(
    results: Path, run: ownership.Claim, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_record.state_folder(results) / "run.json"

    def job() -> None:
        with pytest.raises(SystemExit, match=r"^1$"), jobs.measuring_job(results):
            path.write_text(content)
            raise NodeError("no answer")

    # It is damaged during a job, then before one.
    for _ in range(2):
        job()
        failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  failed: ")]
        assert len(failed) == 1 and f"{path}: damaged (" in failed[0]
    run.release()
    assert read_run(results)["ended"], "the run itself still knows what it is"
    path.write_text(content)
    claim(results, {"planned": 1}).release()


A, B, GOOD = "NodeError: no answer", "OSError: disk full", None


@pytest.mark.parametrize(
    "reports, down",
    [
        ([(A, 1), (B, 2), (A, 3), (B, 4)], None),
        ([(B, 1), (A, 2), (A, 3)], A),
        ([(A, 1), (GOOD, 2), (A, 3)], None),
        # Retries of one cell.
        ([(A, 1), (A, 1), (A, 1)], None),
        ([(A, 1), (A, 1), (A, 2)], A),
    ],
)
def test_two_cells_that_fail_in_a_row_with_one_cause_take_the_node_down(
    results: Path, run: ownership.Claim, reports: list[tuple[str | None, int]], down: str | None
) -> None:
    for failure, cell in reports:
        verify(results)
        record_outcome(results, failure, f"cells/{cell}/raw.json")
    assert read_run(results)["down"] == down
    if down is None:
        verify(results)
    else:
        with pytest.raises(OwnershipError, match=down):
            verify(results)


def test_a_workloads_fault_takes_no_node_down(results: Path, run: ownership.Claim) -> None:
    for number in range(3):
        with pytest.raises(SystemExit, match=r"^1$"), jobs.measuring_job(results) as job:
            job.output = results / f"{number}.json"
            raise WorkloadError("tenant 0: ErrImagePull: no such image")
    assert read_run(results)["down"] is None


def test_a_wedged_device_is_a_final_failure(
    results: Path, run: ownership.Claim, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^1$"), jobs.measuring_job(results):
        raise UnrecoverableNodeError("the device takes no new tenant")
    assert "failed: the device takes no new tenant" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^1$"), jobs.measuring_job(results):
        pass
    assert "not tried, the node is down" in capsys.readouterr().out


def test_a_cleanup_failure_does_not_hide_the_original_failure(
    results: Path, run: ownership.Claim, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^1$"), jobs.measuring_job(results):
        try:
            raise NodeError("the driver does not prepare the claim")
        finally:
            raise NodeError("its daemon did not go")
    assert "failed: the driver does not prepare the claim; then its daemon did not go" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^1$"), jobs.measuring_job(results):
        try:
            raise NodeError("a cause")
        except NodeError as cause:
            raise NodeError("what it means") from cause
    assert "failed: what it means\n" in capsys.readouterr().out


def test_the_next_run_resets_failures_and_counts(results: Path, run: ownership.Claim) -> None:
    record_outcome(results, A, "one")
    record_outcome(results, A, "other")
    ownership.count_cell(results)
    run.release()
    again = claim(results, {})
    record = read_run(results)
    assert (record["down"], record["failure"], record["done"], record["ended"]) == (None, None, 0, False)
    again.release()


def test_cells_are_counted_and_their_overhead_is_remembered(results: Path, run: ownership.Claim) -> None:
    before = time.time()
    assert ownership.count_cell(results)["done"] == 1
    first = read_run(results)["first_cell_epoch_seconds"]
    assert before - 1 <= first <= time.time() + 1
    assert ownership.count_cell(results)["done"] == 2
    assert read_run(results)["first_cell_epoch_seconds"] == first
    ownership.add_overhead(results, 1.0, cells=1)
    ownership.add_overhead(results, 2.0, cells=3)
    run.release()
    claim(results, {}).release()
    assert read_run(results)["overhead"] == {"cells": 4, "seconds": 3.0}
