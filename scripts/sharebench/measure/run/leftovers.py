"""Processes that must not outlive their run: the run, its guard or the next run finds and ends them."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from sharebench.core.files import SCRIPTS
from sharebench.core.run_names import RUN_ID_VARIABLE, RUN_OWNER_VARIABLE, scratch_folders, scratch_prefix
from sharebench.model.run_record import RUN_ID

GRACE_SECONDS = 3.0
# A job that is stopped removes its tenants, in a cluster too, before it ends.
GUARD_GRACE_SECONDS = 15.0
# A process may start another while it is being ended.
ROUNDS = 5
HAS_ENDED = ("Z", "X")
GUARD = """
import sys
if not sys.stdin.buffer.read():
    from sharebench.measure.run import leftovers
    leftovers.sweep(sys.argv[1], grace_seconds=leftovers.GUARD_GRACE_SECONDS)
"""
IsWanted = Callable[[int, dict[str, str]], bool]


def process_identity(pid: int) -> str | None:
    """`PID:START`, which no other process ever has until the next boot; None where the process has ended."""
    with contextlib.suppress(OSError, IndexError):
        # The name, in brackets, may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in HAS_ENDED else f"{pid}:{fields[19]}"
    return None


def run_environment(run_id: str) -> dict[str, str]:
    """The variables by which a process is known to belong to this process's run."""
    return {RUN_ID_VARIABLE: run_id, RUN_OWNER_VARIABLE: str(process_identity(os.getpid()))}


def _is_left(environment: dict[str, str]) -> bool:
    owner = environment.get(RUN_OWNER_VARIABLE, "")
    pid = owner.partition(":")[0]
    return pid.isdigit() and process_identity(int(pid)) != owner


def _pid_namespace(pid: int | str) -> Path:
    return Path(f"/proc/{pid}/ns/pid").readlink()


def _spared_pids() -> set[int]:
    this_process = psutil.Process()
    return {this_process.pid, *(parent.pid for parent in this_process.parents())}


def _end(processes: Iterable[psutil.Process], grace_seconds: float) -> None:
    """End processes, by SIGKILL where SIGTERM does not within the grace time."""
    ended = list(processes)
    for process in ended:
        with contextlib.suppress(psutil.Error):
            process.terminate()
            # A stopped process gets the signal only when it continues.
            process.send_signal(signal.SIGCONT)
    _, alive = psutil.wait_procs(ended, timeout=grace_seconds)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)


def _end_matching(is_wanted: IsWanted, grace_seconds: float) -> None:
    """End all matching processes of runs and those that they start meanwhile, and remove their runs' scratch."""
    scratch: set[Path] = set()
    spared = _spared_pids()
    for _ in range(ROUNDS):
        found = []
        for process in psutil.process_iter():
            # Another user's environment can be read only by root, who may also end the process.
            with contextlib.suppress(psutil.Error, OSError):
                environment = {} if process.pid in spared else process.environ()
                is_running = environment.get(RUN_ID_VARIABLE) and process.status() != psutil.STATUS_ZOMBIE
                if is_running and is_wanted(process.pid, environment):
                    found.append(process)
                    scratch |= _scratch_of(environment, process.uids().real)
        if not found:
            break
        _end(found, grace_seconds)
    for folder in scratch:
        shutil.rmtree(folder, ignore_errors=True)


def _scratch_of(environment: dict[str, str], user: int) -> set[Path]:
    """The user's scratch folders of a process's run, in the temporary folder that the process has, which may differ."""
    run_id, folder = environment[RUN_ID_VARIABLE], Path(environment.get("TMPDIR") or tempfile.gettempdir())
    if not RUN_ID.fullmatch(run_id):
        return set()
    prefix = scratch_prefix(run_id)
    # A tenant's temporary folder is in its scratch.
    above = [each for each in (folder, *folder.parents) if each.name.startswith(prefix)]
    return {each for each in (*above, *folder.glob(f"{prefix}*")) if each.lstat().st_uid == user}


def sweep(run_id: str, grace_seconds: float = GRACE_SECONDS) -> None:
    """End every process of that run except this one and its ancestors, and remove the run's scratch."""
    _end_matching(lambda _, environment: environment[RUN_ID_VARIABLE] == run_id, grace_seconds)
    remove_scratch(run_id)


def sweep_dead_runs() -> None:
    """End the processes of every run whose owner has died, whatever folder or device it used; root, of every user.

    The process id of an owner in another container means nothing here, so its processes are left alone.
    """
    here = _pid_namespace("self")
    _end_matching(lambda pid, environment: _is_left(environment) and _pid_namespace(pid) == here, GRACE_SECONDS)


def remove_scratch(run_id: str) -> None:
    for folder in scratch_folders(run_id):
        shutil.rmtree(folder, ignore_errors=True)


def end_strays(owner: int) -> None:
    """End processes that `owner` has adopted from killed jobs, and that have hidden their environment.

    Tenants have sessions of their own, unlike everything that Snakemake starts. MPS daemons outlive their job, and show
    the run's owner without its id.
    """
    spared = _spared_pids()
    for _ in range(ROUNDS):
        strays: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error, OSError):
            children = psutil.Process(owner).children()
            adopted = [each for each in children if each.pid not in spared and _is_stray(each, owner)]
            strays = [*adopted, *(one for each in adopted for one in each.children(recursive=True))]
        if not strays:
            break
        _end(strays, GRACE_SECONDS)


def _is_stray(process: psutil.Process, owner: int) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        is_other_session = os.getsid(process.pid) != os.getsid(owner)
        return is_other_session and RUN_OWNER_VARIABLE not in process.environ()
    return False


class Guard:
    """A process that ends all processes of the run when the run dies without releasing its claim."""

    def __init__(self, run_id: str) -> None:
        # In a session of its own, out of reach of the terminal's signals and of a kill of the run's process group.
        self._process = subprocess.Popen(
            [sys.executable, "-c", GUARD, run_id],
            cwd="/",
            # Without the run's id, since another run that sweeps at the same time must not end it.
            env={**os.environ, **run_environment(""), "PYTHONPATH": str(SCRIPTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the guard of a run that has ended well."""
        if self._process.poll() is None:
            self._process.communicate(b"dismissed")
