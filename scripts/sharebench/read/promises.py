"""The promises of a conformance study, for a terminal."""

import csv
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from sharebench.core.files import Refusal
from sharebench.model.promises import BROKEN, NOT_MEASURED, closing_line

COLUMNS = ("promise", "strategy", "replicas", "measured", "unit", "limit", "verdict")


class TestedPromises(NamedTuple):
    table: str
    closing_line: str
    exit_code: int
    """1 where one is broken, else 2 where one that is promised was not measured, else 0."""


def read_promises(results: Path) -> TestedPromises:
    """Raises Refusal where the folder has no promises."""
    try:
        with (results / "tables" / "conformance.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise Refusal(
            f"no tested promises in {results} ({error.filename} is missing); measure them: "
            "snakemake --configfile config/conformance.yaml"
        ) from None
    table = tabulate([[row[name] for name in COLUMNS] for row in rows], COLUMNS, disable_numparse=True)
    verdicts = [row["verdict"] for row in rows]
    return TestedPromises(table, closing_line(verdicts), 1 if BROKEN in verdicts else 2 * (NOT_MEASURED in verdicts))
