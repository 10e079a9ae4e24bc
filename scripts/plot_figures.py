"""Draw the figures of a study as svg, pdf and png."""

from pathlib import Path

from sharebench.core import console
from sharebench.figures import draw
from sharebench.figures.catalogue import ENTRIES


def main(data: Path, results: Path, figures: list[str]) -> None:
    if unknown := sorted(set(figures) - set(ENTRIES)):
        raise SystemExit(f"no figure {unknown[0]!r}; use one of {', '.join(ENTRIES)}")
    for name in figures:
        draw.figure(name, data, results)


if __name__ == "__main__":
    console.script(main)
