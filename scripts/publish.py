"""Lay a finished study out as a data set of published/."""

import argparse
import sys
from pathlib import Path

from sharebench import publish


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data set: has cells/, nodes/ and manifest.json")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the published study")
    arguments = parser.parse_args()
    try:
        publish.publish(arguments.data, arguments.out)
    except publish.Unpublishable as refusal:
        # To the job's log, and at once to the terminal.
        print(refusal, file=sys.stderr)
        print(f"  {refusal}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
