"""Findings, ours and theirs, and the documents of the repository, from what `paper` made of every data set."""

import argparse
from pathlib import Path

from publication import findings, together
from sharebench.core import console
from sharebench.datasets import dataset


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="has published/ and docs/findings.yaml")
    parser.add_argument("--made", type=Path, required=True, help="has a folder for each data set")
    parser.add_argument("--out", type=Path, required=True, help="receives repository/ and theirs.*")
    parser.add_argument("--workers", type=int, default=1, help="processes that draw")
    arguments = parser.parse_args()
    try:
        together.write(arguments.root, arguments.made, arguments.out, arguments.workers)
    except (findings.Contradicted, dataset.DataSetError) as refusal:
        return console.failed(refusal)
    return 0


if __name__ == "__main__":
    console.script(main)
