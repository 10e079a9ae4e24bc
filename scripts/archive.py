"""Archive a finished study as one zip file."""

from pathlib import Path

from sharebench.core import console
from sharebench.datasets import ro_crate


def main(data: Path, results: Path, out: Path) -> None:
    ro_crate.write(data, results, out)


if __name__ == "__main__":
    console.script(main)
