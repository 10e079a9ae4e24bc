"""Scripts without their imports, which are most of a short run's work: a process that has them forks for each run.

Run as a module it is that process. A connection is one run, of snakemake or of a job that snakemake starts: it brings
the standard streams and a line of JSON, and gets the exit code. Where it is closed before, the run is killed. A child
reports what else it had to load, which the server then loads for the next ones.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.asking import SERVER, ask, code_of

TESTS = Path(__file__).resolve().parents[1]


class Forked:
    """A run of a script of Python."""

    def __init__(self, command: Sequence[str], cwd: Path, env: dict[str, str], output: Path) -> None:
        self.command = command
        name, _ = _server()
        with Path(os.devnull).open() as nothing, output.open("wb") as file:
            files = (nothing.fileno(), file.fileno(), file.fileno())
            self.connection = ask(name, command, str(cwd), env | {SERVER: name}, files)

    def wait(self, seconds: float) -> int:
        """Its exit code. Raises TimeoutExpired after these seconds, when it is killed with all its jobs."""
        self.connection.settimeout(seconds)
        with self.connection:
            try:
                return code_of(self.connection)
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.command, seconds) from None


@cache
def _server() -> tuple[str, subprocess.Popen[bytes]]:
    """The process that forks, and its name; it ends with this one."""
    name = f"sharebench-tests-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        descriptor = listener.fileno()
        started = subprocess.Popen(
            [sys.executable, "-m", "pipeline.prefork", str(descriptor)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            pass_fds=[descriptor],
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    return name, started


def _installed() -> list[str]:
    """The modules that are loaded here and that no checkout has a copy of."""
    folders = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    return [name for name, file in files.items() if name != "__main__" and file.startswith(folders)]


def _load(names: list[str]) -> None:
    for name in names:
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _run(order: dict[str, Any], files: list[int]) -> None:
    """Be the script, in this child."""
    os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    # Those that are there know whether the server's can be sought.
    sys.stdin, sys.stdout = (os.fdopen(descriptor, mode, closefd=False) for descriptor, mode in enumerate("rw"))
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    random.seed()
    sys.argv = order["command"]
    sys.path[:1] = [str(Path(sys.argv[0]).parent), *filter(None, order["env"].get("PYTHONPATH", "").split(":"))]
    importlib.invalidate_caches()
    runpy.run_path(sys.argv[0], run_name="__main__")


@dataclass(frozen=True)
class _Child:
    """A run in progress, and the pipe on which it reports."""

    connection: socket.socket
    pid: int
    reported: int

    def kill(self) -> None:
        """End it: the process that asked for it has gone, or has stopped waiting."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Answer with its exit code, and load what it had to load."""
        with os.fdopen(self.reported) as reported:
            names = reported.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with self.connection, contextlib.suppress(OSError):
            self.connection.sendall(str(code).encode())
        _load(json.loads(names or "[]"))


def _fork(connection: socket.socket) -> _Child:
    """The run that is asked for, in the parent; the child does not return."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile() as said:
        order = json.loads(said.readline())
    reported, reporting = os.pipe()
    gc.freeze()
    if child := os.fork():
        for descriptor in (*files, reporting):
            os.close(descriptor)
        return _Child(connection, child, reported)
    os.close(reported)
    connection.close()
    try:
        _run(order, files)
    finally:
        os.write(reporting, json.dumps(_installed()).encode())
        os.close(reporting)
    sys.exit()


def _serve(listener: socket.socket) -> None:
    """Until the process that started this one ends."""
    importlib.import_module("snakemake.cli")
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
                key.data.end()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
