"""Draw who was on the GPU when, as svg, pdf and png."""

from pathlib import Path

from sharebench.core import console
from sharebench.figures import timeslice
from sharebench.figures.page import save
from sharebench.figures.style import theme


def main(results: Path, catalogue: list[str]) -> None:
    with theme():
        save(timeslice.draw(results, catalogue), results / "figures", "timeslice")


if __name__ == "__main__":
    console.script(main)
