"""Set the node to a strategy, so that one that cannot be set up fails once."""

from pathlib import Path

from sharebench.core import console
from sharebench.run import jobs


def main(results: Path, strategy: str, out: Path) -> None:
    with jobs.of_run(results) as run:
        jobs.configure_node(run, strategy, out)


if __name__ == "__main__":
    console.script(main)
