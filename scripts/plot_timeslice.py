"""Draw who was on the GPU when, as svg, pdf and png."""

import argparse
from pathlib import Path

from sharebench.core import console
from sharebench.figures import timeslice
from sharebench.figures.page import save
from sharebench.figures.style import theme


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="has nodes/ and tables/, receives figures/")
    parser.add_argument("--catalogue", nargs="+", required=True, help="all strategies, in the order of their colours")
    arguments = parser.parse_args()
    with theme():
        save(timeslice.draw(arguments.results, arguments.catalogue), arguments.results / "figures", "timeslice")


if __name__ == "__main__":
    console.script(main)
