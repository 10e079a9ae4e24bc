"""A cell of the matrix, and its whole plot: one state of the node in one block."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, order=True)
class Cell:
    """One measurement: a point of the matrix and the number of its repeat."""

    strategy: str
    workload: str
    replicas: int
    repeat: int

    @property
    def folder(self) -> str:
        """Path of the cell under the results root."""
        return f"cells/{self.strategy}/{self.workload}/n{self.replicas}/r{self.repeat}"

    @property
    def raw(self) -> str:
        """Path of the cell's record under the results root."""
        return f"{self.folder}/raw.json"

    def __str__(self) -> str:
        return f"{self.strategy} × {self.replicas}, {self.workload}, repeat {self.repeat}"


@dataclass(frozen=True)
class WholePlot:
    """A whole plot of the split-plot design: one node state, newly set up, in one block."""

    strategy: str
    replicas: int | None
    block: int


def cell_from_path(path: str) -> Cell:
    """The cell that a file belongs to; `path` contains `cells/S/W/nN/rR/`. Raises ValueError otherwise."""
    match = re.search(r"cells/([^/]+)/([^/]+)/n(\d+)/r(\d+)/", path)
    if not match:
        raise ValueError(f"{path}: not a cell's file")
    strategy, workload, replicas, repeat = match.groups()
    return Cell(strategy, workload, int(replicas), int(repeat))


def is_excluded(cell: Cell, pattern: str) -> bool:
    """Whether a pattern such as `mps/*/n7` or `*/yolos/n2/r1` matches the cell."""
    path = cell.folder.removeprefix("cells/")
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")


def without_excluded(cells: Iterable[Cell], patterns: Iterable[str]) -> list[Cell]:
    """The cells that no pattern matches, in order."""
    return [cell for cell in cells if not any(is_excluded(cell, pattern) for pattern in patterns)]


def pair_name(one: str, other: str) -> str:
    """Name of the pair of these workloads, in either order."""
    return "+".join(sorted((one, other)))
