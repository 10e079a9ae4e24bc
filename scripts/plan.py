"""Say what a run would measure, what it would change on the node, and how long it would take."""

import argparse
import json
from pathlib import Path

from sharebench import console, lifecycle
from sharebench.matrix import Study
from sharebench.nodes.base import NodeError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="results root")
    parser.add_argument("--config", type=json.loads, required=True, help="normalised config, as JSON")
    arguments = parser.parse_args()
    try:
        print(lifecycle.plan(Study(arguments.config), arguments.results))
    except NodeError as error:
        print(f"  failed: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    console.script(main)
