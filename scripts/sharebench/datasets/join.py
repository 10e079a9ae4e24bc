"""Joins the parts of a study that was measured in several folders, such as one repeat on each GPU of a host."""

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sharebench.core.files import Refusal, read_json, write_json
from sharebench.datasets import archive
from sharebench.datasets.dataset import EARLIER_CODES
from sharebench.measure.run import ownership
from sharebench.model.records.record import RecordMismatch, check_current
from sharebench.model.run_record import state_folder
from sharebench.study.cells import Cell
from sharebench.study.public import accepted_spec
from sharebench.study.study import Study

SHARED_FOLDERS = ("nodes", "calibration")
"""Every part has its own files of these names, which hold for its device; the first part's are kept."""
CELL_FILES = {"raw.json", "telemetry.csv", "run.log"}
EarlierCodes = Mapping[str, Sequence[str]]
"""By workload, fingerprints of earlier code whose records count too."""
Counts = Callable[[Path, str], bool]
"""Whether a record or calibration of a workload is of code that counts."""


class JoinError(Refusal):
    """The parts do not make up the study; one line with what to do."""


def join(study: Study, parts: Sequence[Path], results: Path, earlier_codes: EarlierCodes | None = None) -> str:
    """Copy every cell of the study into `results` from the part that has it, and the shared folders of the parts.

    Returns the line to print. Writing the tables checks later that the records belong together. With `earlier_codes`
    files of other code than today's and those are passed over. Raises JoinError, ArchiveError, OSError; a refused join
    makes nothing in `results`.
    """

    def counts(file: Path, workload: str) -> bool:
        if earlier_codes is None:
            return True
        return read_json(file, "code")["code"] in (study.code(workload), *earlier_codes.get(workload, ()))

    if (results / "cells").exists():
        raise JoinError(f"{results} has cells already; give another folder: --config results=…")
    parts = list(map(archive.verified_folder, parts))
    sources = _sources(study, parts, counts)
    path = state_folder(results) / "lock"
    lock = ownership.acquire(path)
    if lock is None:
        raise JoinError(f"{results} is in use by {ownership.holder_text(path)}; wait for it to end, or stop it")
    with contextlib.closing(lock):
        _copy(sources, [part for part in parts if part in sources.values()], results, counts)
        if earlier_codes:
            write_json(results / EARLIER_CODES, earlier_codes)
    return f"joined: {len(study.cells)} cells of {len(parts)} parts in {results}"


def _sources(study: Study, parts: Sequence[Path], counts: Counts) -> dict[Cell, Path]:
    """The part that has each cell. Raises JoinError."""
    for part in parts:
        if not (part / "cells").is_dir():
            raise JoinError(f"{part} is not the results of a study; it has no cells/")
    sources: dict[Cell, Path] = {}
    for cell in study.cells:
        found = [part for part in parts if (part / cell.raw).is_file() and counts(part / cell.raw, cell.workload)]
        if len(found) > 1:
            raise JoinError(f"{found[0]} and {found[1]} both have {cell.folder}; remove it from one")
        if found:
            sources[cell] = found[0]
    if missing := [cell for cell in study.cells if cell not in sources]:
        first = missing[0].folder.removeprefix("cells/")
        raise JoinError(
            f"{len(missing)} of the study's {len(study.cells)} cells are in none of the parts, such as {first}; "
            "measure them there, or leave them out: exclude"
        )
    for cell, part in sources.items():
        record = read_json(part / cell.raw, "spec", "code")
        try:
            check_current(record, accepted_spec(study.spec(cell), record), record["code"])
        except RecordMismatch as difference:
            raise JoinError(f"{part / cell.raw} is of another study: {difference}; leave its part out") from None
    return sources


def _copy(sources: Mapping[Cell, Path], parts: Sequence[Path], results: Path, counts: Counts) -> None:
    for part in reversed(parts):
        for name in SHARED_FOLDERS:
            for file in sorted((part / name).glob("*.json")):
                if name == "calibration" and not counts(file, file.stem):
                    continue
                (results / name).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, results / name)
                # These must be older than all cells, or Snakemake would re-measure the cells.
                os.utime(results / name / file.name, (0, 0))
    # All cells appear at once, so that an interrupted join can be started over.
    building = results / ".joining"
    shutil.rmtree(building, ignore_errors=True)
    for cell, source in sources.items():
        shutil.copytree(source / cell.folder, building / cell.folder, ignore=lambda _, names: {*names} - CELL_FILES)
    (building / "cells").rename(results / "cells")
    building.rmdir()
