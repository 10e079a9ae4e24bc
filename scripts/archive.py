"""Archive a finished study as one zip file."""

import argparse
from pathlib import Path

from sharebench.core import console
from sharebench.datasets import ro_crate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set: has cells/ and nodes/")
    parser.add_argument("--results", type=Path, required=True, help="has tables/ and report.html")
    parser.add_argument("--out", type=Path, required=True, help="the archive")
    arguments = parser.parse_args()
    ro_crate.write(arguments.data, arguments.results, arguments.out)


if __name__ == "__main__":
    console.script(main)
