"""Write report.html, the one file that shows a whole study offline."""

import argparse
from pathlib import Path

from sharebench.core import console
from sharebench.report import page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set: has cells/ and nodes/")
    parser.add_argument("--results", type=Path, required=True, help="has tables/ and figures/, receives report.html")
    arguments = parser.parse_args()
    page.write(arguments.data, arguments.results)


if __name__ == "__main__":
    console.script(main)
