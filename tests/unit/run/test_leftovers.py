"""Processes that a run has adopted from jobs that were killed."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from unit.nodes.host.tenants import is_alive, wait_for

from sharebench.core.run_names import RUN_OWNER_VARIABLE
from sharebench.measure.run import leftovers, ownership

SCRIPTS = Path(leftovers.__file__).resolve().parents[3]
# A run whose job ends at once and leaves two daemons: one without an environment, one as MPS daemons are.
JOB = """
import subprocess, sys
from pathlib import Path
for environment in ({}, {"SHAREBENCH_RUN_OWNER": sys.argv[1]}):
    pid = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True, stdout=subprocess.DEVNULL).pid
    # A program shows its environment some time after it has begun, on a busy machine after Popen has returned.
    while not Path(f"/proc/{pid}/cmdline").read_bytes():
        pass
    print(pid)
"""
RUN = """
import os, subprocess, sys
from sharebench.measure.nodes.host.programs.process_tree import set_subreaper
from sharebench.measure.run import leftovers
set_subreaper(True)
command = [sys.executable, "-c", sys.argv[1], leftovers.process_identity(os.getpid())]
job = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | leftovers.run_environment("x"))
stray, daemon = map(int, job.stdout.split())
leftovers.end_strays(os.getpid())
print([leftovers.process_identity(pid) is not None for pid in (stray, daemon)])
os.kill(daemon, 9)
"""


def test_strays_end_and_daemons_that_outlive_their_job_do_not() -> None:
    command = [sys.executable, "-c", RUN, JOB]
    ended = subprocess.run(command, env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[False, True]\n", "")


# A run that starts a tenant, as its jobs do, whose program hides its environment and its session.
OWNER = """
import os, signal, subprocess, sys, tempfile
from pathlib import Path
from sharebench.core.run_names import scratch_prefix
from sharebench.measure.run import leftovers
run_id, output, end = sys.argv[1:]
guard = leftovers.Guard(run_id)
scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(run_id)))
with open(scratch / "log" if output == "log" else os.devnull, "ab") as out:
    hidden = subprocess.Popen(["sleep", "600"], env={}, cwd=scratch, stdout=out, stderr=out, start_new_session=True)
print(hidden.pid, flush=True)
sys.stdin.readline()
if end == "by SIGKILL":
    guard._process.kill()
    # Until it has ended, it is there to end the tenant.
    guard._process.wait()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@contextlib.contextmanager
def hidden_tenant(
    tmp: Path, output: str = "log", end: str = "by SIGKILL", prepare: Callable[[], object] = list
) -> Iterator[int]:
    """The process of a run that ends when this begins; its temporary folder is `tmp`.

    `prepare` is called before: once the run is dead, any run on this machine, of another test too, may sweep it.
    """
    run_id = f"20260101-000000-{secrets.token_hex(4)}"
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS), "TMPDIR": str(tmp)}
    command = [sys.executable, "-c", OWNER, run_id, output, end]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None and run.stdout is not None
        pid = int(run.stdout.readline())
        assert is_alive(pid)
        prepare()
        if end != "never":
            run.stdin.close()
            run.wait()
        try:
            yield pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            run.kill()


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("is_scratch_removed", [False, True])
def test_a_tenant_without_environment_that_outlives_run_job_and_guard_is_found_by_its_output(
    tmp: Path, is_scratch_removed: bool
) -> None:
    def prepare() -> None:
        if is_scratch_removed:
            shutil.rmtree(next(tmp.glob("sharebench-*/")))

    with hidden_tenant(tmp, prepare=prepare) as pid:
        leftovers.sweep_dead_runs()
        # By this sweep, or by that of another test's run, which was there first.
        wait_for(lambda: not is_alive(pid) and not list(tmp.glob("sharebench-*/")))
    assert leftovers.unclear_line() == ""


def test_a_run_and_its_guard_end_it_too(tmp: Path) -> None:
    with hidden_tenant(tmp, end="and its guard remains") as pid:
        deadline = time.monotonic() + 300
        while (is_alive(pid) or any(tmp.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_alive(pid)
        assert not any(tmp.iterdir())


def test_a_tenant_without_environment_of_a_living_run_is_left_alone(tmp: Path) -> None:
    for output in ("log", "none"):
        with hidden_tenant(tmp, output, end="never") as pid:
            leftovers.sweep_dead_runs()
            assert is_alive(pid)
            assert leftovers.unclear_line() == ""


@pytest.mark.parametrize(
    ("output", "note"), [("none", "is whole"), ("log", "is gone"), ("log", "of another machine"), ("log", "a link")]
)
def test_what_is_not_surely_ours_is_named_and_refuses_the_run(tmp: Path, output: str, note: str) -> None:
    def prepare() -> None:
        (found,) = tmp.glob("*.owner")
        if note == "of another machine":
            found.write_text(found.read_text().replace("-", "+"))
        elif note != "is whole":
            found.rename(tmp / "note")
        if note == "a link":
            found.symlink_to(tmp / "note")

    with hidden_tenant(tmp, output, prepare=prepare) as pid:
        leftovers.sweep_dead_runs()
        assert is_alive(pid)
        with pytest.raises(ownership.OwnershipError) as refused:
            ownership.claim(tmp / "results", {})
        line = str(refused.value)
        assert line.startswith(f"process {pid} (sleep) is in the folder of run 20260101-000000-")
        assert line.endswith(f"kill {pid}, if it is not needed")
        # Another study's temporary folder is none of this run's business.
        (tmp / "other").mkdir()
        tempfile.tempdir = str(tmp / "other")
        assert leftovers.unclear_line() == ""


def test_a_process_that_only_looks_into_a_scratch_is_neither_ended_nor_named(tmp: Path) -> None:
    opened = contextlib.ExitStack()
    logs: list[IO[str]] = []

    def prepare() -> None:
        (log,) = tmp.glob("sharebench-*/log")
        logs.append(opened.enter_context(log.open()))

    with opened, hidden_tenant(tmp, prepare=prepare) as pid:
        (file,) = logs
        with subprocess.Popen(["sleep", "600"], env={}, cwd="/", stdin=file) as reader:
            leftovers.sweep_dead_runs()
            wait_for(lambda: not is_alive(pid))
            assert is_alive(reader.pid)
            assert leftovers.unclear_line() == ""
            reader.kill()


def test_a_note_that_can_be_neither_written_nor_removed_fails_no_run(tmp: Path) -> None:
    """As where the temporary folder has become read-only."""
    run_id = "20260101-000000-00000000"
    (tmp / leftovers.OWNER_FILE.format(run_id)).mkdir()
    leftovers.Guard(run_id).dismiss()
    leftovers.remove_scratch(run_id)


def test_a_foreign_process_with_an_empty_owner_is_none_of_ours(tmp: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env={RUN_OWNER_VARIABLE: ""}, cwd="/") as foreign:
        assert leftovers.unclear_line() == ""
        foreign.kill()
