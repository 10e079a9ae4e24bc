"""Draw the figures of a study as svg, pdf and png."""

import argparse
from pathlib import Path

from sharebench.core import console
from sharebench.figures import catalogue, draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set: has cells/ and nodes/")
    parser.add_argument("--results", type=Path, required=True, help="has tables/, receives figures/")
    parser.add_argument("--figures", nargs="+", choices=list(catalogue.ENTRIES), required=True, help="what to draw")
    arguments = parser.parse_args()
    for name in arguments.figures:
        draw.figure(name, arguments.data, arguments.results)


if __name__ == "__main__":
    console.script(main)
