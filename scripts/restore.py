"""Bring the node back to its original state."""

from pathlib import Path

from sharebench.core import console
from sharebench.run import jobs


def main(results: Path) -> None:
    with jobs.of_run(results) as run:
        jobs.restore(run)


if __name__ == "__main__":
    console.script(main)
