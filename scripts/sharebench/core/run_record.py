"""The run record (`.sharebench/run.json`), and how the processes and scratch folders of a run are known."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sharebench.core.files import Damaged, read_json

RUN_ID_VARIABLE = "SHAREBENCH_RUN_ID"
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
STATE_FOLDER = ".sharebench"
RUN_TYPES: dict[str, tuple[type, ...]] = {
    **{"run_id": (str,), "ended": (bool,), "done": (int,), "planned": (int,), "config": (dict,), "jobs": (dict,)},
    **{"argv": (list,), "overhead": (dict, type(None)), "failure": (dict, type(None)), "down": (str, type(None))},
}
# Ctrl-C, a polite kill, and a terminal that is closed.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def state_folder(results: Path) -> Path:
    """Folder under the results root for locks, the run record and the node's state."""
    return results / STATE_FOLDER


def read_run(results: Path) -> dict[str, Any]:
    """The run record of these results; empty when there was never a run, or when the record is damaged."""
    try:
        record: dict[str, Any] = read_json(state_folder(results) / "run.json", "run_id", "ended")
    except (FileNotFoundError, Damaged):
        return {}
    is_sound = all(isinstance(record.get(key, kinds[0]()), kinds) for key, kinds in RUN_TYPES.items())
    # A mean of something.
    overhead = (is_sound and record.get("overhead")) or {"cells": 1, "seconds": 0.0}
    numbers = [overhead.get(key) for key in ("cells", "seconds")]
    is_sound = is_sound and all(isinstance(number, int | float) for number in numbers) and overhead["cells"] > 0
    return record if is_sound else {}


def scratch_folders(run_id: str | None) -> Iterator[Path]:
    """The scratch folders of that run's tenants that are still there."""
    return Path(tempfile.gettempdir()).glob(f"{scratch_prefix(run_id)}*")


def scratch_prefix(run_id: str | None) -> str:
    """How the names of scratch folders begin, so that a later run knows those of a dead one."""
    return f"sharebench-{run_id}-"
