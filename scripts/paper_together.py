"""Findings, ours and others', and the repository's documents, from what `paper` made of every data set."""

from publication import findings, together
from sharebench.core import console
from sharebench.datasets import dataset

if __name__ == "__main__":
    console.script(together.write, findings.Contradicted, dataset.DataSetError)
