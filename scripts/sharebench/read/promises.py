"""The promises of a conformance study, for a terminal."""

import csv
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from sharebench.core.files import Refusal
from sharebench.model.promises import BROKEN, KEPT, NOT_MEASURED, NOT_PROMISED, closing_line

COLUMNS = ("promise", "strategy", "replicas", "measured", "unit", "limit", "verdict")
VERDICTS = (KEPT, BROKEN, NOT_PROMISED, NOT_MEASURED)
REMEDY = "remove the file, and run the study again, which rebuilds it"


class TestedPromises(NamedTuple):
    table: str
    closing_line: str
    exit_code: int
    """1 where one is broken, else 2 where one that is promised was not measured or none is there, else 0."""


def read_promises(results: Path) -> TestedPromises:
    """Raises Refusal where the folder has no table of promises, or a damaged one."""
    path = results / "tables" / "conformance.csv"
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise Refusal(
            f"no tested promises in {results} ({error.filename} is missing); measure them: "
            "snakemake --configfile config/conformance.yaml"
        ) from None
    if not rows:
        return TestedPromises("", f"no promise was tested: {path} has no rows", 2)
    if missing := [name for name in COLUMNS if name not in rows[0]]:
        raise Refusal(f"{path} has no column {missing[0]}; {REMEDY}")
    if others := [row["verdict"] for row in rows if row["verdict"] not in VERDICTS]:
        raise Refusal(f"{path}: {others[0]!r} is not a verdict ({', '.join(VERDICTS)}); {REMEDY}")
    table = tabulate([[row[name] for name in COLUMNS] for row in rows], COLUMNS, disable_numparse=True)
    verdicts = [row["verdict"] for row in rows]
    return TestedPromises(table, closing_line(verdicts), 1 if BROKEN in verdicts else 2 * (NOT_MEASURED in verdicts))
