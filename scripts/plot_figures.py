"""Draw the figures of a study as svg, pdf and png."""

from pathlib import Path

from sharebench.core import console
from sharebench.figures import draw


def main(data: Path, results: Path, figures: list[str]) -> None:
    for name in figures:
        draw.figure(name, data, results)


if __name__ == "__main__":
    console.script(main)
