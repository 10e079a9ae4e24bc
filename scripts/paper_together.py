"""Findings, ours and others', and the repository's documents, from what `paper` made of every data set."""

from pathlib import Path

from publication import findings, together
from sharebench.core import console
from sharebench.datasets import dataset


def main(root: Path, made: Path, out: Path, workers: int = 1) -> int:
    try:
        together.write(root, made, out, workers)
    except (findings.Contradicted, dataset.DataSetError) as refusal:
        return console.failed(refusal)
    return 0


if __name__ == "__main__":
    console.script(main)
