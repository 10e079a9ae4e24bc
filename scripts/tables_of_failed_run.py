"""Table the cells that a failed run did measure, under partial/."""

import argparse
from pathlib import Path

from sharebench.analysis.aggregate import partial
from sharebench.core import console


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    print(partial(parser.parse_args().results))
    return 0


if __name__ == "__main__":
    console.script(main)
