"""The promises of a conformance study, for a terminal."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from sharebench.core.console import format_count
from sharebench.model.promises import BROKEN, NOT_MEASURED, closing_line
from sharebench.model.workload import Workload
from sharebench.read.grouping import group_by

MODULE = "conformance"
COLUMNS = ("promise", "strategy", "replicas", "measured", "unit", "limit", "verdict")


class TestedPromises(NamedTuple):
    table: str
    problems: list[str]
    """A line for each promise that is broken, and for each reason why some were not measured."""
    closing_line: str
    exit_code: int
    """1 where one is broken, else 2 where one that is promised was not measured or none is there, else 0."""


def promise_workloads(catalogue: Mapping[str, Workload]) -> set[str]:
    """The workloads that test promises, which no advice is about."""
    return {name for name, entry in catalogue.items() if entry.module == MODULE}


def read_promises(tables: Path) -> TestedPromises:
    with (tables / "conformance.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return TestedPromises("", [], "no promise was tested", 2)
    table = tabulate([[row[name] for name in COLUMNS] for row in rows], COLUMNS, disable_numparse=True)
    verdicts = [row["verdict"] for row in rows]
    exit_code = 1 if BROKEN in verdicts else 2 * (NOT_MEASURED in verdicts)
    return TestedPromises(table, list(_problems(rows)), closing_line(verdicts), exit_code)


def _problems(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    which = "{promise}, {strategy} × {replicas}".format_map
    for row in rows:
        if row["verdict"] == BROKEN:
            yield f"{BROKEN}: {which(row)}: {float(row['measured']):.3g} {row['unit']}, promised: {row['limit']}"
    missing = (row for row in rows if row["verdict"] == NOT_MEASURED)
    for reason, affected in group_by(missing, lambda row: row["reason"]).items():
        yield f"{NOT_MEASURED}: {first_of(which(affected[0]), len(affected))}: {reason}"


def first_of(first: str, count: int) -> str:
    """`a and 2 others`."""
    return f"{first} and {format_count(count - 1, 'other', 'others')}" if count > 1 else first
