"""Fit the scaling model of a study, and write what it predicts and what suits which workload."""

import argparse
import json
from pathlib import Path

from sharebench.analysis.decide import decide
from sharebench.core import console


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set: has cells/ and nodes/")
    parser.add_argument(
        "--results", type=Path, required=True, help="results root: has tables/, and receives more there"
    )
    parser.add_argument("--classes", type=json.loads, required=True, help="declared class of each workload, or auto")
    arguments = parser.parse_args()
    decide.write_model(decide.read(arguments.data, arguments.results), arguments.classes)


if __name__ == "__main__":
    console.script(main)
