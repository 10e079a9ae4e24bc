"""Processes that must not outlive their run: the run, its guard or the next run finds and ends them."""

import contextlib
import os
import re
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
# A scratch folder, or what lies in one, on disk or deleted; and where the run of such a folder notes its owner.
IN_SCRATCH = re.compile(rf"(?P<above>/(?:.*/)?)sharebench-(?P<run>{RUN_ID.pattern})-[^/]*(?:/.*)?")
OWNER_FILE = "sharebench-{}.owner"
# A tenant's standard output and error are files in its scratch.
OUTPUTS = (1, 2)
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


def _machine() -> str:
    """Where process ids of this process mean something, until when."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {_pid_namespace('self')}"


def _noted_owner(above: Path, run_id: str, user: int) -> str:
    """The owner that this user's run has noted above its scratch; empty if there is none, or on another machine."""
    note = above / OWNER_FILE.format(run_id)
    with contextlib.suppress(OSError, ValueError):
        if note.lstat().st_uid == user and not note.is_symlink():
            owner, _, machine = note.read_text().partition(" ")
            return owner if machine == _machine() else ""
    return ""


def _known_environment(process: psutil.Process) -> dict[str, str]:
    """The variables by which a process belongs to a run; if it has hidden them, by the scratch that it writes to."""
    environment = process.environ()
    if RUN_ID_VARIABLE in environment or RUN_OWNER_VARIABLE in environment:
        return environment
    for number in OUTPUTS:
        if _is_written(process.pid, number) and (found := IN_SCRATCH.fullmatch(_link(process.pid, f"fd/{number}"))):
            owner = _noted_owner(Path(found["above"]), found["run"], process.uids().real)
            return {RUN_ID_VARIABLE: found["run"], RUN_OWNER_VARIABLE: owner, "TMPDIR": found["above"]}
    return {}


def _link(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/{name}").readlink())
    return ""


def _is_written(pid: int, number: int) -> bool:
    """Whether a process has this file open for writing, unlike a reader of its log."""
    with contextlib.suppress(OSError):
        flags = re.search(r"^flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{number}").read_text(), re.MULTILINE)
        return bool(flags and int(flags[1], 8) & os.O_ACCMODE)
    return False


def unclear_line() -> str:
    """A line about a process of this user and temporary folder that may be left over; empty if there is none.

    It has hidden its run, and either writes to the scratch of one that no note names, or only works in that of a dead
    one, without a terminal: it may be the user's own.
    """
    here, user, spared = _pid_namespace("self"), os.getuid(), _spared_pids()
    above = f"{Path(tempfile.gettempdir()).resolve()}/"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in spared or process.uids().real != user or _pid_namespace(process.pid) != here:
                continue
            environment = _known_environment(process)
            run_id = None
            if environment.get(RUN_OWNER_VARIABLE) == "" and environment.get("TMPDIR") == above:
                run_id = environment[RUN_ID_VARIABLE]
            elif not environment and not process.terminal():
                run_id = _run_worked_in(process.pid, user, above)
            if run_id is not None:
                name = process.name() if process.name().isprintable() else "?"
                return (
                    f"process {process.pid} ({name}) is in the folder of run {run_id}, which is not known to live, and "
                    f"may load this machine: kill {process.pid}, if it is not needed"
                )
    return ""


def _run_worked_in(pid: int, user: int, above: str) -> str | None:
    """The run in whose scratch the process works, unless that is alive or has another temporary folder."""
    found = IN_SCRATCH.fullmatch(_link(pid, "cwd"))
    if not found or found["above"] != above:
        return None
    owner = _noted_owner(Path(above), found["run"], user)
    return None if owner and not _is_left({RUN_OWNER_VARIABLE: owner}) else found["run"]


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
                environment = {} if process.pid in spared else _known_environment(process)
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
    _remove_note(_owner_note(run_id))


def _remove_note(note: Path) -> None:
    # It names an ended run, so the run that cannot remove it need not fail.
    with contextlib.suppress(OSError):
        note.unlink()


def _owner_note(run_id: str) -> Path:
    return Path(tempfile.gettempdir()) / OWNER_FILE.format(run_id)


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
    """A process that ends all processes of the run when the run dies without releasing its claim.

    Should it be killed with the run, a note of the run's owner lets the next run find them.
    """

    def __init__(self, run_id: str) -> None:
        self._note = _owner_note(run_id)
        # On a full disk the guard has to do.
        with contextlib.suppress(OSError):
            self._note.write_text(f"{process_identity(os.getpid())} {_machine()}")
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
        _remove_note(self._note)
