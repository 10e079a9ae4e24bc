"""Table the cells that a failed run did measure, under partial/."""

from pathlib import Path

from sharebench.analysis.aggregate import partial
from sharebench.core import console


def main(results: Path) -> None:
    print(partial(results))


if __name__ == "__main__":
    console.script(main)
