"""Programs that run until they exit: real processes on the stand-in, timed by their exit."""

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.nodes.host.tenants import CORES, HIDES, cell_of, naps_of, sleeping, wait_for
from unit.studies import W, refusal_line, study_with

from sharebench.measure.nodes.contract import NodeError
from sharebench.study.cells import Cell


def exiting(text: str, seconds: float = 60, **more: Any) -> dict[str, Any]:
    """A workload entry that runs this Python text until it exits."""
    command = ["{python}", "-c", text, "{index}"]
    return {"kind": "command", "command": command, "until": "exit", "job": {"max_seconds": seconds}} | more


def run(tmp_path: Path, entry: dict[str, Any], replicas: int = 2, **others: Any) -> dict[str, Any]:
    """The record of a cell of such programs, after writing it."""
    known = {f"{W}.{name}": other for name, other in others.items()}
    planned = study_with({f"{W}.mine": entry, "workloads": ["mine"], "node": "cpu"} | known)
    return cell_of(tmp_path, planned, Cell("time-slicing", "mine", replicas, 1))


def run_late(tmp_path: Path, text: str, replicas: int, is_early: Callable[[dict[str, Any]], bool]) -> tuple[Any, float]:
    """The record under the first deadline that gives this machine time for what comes before, and the deadline."""
    for seconds in (1.5, 6.0, 24.0):
        measured = run(tmp_path, exiting(text, seconds), replicas)
        if not is_early(measured):
            break
    return measured, seconds


def test_exiting_programs_begin_together_and_are_timed_by_their_exit(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    text = f"""
import sys, time
with open({str(noted)!r} + sys.argv[1], "w") as file: print(time.monotonic(), file=file)
time.sleep(0.2 + 0.2 * int(sys.argv[1]))
"""
    measured = run(tmp_path, exiting(text))
    assert (measured["status"], measured["reason"]) == ("ok", None)
    start = measured["window"]["start_monotonic_seconds"]
    begun = [float(Path(f"{noted}{index}").read_text()) for index in range(2)]
    assert min(begun) > start, "none begins before the others are there"
    jobs = [tenant["job"] for tenant in measured["tenants"]]
    for job, at, nap in zip(jobs, begun, (0.2, 0.4), strict=True):
        # It is counted from the start of its own process.
        assert job["completion_seconds"] >= nap
        assert job["start_delay_seconds"] + job["completion_seconds"] >= at - start + nap
    assert measured["window"]["end_monotonic_seconds"] - start == pytest.approx(
        max(job["completion_seconds"] for job in jobs)
    )
    assert [tenant["cpu"]["affinity"] for tenant in measured["tenants"]] == [CORES[:1]] * 2
    # Gates that need iterations are skipped.
    judged = {gate["name"] for gate in measured["gates"]}
    assert {"evidence", "nothing_finished", "foreign_cpu", "cpu_stolen"} <= judged
    assert not judged & {"window_coverage", "window_length", "output_digest", "steady", "drift", "errors", "censored"}
    assert [tenant["steady"] for tenant in measured["tenants"]] == [None, None]


def children_cpu_seconds() -> float:
    """CPU seconds of all children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_cpu_time_of_an_exited_program_is_its_own(tmp_path: Path) -> None:
    """It includes awaited children, although all of them have ended when the host is asked."""
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    before = children_cpu_seconds()
    measured = run(tmp_path, exiting(parent), replicas=1)
    (tenant,) = measured["tenants"]
    seconds = measured["window"]["end_monotonic_seconds"] - measured["window"]["start_monotonic_seconds"]
    # A part is the launcher's, from before the program's start. Clocks tick every 10 ms.
    assert 0.28 < tenant["cpu"]["cpu_seconds"] < children_cpu_seconds() - before + 0.02
    own_percent = 100 * tenant["cpu"]["cpu_seconds"] / (seconds * len(CORES))
    assert measured["telemetry"]["foreign_cpu_percent"] < 100 - own_percent + 15


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("print('bad'); sys.exit(3)", "crashed", "1 of 2 tenants crashed: ended by itself with exit code 3"),
        ("os.kill(os.getpid(), 9)", "killed", "1 of 2 tenants killed: ended by SIGKILL"),
        ("os.abort()", "crashed", "1 of 2 tenants crashed: ended by SIGABRT"),
        ("raise MemoryError", "oom", "1 of 2 tenants fit into memory"),
        ("time.sleep(600)", "hung", "1 of 2 tenants hung: it had not exited {seconds} s after its start"),
    ],
    ids=["code", "signal", "abort", "memory", "deadline"],
)
def test_the_end_of_a_program_decides_its_status(tmp_path: Path, text: str, status: str, reason: str) -> None:
    # Processes in a session of their own end with it.
    text = f"""
import os, subprocess, sys, time
if sys.argv[1] == "1":
    subprocess.Popen(["sleep", "{naps_of(tmp_path)}"], start_new_session=True)
    {text}
"""
    if status == "hung":
        measured, seconds = run_late(tmp_path, text, 2, lambda record: record["tenants"][0]["status"] == "hung")
        reason = reason.format(seconds=f"{seconds:g}")
    else:
        measured = run(tmp_path, exiting(text))
    assert (measured["status"], measured["reason"]) == (status, reason)
    assert sleeping(naps_of(tmp_path)) == []
    if status == "oom":
        assert measured["tenants"][0]["job"]["completed"] == 1, "the other one goes on: how many fit is the result"
    if status == "crashed":
        assert measured["tenants"][0]["status"] == "not-measured"


# Leaves at once; its child, in a session of its own, works on.
LEAVES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    {more}
    os.closerange(0, 3)
    time.sleep({seconds})
    os._exit(0)
"""


@pytest.mark.parametrize("more", ["pass", "os.execv('/bin/sleep', ['sleep', '1'])"], ids=["forks", "new program"])
def test_a_program_that_forks_and_leaves_is_done_when_its_processes_are(tmp_path: Path, more: str) -> None:
    measured = run(tmp_path, exiting(LEAVES.format(more=more, seconds=1)), replicas=1)
    assert measured["status"] == "ok"
    assert measured["tenants"][0]["job"]["completion_seconds"] >= 1


def test_a_process_that_hides_its_environment_is_known_from_before_the_programs_end(tmp_path: Path) -> None:
    text = f"""
import subprocess, sys, time
hidden = [sys.executable, "-c", {HIDES.replace("input()", "import time; time.sleep(3)")!r}]
subprocess.Popen(hidden, stdout=subprocess.PIPE, start_new_session=True).stdout.readline()
# It is looked for every second.
time.sleep(1.5)
"""
    measured = run(tmp_path, exiting(text), replicas=1)
    assert measured["status"] == "ok"
    assert measured["tenants"][0]["job"]["completion_seconds"] >= 3


def test_processes_that_a_program_left_behind_miss_its_deadline(tmp_path: Path) -> None:
    text = LEAVES.format(more="pass", seconds=600)
    measured, seconds = run_late(tmp_path, text, 1, lambda record: "it had not exited" in record["reason"])
    said = f"it has exited, but 1 of the processes that it left had not {seconds:g} s after its start"
    assert (measured["status"], measured["reason"]) == ("hung", f"1 of 1 tenants hung: {said}")


def test_a_failed_program_ends_the_cell_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    text = "import sys, time\nif sys.argv[1] == '1': sys.exit(1)\ntime.sleep(600)"
    assert run(tmp_path, exiting(text, 600))["status"] == "crashed"
    # Nor does the process wait at its end for a thread that still does.
    wait_for(lambda: not any("ThreadPool" in each.name for each in threading.enumerate()), 300)
    assert time.monotonic() - began < 300


def test_a_missing_program_is_a_node_error(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"^cannot start 'gpu-burn-x': No such file or directory$"):
        run(tmp_path, exiting("", command=["gpu-burn-x", "60"]))


def test_a_program_starts_with_unchanged_signals_and_arguments(tmp_path: Path) -> None:
    """Its ignored signals are those of other processes, and no word is interpreted by a shell."""
    text = """
import os, signal, sys
print(signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, sys.argv[1:], sys.stdin.read() == "")
sys.exit(1)
"""
    words = ["{python}", "-c", text, "$HOME", "a  b; c"]
    measured = run(tmp_path, exiting("", command=words), replicas=1)
    plain = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN)"]
    said = measured["tenants"][0]["exit"]["log_tail"]
    assert "['$HOME', 'a  b; c'] True" in said
    assert said.startswith(subprocess.check_output(plain, text=True).strip())


def test_the_spec_of_an_exiting_program_has_only_its_dependencies() -> None:
    planned = study_with({f"{W}.mine": exiting("pass", 7), "workloads": ["mine"], "node": "cpu"})
    spec = planned.spec(Cell("mps", "mine", 2, 1)).spec()
    assert spec["workload"].keys() == {"name", "kind", "command", "until", "job"}
    assert (spec["workload"]["job"], spec["window_seconds"]) == ({"iterations": 1, "max_seconds": 7}, 7)
    assert "warmup" not in spec
    assert planned.calibrated_workloads() == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {f"{W}.mine": exiting("", load={"arrival": "poisson", "rate_hz": 3})},
            "mine.load: has no effect with until: exit, a program as it is; remove it",
        ),
        ({f"{W}.matmul.until": "exit"}, "matmul.until: has no effect on kind: loop; remove it, or set kind: command"),
        ({f"{W}.mine": exiting(""), "interference": "matmul,mine"}, "interference: 'mine' runs once, until it exits"),
        (
            {f"{W}.mine": exiting(""), f"{W}.mix": {"tenants": ["mine", "matmul"]}},
            "mix.tenants: 'mine' runs once, until it exits, and 'matmul' goes on; mix it with jobs only, or "
            "give its metrics in place of until: exit",
        ),
        (
            {f"{W}.mine": exiting(""), "workloads": ["mine"], "node": "simulated"},
            "workloads: 'mine' runs once, until it exits, which 'simulated' cannot model",
        ),
        (
            {f"{W}.mine": exiting(""), "workloads": ["mine"], "node": "kubernetes"},
            "'mine' is impossible on the node 'kubernetes' without a container; give it an image",
        ),
    ],
    ids=["load", "loop", "pair", "mix", "simulated", "kubernetes"],
)
def test_keys_without_meaning_for_an_exiting_program_are_refused(changes: dict[str, Any], line: str) -> None:
    assert line in refusal_line(changes)
