"""Draw the figures of a published data set in the widths of papers."""

import argparse
import sys
from pathlib import Path

from sharebench import aggregate, dataset, paper


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set")
    parser.add_argument("--out", type=Path, required=True, help="receives tables/ and figures/")
    arguments = parser.parse_args()
    try:
        paper.draw(arguments.data, arguments.out)
    except (dataset.DataSetError, aggregate.Refused) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
