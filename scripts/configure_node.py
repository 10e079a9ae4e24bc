"""Set the node to a strategy once, so that one that cannot be set up fails once."""

import argparse
import sys
from pathlib import Path

from sharebench.run import jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    parser.add_argument("--strategy", required=True, help="key of the strategy catalogue")
    parser.add_argument("--out", type=Path, required=True, help="nodes/{strategy}.json")
    arguments = parser.parse_args()
    job = jobs.configure_node(arguments.results, arguments.strategy, arguments.out)
    return jobs.guarded(arguments.results, job)


if __name__ == "__main__":
    sys.exit(main())
