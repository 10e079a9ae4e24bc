"""Check that all records belong together and write the tables and the manifest."""

import argparse
import sys
from pathlib import Path

from sharebench.analysis.aggregate import Refused, aggregate
from sharebench.core import console


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set with cells/ and nodes/")
    parser.add_argument("--results", type=Path, required=True, help="results root that receives tables/")
    parser.add_argument("--tabled", type=Path, required=True, help="empty file, named by what the tables hold")
    arguments = parser.parse_args()
    try:
        aggregate(arguments.data, arguments.results, arguments.tabled)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    console.script(main)
