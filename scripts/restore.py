"""Bring the node back to its original state."""

import argparse
import sys
from pathlib import Path

from sharebench.run import jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    results = parser.parse_args().results
    return jobs.guarded(results, jobs.restore(results))


if __name__ == "__main__":
    sys.exit(main())
