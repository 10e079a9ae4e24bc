"""The run record (`.sharebench/run.json`)."""

import contextlib
import re
from pathlib import Path
from typing import Any, TypedDict

from sharebench.core.files import DamagedFile, read_json
from sharebench.model.config_nodes import NodeOptions

RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4,16}")
STATE_FOLDER = ".sharebench"
ALWAYS_THERE = ("run_id", "ended", "done", "first_cell_epoch_seconds", "failure", "down", "overhead")


class Overhead(TypedDict):
    """Time that cells took beyond their windows, over all runs in these results."""

    cells: int
    seconds: float


class Failure(TypedDict):
    """The most recent consecutive harness failures with the same cause, by the output of the job that failed."""

    cause: str
    outputs: list[str]


class DeviceEntry(TypedDict):
    """One of several devices of a run: its number in the config, the config section that names it alone, its hashed
    identity, its cores, and its failures as in RunRecord."""

    number: int
    options: NodeOptions
    device: str
    cores: list[int] | None
    failure: Failure | None
    down: str | None


class RunRecord(TypedDict, total=False):
    """`.sharebench/run.json`; empty where there was never a run."""

    run_id: str
    pid: int
    started_epoch_seconds: float
    results: str
    locks: dict[str, str]
    """The identity of each lock file that the run holds, by path."""
    ended: bool
    done: int
    planned: int
    first_cell_epoch_seconds: float | None
    overhead: Overhead | None
    failure: Failure | None
    down: str | None
    devices: list[DeviceEntry]
    """Devices that the study is measured on at the same time; absent for a single one."""
    placement: dict[str, int]
    """Number of the device by block and workload, such as 2/matmul."""
    config: dict[str, Any]
    """By `study_config.to_json`."""
    node_kind: str
    order: str
    not_shown: str
    argv: list[str]
    jobs: dict[str, int]
    git_commit: str | None
    git_dirty: bool | None
    created_epoch_seconds: float
    """When the manifest of the data set that is rebuilt was made."""


def state_folder(results: Path) -> Path:
    """The folder below the results root for locks, the run record and the node's state."""
    return results / STATE_FOLDER


def read_run(results: Path) -> RunRecord:
    """The run record of these results; empty if there was never a run. Raises DamagedFile."""
    try:
        record: RunRecord = read_json(state_folder(results) / "run.json", *ALWAYS_THERE)
    except FileNotFoundError:
        return {}
    return record


def last_run(results: Path) -> RunRecord:
    """The run record of an earlier run, which only helps; empty if it is damaged, too."""
    with contextlib.suppress(DamagedFile):
        return read_run(results)
    return {}
