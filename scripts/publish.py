"""Lay a finished study out as a data set of published/."""

from pathlib import Path

from sharebench.core import console
from sharebench.datasets import publish


def main(data: Path, out: Path) -> int:
    try:
        publish.publish(data, out)
    except publish.Unpublishable as refusal:
        return console.failed(refusal)
    return 0


if __name__ == "__main__":
    console.script(main)
