"""Run Python scripts in forks of a server that has their imports loaded: imports are most of a short run's work.

As a module this file is the server. One connection is one run, of snakemake or of a job that snakemake starts. The
client sends the standard streams and the request, and receives the process ID, then the exit code; closing the
connection kills the run.
Each fork reports the installed modules that it had to import, and the server imports them for the next forks. It also
imports the packages of the first folder that a run names as CODE, and forks that name another, or none, forget them.
"""

import atexit
import contextlib
import gc
import importlib
import itertools
import json
import marshal
import os
import pkgutil
import random
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.prefork_client import CODE, SERVER, ask, receive_number, send_number

TESTS = Path(__file__).resolve().parents[1]
_loaded: dict[str | None, list[str]] = {}
"""The folder whose packages the server has imported, and all their modules."""


class Forked:
    """A Python script that runs in a fork of the server, as the leader of a session.

    With `forks_jobs` the jobs that it starts are forks too; without, they are ordinary processes of its session.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        env: dict[str, str],
        output: Path,
        forks_jobs: bool = True,
        errors: Path | None = None,
    ) -> None:
        self.command = command
        name, _ = _server()
        env = env | {SERVER: name} if forks_jobs else env
        nothing = Path(os.devnull)
        with nothing.open() as empty, output.open("wb") as out, (errors or nothing).open("wb") as error:
            files = (empty.fileno(), out.fileno(), (error if errors else out).fileno())
            self.connection = socket.socket(fileno=ask(name, command, str(cwd), env, files).detach())
        self.pid = receive_number(self.connection)

    def has_ended(self) -> bool:
        return bool(select.select([self.connection], [], [], 0)[0])

    def wait(self, seconds: float) -> int:
        """Wait for its exit code. After `seconds`, kill it with all its jobs and raise TimeoutExpired."""
        self.connection.settimeout(seconds)
        with self.connection:
            try:
                return receive_number(self.connection)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.command, seconds) from None


@cache
def _server() -> tuple[str, subprocess.Popen[bytes]]:
    """The server's name and process; it ends when this process ends."""
    name = f"sharebench-tests-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        descriptor = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.prefork", str(descriptor)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            pass_fds=[descriptor],
        )
    return name, process


def _installed_modules(after: str) -> list[str]:
    """The modules of the standard library and of installed packages that were loaded after this one."""
    # A look at all modules would copy their memory, which takes longer than most jobs.
    new = list(itertools.takewhile(lambda name: name != after, reversed(sys.modules)))
    folders = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in reversed(new)}
    return [name for name, file in files.items() if name != "__main__" and file.startswith(folders)]


def _import(names: list[str]) -> None:
    for name in names:
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _load(code: str) -> None:
    """Import the packages in this folder, except `tenant`, whose workloads need frameworks."""
    before = set(sys.modules)
    sys.path.insert(0, code)
    for package in ("sharebench", "publication"):
        _import([package])
        paths = sys.modules[package].__path__
        _import([module.name for module in pkgutil.walk_packages(paths, f"{package}.")])
    sys.path.remove(code)
    files = ((name, getattr(sys.modules[name], "__file__", None) or "") for name in set(sys.modules) - before)
    _loaded[code] = [name for name, file in files if file.startswith(code)]


def _run(request: dict[str, Any], files: list[int]) -> None:
    """Run the script in this child process."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    # The inherited stream objects were made for the server's own files.
    sys.stdin, sys.stdout = (os.fdopen(descriptor, mode, closefd=False) for descriptor, mode in enumerate("rw"))
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    random.seed()
    sys.argv = request["command"]
    if request["env"].get(CODE) not in _loaded:
        for name in itertools.chain.from_iterable(_loaded.values()):
            del sys.modules[name]
    sys.path[:1] = [str(Path(sys.argv[0]).parent), *filter(None, request["env"].get("PYTHONPATH", "").split(":"))]
    importlib.invalidate_caches()
    runpy.run_path(sys.argv[0], run_name="__main__")


def _exit_code(request: dict[str, Any], files: list[int]) -> int:
    """Run the script, and end as an interpreter does; returns its exit code."""
    code: Any = 0
    try:
        _run(request, files)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


@dataclass(frozen=True)
class _Child:
    """A run in progress, and the pipe on which it reports."""

    connection: socket.socket
    pid: int
    reported: int

    def kill(self) -> None:
        """Kill a run whose client has gone or has stopped waiting."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def finish(self) -> None:
        """Send the exit code to the client, and import the modules that the run had to import."""
        with os.fdopen(self.reported) as report:
            names = report.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with self.connection, contextlib.suppress(OSError):
            send_number(self.connection, code)
        _import(json.loads(names or "[]"))


def _fork(connection: socket.socket) -> _Child:
    """Fork for the run that the client asks for; only the parent returns."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as stream:
        request = marshal.load(stream)
    # The run waits here, so that its test cannot edit the code yet.
    if not _loaded and CODE in request["env"]:
        _load(request["env"][CODE])
    reported, reporting = os.pipe()
    gc.freeze()
    if child := os.fork():
        for descriptor in (*files, reporting):
            os.close(descriptor)
        with contextlib.suppress(OSError):
            send_number(connection, child)
        return _Child(connection, child, reported)
    os.close(reported)
    connection.close()
    last = next(reversed(sys.modules))
    code = _exit_code(request, files)
    os.write(reporting, json.dumps(_installed_modules(last)).encode())
    # An ordinary end would free all modules, and so copy the server's memory.
    os._exit(code)


def _serve(listener: socket.socket) -> None:
    """Serve until the process that started this one ends."""
    # Snakemake looks for its plugins once a process.
    sys.path.insert(0, str(TESTS / "pipeline/plugins"))
    importlib.import_module("snakemake.cli").get_argument_parser()
    sys.path.pop(0)
    selector = selectors.DefaultSelector()
    for file in (sys.stdin, listener):
        selector.register(file, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                child = _fork(listener.accept()[0])
                selector.register(child.connection, selectors.EVENT_READ, child)
                selector.register(child.reported, selectors.EVENT_READ, child)
            elif key.fileobj is key.data.connection:
                selector.unregister(key.data.connection)
                key.data.kill()
            else:
                selector.unregister(key.data.reported)
                with contextlib.suppress(KeyError):
                    selector.unregister(key.data.connection)
                key.data.finish()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
