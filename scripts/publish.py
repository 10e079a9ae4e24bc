"""Lay a finished study out as a data set of published/."""

import argparse
from pathlib import Path

from sharebench.core import console
from sharebench.datasets import publish


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set: has cells/, nodes/ and manifest.json")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the published study")
    arguments = parser.parse_args()
    try:
        publish.publish(arguments.data, arguments.out)
    except publish.Unpublishable as refusal:
        return console.failed(refusal)
    return 0


if __name__ == "__main__":
    console.script(main)
