"""Write down what is shared: the node's facts."""

import argparse
import sys
from pathlib import Path

from sharebench.run import jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    parser.add_argument("--out", type=Path, required=True, help="nodes/device.json")
    arguments = parser.parse_args()
    return jobs.guarded(arguments.results, jobs.characterise_node(arguments.results, arguments.out))


if __name__ == "__main__":
    sys.exit(main())
