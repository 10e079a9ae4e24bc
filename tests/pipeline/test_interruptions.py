"""Signals during a cell of real processes: nothing is left behind, and a rerun does exactly what is missing."""

import contextlib
import signal
import time

import psutil
import pytest
from pipeline.harness import TIMEOUT_SECONDS, Checkout, export_names, start_held_in_first_cell, table_jobs

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
    """The process of the job itself: not its shell, nor what it has forked and not yet made another program."""
    drivers = []
    for process in checkout.processes():
        with contextlib.suppress(psutil.Error):
            if "python" in process.name() and "run_cell" in process.cmdline():
                drivers.append(process)
    (found,) = (each for each in drivers if each.ppid() not in {other.pid for other in drivers})
    return found


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


def test_a_closed_terminal_ends_the_run_in_order(checkout: Checkout) -> None:
    running, _ = start_held_in_first_cell(checkout)
    running.signal(signal.SIGHUP, group=True)
    stopped = running.wait()
    assert stopped.code == 1
    assert "not complete: the same command again does only what is missing" in stopped.out
    assert_nothing_is_left(checkout)
    assert checkout.run(*RECORDS, options=["--dry-run"]).ok().jobs == {"run_cell": BOTH}


def wait_until_all_have_ended(checkout: Checkout) -> None:
    """Wait for the run's guard, which ends what is left after Snakemake has ended."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while command_lines(checkout) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert_nothing_is_left(checkout)


def test_a_second_ctrl_c_does_not_keep_the_tenants_from_being_removed(checkout: Checkout) -> None:
    running, _ = start_held_in_first_cell(checkout)
    # The second belongs to the first, the third ends the run at once, if it has not ended.
    for pause in (0.3, 1.2, 0.0):
        with contextlib.suppress(ProcessLookupError):
            running.signal(signal.SIGINT, group=True)
        time.sleep(pause)
    stopped = running.wait()
    assert stopped.code in (1, 130)
    assert "Traceback" not in stopped.out
    assert "the same command again " in stopped.out
    wait_until_all_have_ended(checkout)
    assert checkout.run(*RECORDS, options=["--dry-run"]).ok().jobs == {"run_cell": BOTH}


ENDLESS_RESTORE = """
    state_outlives_run = False

    def restore(self) -> bool:
        import time
        time.sleep(600)
        return True
"""


def test_a_second_ctrl_c_leaves_the_node_with_the_command_that_restores_it(checkout: Checkout) -> None:
    checkout.edit(
        "scripts/sharebench/measure/nodes/host/cpu.py", '    kind = "cpu"\n', f'    kind = "cpu"\n{ENDLESS_RESTORE}'
    )
    running, _ = start_held_in_first_cell(checkout)
    running.signal(signal.SIGINT, group=True)
    running.wait_for(lambda: "press Ctrl-C again to leave it as it is" in running.text(), "the node's restore")
    # Later than a Ctrl-C that a wrapper repeats.
    time.sleep(1.5)
    running.signal(signal.SIGINT, group=True)
    stopped = running.wait()
    assert stopped.code == 130
    (left,) = [line for line in stopped.out.splitlines() if line.startswith("the node is left as it is; restore it: ")]
    assert "sharebench restore --configfile " in left
    assert "Traceback" not in stopped.out
    wait_until_all_have_ended(checkout)


@pytest.mark.parametrize("is_whole_group", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_killed_snakemake_leaves_no_process(checkout: Checkout, is_whole_group: bool) -> None:
    running, _ = start_held_in_first_cell(checkout)
    assert any("-m tenant" in line for line in command_lines(checkout))
    running.signal(signal.SIGKILL, group=is_whole_group)
    assert running.wait().code == -signal.SIGKILL
    wait_until_all_have_ended(checkout)
    assert checkout.run(*RECORDS, options=["--dry-run"]).ok().jobs == {"run_cell": BOTH}


def test_the_next_run_ends_what_a_run_without_a_guard_has_left(checkout: Checkout) -> None:
    # A run of another test may be the next one.
    for _ in range(5):
        for reached in (checkout.root / "tmp").glob("hold.*"):
            reached.unlink()
        # With this variable no template forks the tenants, which would end with it.
        running, _ = start_held_in_first_cell(checkout, LD_PRELOAD="")
        for process in checkout.processes():
            with contextlib.suppress(psutil.Error):
                if any("leftovers" in word for word in process.cmdline()):
                    process.kill()
        running.signal(signal.SIGKILL, group=True)
        assert running.wait().code == -signal.SIGKILL
        if is_left := any("-m tenant" in line for line in command_lines(checkout)):
            break
    assert is_left
    # No lock names the run any more.
    (checkout.results / ".sharebench/lock").unlink()
    (checkout.root / "tmp/sharebench-cpu.lock").unlink()
    # Only the orphans still wait for the hold: tenants of the next run load at once.
    assert checkout.run(*RECORDS).ok().jobs == {"run_cell": BOTH}
    assert_nothing_is_left(checkout)


def test_tenants_of_a_killed_last_job_end_with_the_run(checkout: Checkout) -> None:
    running, _ = start_held_in_first_cell(checkout)
    driver(checkout).kill()
    running.wait_for(lambda: "cell 2 of 2" in running.text(), "the second cell")
    driver(checkout).kill()
    assert running.wait().failed["run_cell"] == BOTH
    assert_nothing_is_left(checkout)


@pytest.mark.thorough
@pytest.mark.parametrize("victim", ["run", "group", "job", "tenant", "Ctrl-C", "terminal"])
def test_nothing_outlives_a_run_whatever_ends_it_at_whatever_moment(checkout: Checkout, victim: str) -> None:
    for delay in (0.0, 0.4, 1.0, 1.8, 3.0):
        # Where the last run ended before its turn, it has measured everything.
        checkout.delete_records(*BOTH & checkout.measured_cells())
        running = checkout.start(*RECORDS, config=["window_seconds=1"])
        running.wait_for_text("cell 1 of")
        time.sleep(delay)
        if victim in ("job", "tenant"):
            word = "run_cell" if victim == "job" else "tenant"
            for process in checkout.processes():
                with contextlib.suppress(psutil.Error):
                    if "python" in process.name() and word in process.cmdline():
                        process.kill()
        else:
            number = {"Ctrl-C": signal.SIGINT, "terminal": signal.SIGHUP}.get(victim, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                running.signal(number, group=victim != "run")
        running.wait()
        wait_until_all_have_ended(checkout)


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
    assert "--calibrations" not in stopped.out, "its command line is not a message"
    assert_nothing_is_left(checkout)
    assert checkout.measured_cells() & BOTH == BOTH - {killed}
    assert checkout.run(*RECORDS).ok().jobs == {"run_cell": {killed}}
