"""Tables as a test reads them."""

import csv
from pathlib import Path


def rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, all text."""
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))
