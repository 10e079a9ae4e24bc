"""A disk that is full while a record is written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline.harness import Checkout

from sharebench.core.files import REPOSITORY

BLOCK = 4096


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    # A process that has just ended may still hold it.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave_bytes: int) -> Path:
    """Fill the disk up to this number of free bytes; deleting the returned file frees the space."""
    ballast = folder / f"ballast-{leave_bytes}"
    free = os.statvfs(folder).f_bavail * BLOCK - leave_bytes
    ballast.write_bytes(bytes(free))
    return ballast


@pytest.mark.root
def test_a_full_disk_leaves_no_partial_file_and_a_rerun_completes(untouched: Checkout, tiny_disk: Path) -> None:
    results = tiny_disk / "results"
    record = results / "cells/mps/alpha/n96/r1/raw.json"
    options: dict[str, Any] = {
        "config": [f"results={results}", "strategies=[mps]", "replicas=[96]", "workloads=alpha", "repeats=1"],
        "results": results,
    }
    assert untouched.run(str(record), **options).ok().cells == {"mps/alpha/96/1"}
    # Enough for what the start of a run writes, but not for the record.
    free_bytes = (results / ".sharebench/run.json").stat().st_size + 4 * BLOCK
    assert record.stat().st_size > free_bytes + BLOCK
    record.unlink()

    ballast = fill(tiny_disk, free_bytes)
    failed = untouched.run(str(record), **options)
    assert failed.code == 1
    assert failed.failed == {"run_cell": {"mps/alpha/96/1"}}
    assert f"{results}: no space left on its disk; free some\n" in failed.out
    assert "Traceback" not in failed.out
    assert not record.exists()
    assert not list(results.rglob("*.part"))

    rest = fill(tiny_disk, 0)
    refused = untouched.run(str(record), **options)
    assert refused.code == 1
    assert refused.jobs == {}
    assert refused.out.splitlines()[-1] == f"not started: {results} cannot be written to: No space left on device"

    ballast.unlink()
    rest.unlink()
    assert untouched.run(str(record), **options).ok().cells == {"mps/alpha/96/1"}


@pytest.mark.root
def test_a_full_disk_under_the_tables_is_one_line(finished: Checkout, tiny_disk: Path) -> None:
    """As the rule calls the job; the disk has room for the cells alone."""
    results = tiny_disk / "results"
    (results / ".sharebench").mkdir(parents=True)
    shutil.copy(finished.results / ".sharebench/run.json", results / ".sharebench")
    fill(tiny_disk, 4 * BLOCK)
    where = ["--data", finished.results, "--results", results, "--tabled", results / "tabled/now"]
    job = [sys.executable, str(REPOSITORY / "scripts/job.py"), "aggregate", *map(str, where)]
    ended = subprocess.run(job, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, f"{results}: No space left on device\n")
