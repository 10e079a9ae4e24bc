"""Joins the parts of a study that was measured in several folders, such as one repeat on each GPU of a host."""

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sharebench.core.files import Refusal
from sharebench.datasets import archive
from sharebench.measure.run import ownership
from sharebench.model.run_record import state_folder
from sharebench.study.cells import Cell
from sharebench.study.study import Study

SHARED_FOLDERS = ("nodes", "calibration")
"""Every part has its own files of these names, which hold for its device; the first part's are kept."""
CELL_FILES = {"raw.json", "telemetry.csv", "run.log"}


class JoinError(Refusal):
    """The parts do not make up the study; one line with what to do."""


def join_parts(study: Study, parts: Sequence[Path]) -> str:
    """Join the parts while no run has the study's results; returns the line to print."""
    results = Path(study.config["results"])
    path = state_folder(results) / "lock"
    lock = ownership.acquire(path)
    if lock is None:
        raise JoinError(f"{results} is in use by {ownership.holder_text(path)}; wait for it to end, or stop it")
    with contextlib.closing(lock):
        join(study, parts, results)
    return f"joined: {len(study.cells)} cells of {len(parts)} parts in {results}"


def join(study: Study, parts: Sequence[Path], results: Path) -> None:
    """Copy every cell of the study into `results` from the part that has it, and the shared folders of the parts.

    Writing the tables checks later that the records belong together. Raises JoinError, ArchiveError, OSError.
    """
    if (results / "cells").exists():
        raise JoinError(f"{results} has cells already; give another folder: --config results=…")
    parts = list(map(archive.verified_folder, parts))
    for part in parts:
        if not (part / "cells").is_dir():
            raise JoinError(f"{part} is not the results of a study; it has no cells/")
    sources = {cell: _find_source(cell, parts) for cell in study.cells}
    missing = [cell for cell, source in sources.items() if source is None]
    if missing:
        first = missing[0].folder.removeprefix("cells/")
        raise JoinError(
            f"{len(missing)} of the study's {len(study.cells)} cells are in none of the parts, such as {first}; "
            "measure them there, or leave them out: exclude"
        )
    for part in reversed(parts):
        for name in SHARED_FOLDERS:
            for file in sorted((part / name).glob("*.json")):
                (results / name).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, results / name)
                # These must be older than all cells, or Snakemake would re-measure the cells.
                os.utime(results / name / file.name, (0, 0))
    # All cells appear at once, so that an interrupted join can be started over.
    building = results / ".joining"
    shutil.rmtree(building, ignore_errors=True)
    for cell, source in sources.items():
        assert source is not None
        shutil.copytree(source / cell.folder, building / cell.folder, ignore=lambda _, names: {*names} - CELL_FILES)
    (building / "cells").rename(results / "cells")
    building.rmdir()


def _find_source(cell: Cell, parts: Sequence[Path]) -> Path | None:
    """The one part that has the cell, or None. Raises JoinError where two have it."""
    found = [part for part in parts if (part / cell.raw).is_file()]
    if len(found) > 1:
        raise JoinError(f"{found[0]} and {found[1]} both have {cell.folder}; remove it from one")
    return found[0] if found else None
