"""Snakemake without its imports, which are two thirds of a short run: a process that has them forks for each run.

Run as a program it is that process: it reads a run as a line of JSON, forks, and answers with a line for the child's
number and one for its exit code. A child ends as snakemake does, and reports what else it had to load.
"""

import gc
import importlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any


class Forked:
    """A run of snakemake; the next one begins when it has ended."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str], output: Path) -> None:
        self.server = _server()
        self._say({"command": command, "cwd": str(cwd), "env": env, "output": str(output)})
        self.command = command
        self.pid = int(self._line(None))

    def _say(self, order: dict[str, Any]) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(order).encode() + b"\n")
        self.server.stdin.flush()

    def _line(self, seconds: float | None) -> str:
        assert self.server.stdout is not None
        if not select.select([self.server.stdout], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired(self.command, seconds or 0)
        return self.server.stdout.readline().decode()

    def wait(self, seconds: float) -> int:
        """Its exit code. Raises TimeoutExpired after these seconds, when it is killed."""
        try:
            return int(self._line(seconds))
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._line(None)
            raise


_servers: list[subprocess.Popen[bytes]] = []


def _server() -> subprocess.Popen[bytes]:
    """The process that forks; it ends with this one."""
    if not _servers:
        started = subprocess.Popen(
            [sys.executable, __file__],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        _servers.append(started)
    return _servers[0]


def _run(order: dict[str, Any]) -> None:
    """Be snakemake, in this child."""
    os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for descriptor, (path, flags) in enumerate([(os.devnull, os.O_RDONLY), (order["output"], os.O_WRONLY)]):
        os.dup2(os.open(path, flags | os.O_CREAT, 0o644), descriptor)
    os.dup2(1, 2)
    random.seed()
    sys.argv = order["command"]
    sys.path[:1] = [str(Path(sys.argv[0]).parent), *filter(None, order["env"].get("PYTHONPATH", "").split(":"))]
    importlib.invalidate_caches()
    importlib.import_module("snakemake.cli").main()


def _installed() -> list[str]:
    """The modules that are loaded here and that no checkout has a copy of."""
    folders = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    return [name for name, file in files.items() if name != "__main__" and file.startswith(folders)]


def _load(names: list[str]) -> None:
    for name in names:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except Exception:
                continue


def _serve() -> None:
    importlib.import_module("snakemake.cli")
    for line in sys.stdin:
        gc.freeze()
        reported, reporting = os.pipe()
        child = os.fork()
        if not child:
            os.close(reported)
            try:
                _run(json.loads(line))
            finally:
                os.write(reporting, json.dumps(_installed()).encode())
                os.close(reporting)
            return
        print(child, flush=True)
        os.close(reporting)
        with os.fdopen(reported) as loaded:
            names = loaded.read()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        _load(json.loads(names or "[]"))


if __name__ == "__main__":
    _serve()
