"""Cells that a config leaves out of its matrix, by `exclude`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from sharebench.config_words import shown

if TYPE_CHECKING:
    from sharebench.matrix import Cell


def matches(cell: Cell, pattern: str) -> bool:
    """Whether the cell is among those that an entry such as `mps/*/n7` or `*/yolos/n2/r1` names."""
    path = cell.folder.removeprefix("cells/")
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")


def kept(cells: Iterable[Cell], patterns: Iterable[str]) -> list[Cell]:
    """The cells that none of the patterns names, in their order."""
    return [cell for cell in cells if not any(matches(cell, pattern) for pattern in patterns)]


def _is_left_out_anyway(pattern: str, config: dict[str, Any]) -> bool:
    """Whether it is about a strategy or a workload of the catalogue that the study is without, as a part of a whole is.

    Pairs and faults are named by their workloads, of which the study may have others.
    """
    strategy, workload = pattern.split("/")[:2]
    return any(
        name in config[catalogue] and name not in config[chosen]
        for name, catalogue, chosen in (
            (strategy, "strategy_catalogue", "strategies"),
            (workload, "workload_catalogue", "workloads"),
        )
    )


def problems(config: dict[str, Any]) -> Iterator[str]:
    """Entries that leave nothing out, or nothing over, of a config that is sound otherwise."""
    from sharebench.matrix import Study  # imported late: the matrix is made by this module

    if not config["exclude"]:
        return
    everything = Study(config | {"exclude": []}).cells
    for pattern in config["exclude"]:
        if not _is_left_out_anyway(pattern, config) and not any(matches(cell, pattern) for cell in everything):
            example = everything[-1].folder.removeprefix("cells/")
            yield f"exclude: {shown(pattern)} is no cell of this study; one is {example}; change it, or remove it"
    if not Study(config).requested:
        yield f"exclude: {shown(config['exclude'])} leaves no cell; remove an entry"
