"""The run record (`.sharebench/run.json`), and how the processes and scratch folders of a run are known."""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from sharebench.core.config_nodes import NodeOptions
from sharebench.core.files import DamagedFile, read_json
from sharebench.core.study_config import StudyConfig

RUN_ID_VARIABLE = "SHAREBENCH_RUN_ID"
DEVICE_VARIABLE = "SHAREBENCH_DEVICE"
"""Number of the device that a job and what it starts are about, where a run measures on several."""
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4,16}")
STATE_FOLDER = ".sharebench"
# Ctrl-C, a polite kill, and a terminal that is closed.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Overhead(TypedDict):
    """What cells took beyond their windows, over all runs in these results."""

    cells: int
    seconds: float


class Failure(TypedDict):
    """The last harness failures in a row with one cause."""

    cause: str | None
    count: int


class DeviceEntry(TypedDict):
    """One of several devices of a run: its number in the config, the section that would name it alone, its hashed
    identity, the cores that go with it, and its failures as those of a whole run."""

    number: int
    options: NodeOptions
    device: str
    cores: list[int] | None
    failure: Failure | None
    down: str | None


class RunRecord(TypedDict, total=False):
    """`.sharebench/run.json`; without keys where there was never a run."""

    run_id: str
    pid: int
    started_epoch_seconds: float
    results: str
    ended: bool
    done: int
    planned: int
    first_cell_epoch_seconds: float | None
    overhead: Overhead | None
    failure: Failure | None
    down: str | None
    devices: list[DeviceEntry]
    """Where the study is measured on several at the same time."""
    placement: dict[str, int]
    """Number of the device by block and workload, as in 2/matmul."""
    config: StudyConfig
    node_kind: str
    order: str
    not_shown: str
    argv: list[str]
    jobs: dict[str, int]
    git_commit: str | None
    git_dirty: bool | None
    created_epoch_seconds: float
    """When the manifest of a data set was made that is rebuilt."""


def state_folder(results: Path) -> Path:
    """Folder under the results root for locks, the run record and the node's state."""
    return results / STATE_FOLDER


def read_run(results: Path) -> RunRecord:
    """The run record of these results; empty when there was never a run, or when the record is damaged."""
    try:
        record: RunRecord = read_json(state_folder(results) / "run.json", "run_id", "ended")
    except (FileNotFoundError, DamagedFile):
        return {}
    return record


def scratch_folders(run_id: str | None) -> Iterator[Path]:
    """The scratch folders of that run's tenants that are still there; in a job about a device, of the tenants there."""
    return Path(tempfile.gettempdir()).glob(f"{scratch_prefix(run_id)}*")


def scratch_prefix(run_id: str | None) -> str:
    """How the names of scratch folders begin, so that a later run knows those of a dead one."""
    number = os.environ.get(DEVICE_VARIABLE)
    return f"sharebench-{run_id}-" + (f"device{number}-" if number else "")
