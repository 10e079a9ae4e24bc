"""Our own MPS control daemons: started for a plot, checked during a cell, always stopped.

Each shared device (a GPU, or a MIG instance) has a daemon with its own pipe and log directories, so that no other
user's daemon is used or touched. Commands and their answers: NVIDIA, Multi-Process Service, "nvidia-cuda-mps-control".
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

import psutil

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.contract import Grant, NodeError, item
from sharebench.model.records.types import EvidenceItem
from tenant.contract import MPS_PIPE_VARIABLE

CONTROL = "nvidia-cuda-mps-control"
PROCESS_PREFIX = "nvidia-cuda-mps"
LOG_VARIABLE = "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_PIPE = Path("/tmp/nvidia-mps")
# Commands are answered within milliseconds; a daemon that hangs must not hang the cell.
COMMAND_SECONDS = 15.0
START_SECONDS = 20.0
QUIT_SECONDS = 10.0
POLL_SECONDS = 0.02
ENDING_SECONDS = 0.2


def process_variables(pid: int, names: Collection[str]) -> dict[str, str]:
    """These variables from the environment that the process was started with; empty where it is hidden.

    A process that wrote its title over its environment, as vLLM's engine does, inherited that of its parent, unless
    that is this process. One with an empty environment looks the same, but is not a client of our daemon.
    """
    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        for each in (process, *process.parents()):
            if each.pid == os.getpid():
                break
            if environment := each.environ():
                return {name: value for name, value in environment.items() if name in names}
    return {}


def variables_item(what: str, grant: Grant, names: Collection[str], pids: Iterable[int]) -> EvidenceItem:
    """Evidence that processes of a tenant were started with these variables of its grant."""
    wanted = {name: grant.environment[name] for name in names if name in grant.environment}
    actual = [process_variables(pid, names) for pid in pids]
    observed = next((each for each in actual if each != wanted), wanted if actual else {})
    return item(f"{what} tenant {grant.index}", wanted, observed, "node", bool(actual) and observed == wanted)


def is_running(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def _is_daemon(process: psutil.Process) -> bool:
    """Whether it is an MPS daemon or server, and not the command line that a study on another GPU often runs."""
    if not process.name().startswith(PROCESS_PREFIX) or process.status() == psutil.STATUS_ZOMBIE:
        return False
    # A process that is just starting has no command line yet.
    if not (words := process.cmdline()):
        return False
    return CONTROL not in {Path(word).name for word in words} or not {"-d", "-f"}.isdisjoint(words)


def _daemons() -> Iterator[tuple[psutil.Process, Mapping[str, str]]]:
    """All MPS daemons and servers on this host, with their environments, which are empty for another user's."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            if _is_daemon(process):
                try:
                    yield process, process.environ()
                except psutil.AccessDenied:
                    yield process, {}


def _pipe_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get(MPS_PIPE_VARIABLE) or DEFAULT_PIPE)


def foreign_daemon(ours: Path, devices: Collection[str]) -> str | None:
    """A line about a foreign MPS daemon that may serve one of the devices (UUIDs), or None.

    A daemon that is bound to other devices by UUID, like that of a study on another GPU, does not matter.
    """
    # The environment of a daemon that is just ending cannot be read, so it looks unbound.
    if (line := _foreign_daemon(ours, devices)) is not None:
        time.sleep(ENDING_SECONDS)
        line = _foreign_daemon(ours, devices)
    return line


def _foreign_daemon(ours: Path, devices: Collection[str]) -> str | None:
    for process, environment in _daemons():
        bound = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        is_elsewhere = bool(bound) and all("-" in name and name not in devices for name in bound)
        if not is_elsewhere and not _pipe_folder(environment).is_relative_to(ours):
            return (
                f"an MPS daemon that is not ours is running (process {process.pid}); "
                f"stop it first: echo quit | {MPS_PIPE_VARIABLE}=<its pipe directory> {CONTROL}"
            )
    return None


def kill_leftovers(ours: Path) -> int:
    """End MPS processes under our folder, by `quit` where the daemon still answers; returns their number."""
    pipes = [(process, _pipe_folder(environment)) for process, environment in _daemons() if environment]
    left = [(process, pipe) for process, pipe in pipes if pipe.is_relative_to(ours)]
    for pipe in {pipe for _, pipe in left}:
        with contextlib.suppress(NodeError, OSError):
            _run_control(pipe, command="quit")
    processes = [process for process, _ in left]
    _, alive = psutil.wait_procs([process for process in processes if is_running(process.pid)], timeout=1.0)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    _wait_for(lambda: not any(is_running(process.pid) for process in processes), QUIT_SECONDS)
    return len(left)


def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _environment(pipe: Path, device: str | None = None) -> dict[str, str]:
    """The environment of a daemon or its command line: without the caller's CUDA settings and run id.

    The run's owner stays in it, so that the daemon does not count as a stray (`measure/run/leftovers.py`).
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_") and k != RUN_ID_VARIABLE}
    own = {MPS_PIPE_VARIABLE: str(pipe), LOG_VARIABLE: str(pipe.with_name("log"))}
    return kept | own | ({"CUDA_VISIBLE_DEVICES": device} if device else {})


def _run_control(pipe: Path, *arguments: str, command: str = "", device: str | None = None) -> str:
    """The output of NVIDIA's control program for its arguments, or for a command. Raises NodeError when it fails."""
    request = command or " ".join(arguments)
    try:
        run = subprocess.run(
            [CONTROL, *arguments],
            input=f"{command}\n" if command else None,
            env=_environment(pipe, device),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise NodeError(f"{CONTROL} did not answer {request!r}: {type(error).__name__}") from None
    output = run.stdout.strip()
    # For an unknown command or server the exit code is 0.
    if run.returncode != 0 or output.startswith("Unknown command") or output.endswith("not found"):
        raise NodeError(f"{CONTROL} refused {request!r}: {run.stderr.strip() or output or run.returncode}")
    return output


class MpsDaemon:
    """The daemon of one device, with a folder of its own, whose path is short because it contains sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipe = folder / "pipe"

    @property
    def pid(self) -> int | None:
        """The control daemon's pid from its pid file; None without a daemon."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid = int((self.pipe / f"{CONTROL}.pid").read_text())
            # After a crash of the host another program may have that pid.
            return pid if is_running(pid) and psutil.Process(pid).name().startswith(PROCESS_PREFIX) else None
        return None

    def command(self, text: str) -> str:
        return _run_control(self.pipe, command=text)

    def start(self, device_uuid: str, thread_percent: float | None, memory_bytes: int | None) -> None:
        """Start daemon and server for one device, with default limits per client. Raises NodeError.

        The server is started as this user and after the limits are set, since a running server keeps its limits.
        """
        for folder in (self.pipe, self.folder / "log"):
            folder.mkdir(parents=True, mode=0o700)
        _run_control(self.pipe, "-d", device=device_uuid)
        if not _wait_for(lambda: self.pid is not None, START_SECONDS):
            raise NodeError(f"the MPS daemon did not start; its log: {self.log_tail()}")
        if thread_percent is not None:
            self.command(f"set_default_active_thread_percentage {thread_percent:g}")
        if memory_bytes is not None:
            self.command(f"set_default_device_pinned_mem_limit 0 {memory_bytes // MEBIBYTE}M")
        self.command(f"start_server -uid {os.getuid()}")
        if not _wait_for(lambda: self.server() is not None, START_SECONDS):
            raise NodeError(f"the MPS server did not start; its log: {self.log_tail()}")

    def log_tail(self) -> str:
        with contextlib.suppress(OSError, IndexError):
            return (self.folder / "log" / "control.log").read_text().splitlines()[-1]
        return "none"

    def server(self) -> int | None:
        """The server's pid, None before it runs. Raises NodeError."""
        pids = self.command("get_server_list").split()
        return int(pids[0]) if pids else None

    def clients(self, server: int) -> list[int]:
        """Pids of the server's clients, ascending. Raises NodeError."""
        return sorted(map(int, self.command(f"get_client_list {server}").split()))

    def thread_percent(self, server: int) -> float:
        """Default share of the SMs per client of this server, in percent. Raises NodeError."""
        return float(self.command(f"get_active_thread_percentage {server}"))

    def memory_limit(self, server: int) -> str:
        """Default memory limit per client of this server in the format of MPS, empty for none. Raises NodeError."""
        return self.command(f"get_device_pinned_mem_limit {server} 0")

    def stop(self) -> None:
        """End server and daemon and remove the folder. Raises NodeError when the daemon does not end."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(NodeError):
                self.command("quit")
            _wait_for(lambda: not is_running(pid), QUIT_SECONDS)
        kill_leftovers(self.folder)
        if pid is not None and is_running(pid):
            raise NodeError(f"the MPS daemon (process {pid}) cannot be ended")
        shutil.rmtree(self.folder, ignore_errors=True)
