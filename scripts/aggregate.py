"""Check that all records belong together and write the tables and the manifest."""

import sys
from pathlib import Path

from sharebench.analysis.aggregate import aggregate
from sharebench.analysis.checker import Refused
from sharebench.core import console


def main(data: Path, results: Path, tabled: Path) -> int:
    try:
        aggregate(data, results, tabled)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    console.script(main)
