"""Rebuild published data sets for papers: tables, figures in their widths, and the report of each."""

from pathlib import Path

from publication import rebuild
from sharebench.core import console


def main(names: list[str], published: Path, out: Path, made: Path | None = None, workers: int = 1) -> int:
    refusals = rebuild.draw_all(names, published, out, made, workers)
    for line in refusals:
        print(line)
    return 1 if refusals else 0


if __name__ == "__main__":
    console.script(main)
