"""Tenants as processes of this host, for tests: tiny workloads, and programs in their place."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import psutil
from dying import is_dying
from unit import factories
from unit.studies import study_with

from sharebench.measure.cell.cell import CellRun
from sharebench.measure.nodes.contract import Grant
from sharebench.measure.nodes.host.cpu import CpuNode
from sharebench.measure.nodes.host.processes import ProcessTenants
from sharebench.study.cells import Cell
from sharebench.study.study import Study

# For a start, an answer, or a state: only a defect takes so long.
PATIENCE_SECONDS = 120.0
SMALL = {"workload_catalogue.matmul.params": {"size": 32}, "workload_catalogue.matmul.min_window_seconds": 0.1}
QUICK = {"warmup": {"min_iterations": 4, "max_seconds": 2, "tolerance_percent": 50}, "window_seconds": 0.2}
CORES = sorted(os.sched_getaffinity(0))

FOREVER = "import time; time.sleep(600)"


def cpu_study(**changes: Any) -> Study:
    """A study of tiny matmuls and windows on this host."""
    return study_with({"node": "cpu", "repeats": 1, "workloads": ["matmul"]} | SMALL | QUICK | changes)


def cell_of(
    tmp_path: Path,
    planned: Study,
    cell: Cell,
    start_seconds: float = PATIENCE_SECONDS,
    capacity_hz: float = 100.0,
) -> dict[str, Any]:
    """The record of this cell on this host, after writing it."""
    measured, _ = run_of(tmp_path, planned, cell, start_seconds, capacity_hz).measure()
    return cast(dict[str, Any], factories.write_and_read(tmp_path / "raw.json", measured))


def run_of(
    tmp_path: Path,
    planned: Study,
    cell: Cell,
    start_seconds: float = PATIENCE_SECONDS,
    capacity_hz: float = 100.0,
) -> CellRun:
    node = CpuNode(planned.config["cpu"], tmp_path / "node")
    timeouts = {"start_seconds": start_seconds, "record_seconds": PATIENCE_SECONDS}
    settings: Any = {"timeouts": timeouts, "cell_folder": cell.folder}
    reference = {"output_digest": None, "roofs": None, "idle_power_watts": None}
    known: Any = {
        name: reference | {"capacity_hz": capacity_hz, "conditions": factories.QUIET}
        for name in planned.calibrated_workloads(cell)
    }
    return CellRun(node, planned.strategies[cell.strategy], planned.spec(cell), 1, settings, known)


# Overwrites the environment that /proc shows, as a program does that sets a long title, and prints its pid.
HIDES = """
import ctypes, os
start, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(start, 0, end - start)
print(os.getpid(), flush=True)
input()
"""
# Starts a program with its own environment, and waits.
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@contextlib.contextmanager
def hidden_child(**environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with this environment, and the pid of its child, which hides the same."""
    command = [sys.executable, "-c", PARENT, HIDES]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            assert psutil.Process(pid).environ() == {}
            yield parent, pid
        finally:
            for each in (pid, parent.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)


def no_sampler(*_: object) -> Any:
    """In place of a sampler, for tenants that are not sampled."""
    raise AssertionError


def naps_of(tmp_path: Path) -> str:
    """A number of seconds that no other test's `sleep` has as its argument."""
    return f"986.{zlib.crc32(str(tmp_path).encode())}"


def sleeping(seconds: str) -> list[psutil.Process]:
    """Processes that sleep for that long."""
    found = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", seconds]]
    return [each for each in found if each.status() != psutil.STATUS_ZOMBIE]


class Misbehaving(ProcessTenants):
    """Tenants of which some run another program."""

    programs: Sequence[str | None] = ()

    def _process(self, grants: Sequence[Grant], home: Path) -> Any:
        process, program = super()._process(grants, home), self.programs[grants[0].index]
        if program is not None:
            cast(Any, process).command = lambda: [sys.executable, "-c", program]
        return process


def command_of(tenants: ProcessTenants, *grants: Grant) -> Any:
    """The command line of the process with these grants."""
    return cast(Any, ProcessTenants._process(tenants, grants, tenants.scratch / "0")).command()


def wait_for(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until the condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that is being killed does not, nor does a zombie."""
    with contextlib.suppress(psutil.Error, OSError):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and not is_dying(pid)
    return False
