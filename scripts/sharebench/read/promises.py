"""The promises of a conformance study, for a terminal."""

import csv
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from sharebench.model.promises import BROKEN, NOT_MEASURED, closing_line

COLUMNS = ("promise", "strategy", "replicas", "measured", "unit", "limit", "verdict")


class TestedPromises(NamedTuple):
    table: str
    closing_line: str
    exit_code: int
    """1 where one is broken, else 2 where one that is promised was not measured or none is there, else 0."""


def read_promises(tables: Path) -> TestedPromises:
    with (tables / "conformance.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return TestedPromises("", "no promise was tested", 2)
    table = tabulate([[row[name] for name in COLUMNS] for row in rows], COLUMNS, disable_numparse=True)
    verdicts = [row["verdict"] for row in rows]
    return TestedPromises(table, closing_line(verdicts), 1 if BROKEN in verdicts else 2 * (NOT_MEASURED in verdicts))
