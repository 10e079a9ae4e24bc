"""Answer what the config asks of finished results: cost, capacity and advice; prints the advice."""

import argparse
import json
import sys
from pathlib import Path

from sharebench.analysis.decide import decide
from sharebench.core import console


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set: has cells/ and nodes/")
    parser.add_argument(
        "--results", type=Path, required=True, help="results root: has tables/, and receives more there"
    )
    parser.add_argument("--question", type=json.loads, required=True, help="slo_ms, tenants, isolation, price_per_hour")
    parser.add_argument("--decided", type=Path, required=True, help="empty file, named by the question")
    arguments = parser.parse_args()
    try:
        results = decide.read(arguments.data, arguments.results)
        print(decide.decide(results, arguments.question, arguments.decided))
    except decide.Undecided as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    console.script(main)
