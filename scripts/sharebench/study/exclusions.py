"""Cells that a config leaves out of its matrix, by `exclude`."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from sharebench.study.cells import Cell


def matches(cell: Cell, pattern: str) -> bool:
    """Whether the cell is among those that an entry such as `mps/*/n7` or `*/yolos/n2/r1` names."""
    path = cell.folder.removeprefix("cells/")
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")


def kept(cells: Iterable[Cell], patterns: Iterable[str]) -> list[Cell]:
    """The cells that none of the patterns names, in their order."""
    return [cell for cell in cells if not any(matches(cell, pattern) for pattern in patterns)]
