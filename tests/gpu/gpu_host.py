"""Helpers of the tests on a GPU: runs of the pipeline, the owner's settings, leftovers on the host."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil
import pynvml

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.read.gates.gates import read_judged

REPOSITORY = Path(__file__).resolve().parents[2]
RUN_SECONDS = 300


def start(folder: Path, *targets: str) -> subprocess.Popen[bytes]:
    """Start `snakemake` on the study in that folder, in its own process group."""
    command = [sys.executable, "-m", "snakemake", *targets, "--snakefile", str(REPOSITORY / "Snakefile")]
    command += ["--directory", str(folder), "--cores", "1", "--configfile", str(folder / "study.yaml")]
    with (folder / "out").open("ab") as out:
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def run(folder: Path, *targets: str, seconds: float = RUN_SECONDS) -> int:
    """Run `snakemake` to its end; returns its exit code."""
    process = start(folder, *targets)
    try:
        return process.wait(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def output_of(folder: Path) -> str:
    return (folder / "out").read_text(errors="replace")


def gpu_settings() -> list[Any]:
    """The owner's settings of each GPU: compute mode, MIG mode, power limit, persistence."""

    def asked(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except pynvml.NVMLError as error:
            return str(error)

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        questions = (
            pynvml.nvmlDeviceGetComputeMode,
            pynvml.nvmlDeviceGetMigMode,
            pynvml.nvmlDeviceGetPowerManagementLimit,
            pynvml.nvmlDeviceGetPersistenceMode,
        )
        return [asked(partial(question, handle)) for handle in handles for question in questions]
    finally:
        pynvml.nvmlShutdown()


def gpu_pids() -> list[int]:
    """Processes that have a context on any GPU."""
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [process.pid for handle in handles for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    finally:
        pynvml.nvmlShutdown()


def our_processes() -> dict[int, str]:
    """Living processes of runs of the pipeline, and MPS daemons and servers: command line, or `mps`, by pid."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            line = " ".join(process.cmdline())
            is_mps = process.name().startswith("nvidia-cuda-mps")
            if is_mps or RUN_ID_VARIABLE in process.environ() or "-m tenant" in line:
                found[process.pid] = "mps" if is_mps else line
    return found


def our_folders() -> list[Path]:
    """Our folders on the host: scratch of tenants, and directories of daemons."""
    return [path for path in Path("/tmp").glob("sharebench-*") if path.is_dir()]


def record_of(results: Path, strategy: str, workload: str, replicas: int) -> dict[str, Any]:
    """The record of a cell's first repeat, with its verdicts."""
    path = results / f"cells/{strategy}/{workload}/n{replicas}/r1/raw.json"
    return cast(dict[str, Any], read_judged(path))


def assert_valid(record: dict[str, Any]) -> None:
    """Assert that the cell is measured and valid, and that its evidence holds."""
    assert (record["status"], record["reason"]) == ("ok", None)
    assert record["evidence"]
    assert [item for item in record["evidence"] if not item["holds"]] == []
    assert [gate for gate in record["gates"] if gate["severity"] == "invalid" and not gate["passed"]] == []


def assert_clean_host() -> None:
    """Assert that no process, daemon or folder of a run is left; a killed process may take a moment to vanish."""
    deadline = time.monotonic() + 5
    while (our_processes() or gpu_pids() or our_folders()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert our_processes() == {}
    assert gpu_pids() == []
    assert our_folders() == []
