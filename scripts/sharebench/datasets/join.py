"""Parts of one study, measured in several folders, put together: on a host with several GPUs, a repeat on each."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sharebench.core.files import Refusal
from sharebench.core.study_config import StudyConfig
from sharebench.study.cells import Cell
from sharebench.study.study import Study

OF_ALL = ("nodes", "calibration")


class NotJoined(Refusal):
    """The parts are not the study; one line with what to do."""


def join_parts(config: StudyConfig, results: Path) -> str:
    """`join` the parts that the config names; what is said of it."""
    study, parts = Study(config), [Path(part) for part in config["parts"]]
    try:
        join(study, parts, results)
    except OSError as error:
        raise NotJoined(str(error)) from None
    return (
        f"joined: {len(study.cells)} cells of {len(parts)} parts in {results}\n"
        "tables, figures and report: the same command without `join`"
    )


def join(study: Study, parts: Sequence[Path], results: Path) -> None:
    """Copy every cell of the study from the part that has it into `results`, and the parts' nodes and calibrations.

    Of what all parts have, such as a calibration, the first part's is kept: it holds for that device only. That
    the records belong together is checked when the tables are written. Raises NotJoined, OSError.
    """
    if (results / "cells").exists():
        raise NotJoined(f"{results} has cells already; give another folder: --config results=…")
    sources = {cell: _source(cell, parts) for cell in study.cells}
    missing = [cell for cell, source in sources.items() if source is None]
    if missing:
        first = missing[0].folder.removeprefix("cells/")
        raise NotJoined(
            f"{len(missing)} of the study's {len(study.cells)} cells are in none of the parts, such as {first}; "
            "measure them there, or leave them out: exclude"
        )
    for part in reversed(parts):
        for kind in OF_ALL:
            for file in sorted((part / kind).glob("*.json")):
                (results / kind).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, results / kind)
                # Older than all cells, which Snakemake would re-measure otherwise.
                os.utime(results / kind / file.name, (0, 0))
    # All cells appear at once, so that an interrupted join is started over.
    building = results / ".joining"
    shutil.rmtree(building, ignore_errors=True)
    for cell, source in sources.items():
        assert source is not None
        shutil.copytree(source / cell.folder, building / cell.folder)
    (building / "cells").rename(results / "cells")
    building.rmdir()


def _source(cell: Cell, parts: Sequence[Path]) -> Path | None:
    """The one part that has the cell, None where none has."""
    found = [part for part in parts if (part / cell.raw).is_file()]
    if len(found) > 1:
        raise NotJoined(f"{found[0]} and {found[1]} both have {cell.folder}; remove it from one")
    return found[0] if found else None
