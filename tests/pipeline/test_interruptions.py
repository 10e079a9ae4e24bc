"""Signals during a cell of real processes: nothing is left behind, and a rerun does exactly what is missing."""

import contextlib
import signal
import time

import psutil
import pytest
from pipeline.harness import Checkout, export_names, start_held_in_first_cell, table_jobs

FIRST, SECOND = "time-slicing/held/2/1", "mps/held/2/1"
BOTH = {FIRST, SECOND}
# The targets of reruns where the jobs after the cells do not matter.
RECORDS = ["results/cells/time-slicing/held/n2/r1/raw.json", "results/cells/mps/held/n2/r1/raw.json"]


@pytest.fixture
def checkout(finished_on_cpu: Checkout) -> Checkout:
    """A finished study of which two cells are missing."""
    finished_on_cpu.delete_records(*BOTH)
    return finished_on_cpu


def command_lines(checkout: Checkout) -> list[str]:
    lines = []
    for process in checkout.processes():
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


def driver(checkout: Checkout) -> psutil.Process:
    """The process of the job itself, not its shell."""
    drivers = []
    for process in checkout.processes():
        with contextlib.suppress(psutil.Error):
            if "python" in process.name() and "run_cell" in process.cmdline():
                drivers.append(process)
    assert len(drivers) == 1, drivers
    return drivers[0]


def assert_nothing_is_left(checkout: Checkout) -> None:
    assert command_lines(checkout) == []
    assert checkout.scratch_folders() == []


def test_sigterm_lets_the_current_cell_end_and_starts_no_other(checkout: Checkout) -> None:
    running, hold = start_held_in_first_cell(checkout)
    running.signal(signal.SIGTERM)
    running.wait_for(lambda: "Will exit after finishing" in running.text(), "the signal's effect")
    hold.release()
    stopped = running.wait()
    assert stopped.code == 1
    assert len(stopped.cells) == 1
    assert_nothing_is_left(checkout)
    planned = checkout.run(options=["--dry-run"]).ok()
    assert planned.jobs == {"run_cell": BOTH - stopped.cells, **table_jobs(export_names(BOTH))}


def test_ctrl_c_removes_the_tenants_and_measures_nothing(checkout: Checkout) -> None:
    running, _ = start_held_in_first_cell(checkout)
    running.signal(signal.SIGINT, group=True)
    stopped = running.wait()
    assert stopped.code != 0
    assert_nothing_is_left(checkout)
    assert not checkout.measured_cells() & BOTH
    assert "not complete: the same command again does only what is missing" in stopped.out
    assert checkout.run(*RECORDS).ok().jobs == {"run_cell": BOTH}


def test_a_closed_terminal_removes_the_tenants(checkout: Checkout) -> None:
    running, _ = start_held_in_first_cell(checkout)
    running.signal(signal.SIGHUP, group=True)
    assert running.wait().code == -signal.SIGHUP
    wait_until_all_have_ended(checkout)
    assert_nothing_is_left(checkout)
    assert checkout.run(*RECORDS, options=["--dry-run"]).ok().jobs == {"run_cell": BOTH}


def wait_until_all_have_ended(checkout: Checkout) -> None:
    """Wait for the job, which cleans up after Snakemake has ended."""
    deadline = time.monotonic() + 60
    while command_lines(checkout) and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_second_ctrl_c_does_not_keep_the_tenants_from_being_removed(checkout: Checkout) -> None:
    running, _ = start_held_in_first_cell(checkout)
    running.signal(signal.SIGINT, group=True)
    time.sleep(0.3)
    with contextlib.suppress(ProcessLookupError):
        running.signal(signal.SIGINT, group=True)
    stopped = running.wait()
    assert stopped.code != 0
    wait_until_all_have_ended(checkout)
    assert_nothing_is_left(checkout)
    assert checkout.run(*RECORDS, options=["--dry-run"]).ok().jobs == {"run_cell": BOTH}


def test_a_killed_snakemake_leaves_orphans_that_the_next_start_sweeps(checkout: Checkout) -> None:
    running, _ = start_held_in_first_cell(checkout)
    running.signal(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    orphans = command_lines(checkout)
    assert any("job.py run_cell " in line for line in orphans), orphans
    assert any("-m tenant" in line for line in orphans), orphans
    # Only the orphans still wait for the hold: tenants of the next run load at once.
    assert checkout.run(*RECORDS).ok().jobs == {"run_cell": BOTH}
    assert_nothing_is_left(checkout)


def test_a_killed_driver_costs_its_cell_only(checkout: Checkout) -> None:
    running, hold = start_held_in_first_cell(checkout)
    driver(checkout).kill()
    running.wait_for(lambda: "cell 2 of 2" in running.text(), "the second cell")
    hold.release()
    stopped = running.wait()
    assert stopped.code == 1
    assert stopped.jobs["run_cell"] == BOTH
    [killed] = stopped.failed["run_cell"]
    assert "ended without a message: killed" in stopped.out
    assert "--spec" not in stopped.out, "its command line is not a message"
    assert_nothing_is_left(checkout)
    assert checkout.measured_cells() & BOTH == BOTH - {killed}
    assert checkout.run(*RECORDS).ok().jobs == {"run_cell": {killed}}
