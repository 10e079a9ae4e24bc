"""Write down what is shared: the node's facts."""

from pathlib import Path

from sharebench.core import console
from sharebench.run import jobs


def main(results: Path, out: Path) -> None:
    with jobs.of_run(results) as run:
        jobs.characterise_node(run, out)


if __name__ == "__main__":
    console.script(main)
