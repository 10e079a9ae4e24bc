"""Put the parts of a study together that were measured in several folders."""

import argparse
import json
from pathlib import Path

from sharebench.core import console
from sharebench.datasets.join import NotJoined, join
from sharebench.study.study import Study


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="the study's config, normalised, as JSON")
    parser.add_argument("--results", type=Path, required=True, help="folder that receives the study")
    arguments = parser.parse_args()
    parts = [Path(part) for part in arguments.config["parts"]]
    study = Study(arguments.config)
    try:
        join(study, parts, arguments.results)
    except (NotJoined, OSError) as refusal:
        return console.failed(refusal)
    print(f"joined: {len(study.cells)} cells of {len(parts)} parts in {arguments.results}")
    print("tables, figures and report: the same command without `join`")
    return 0


if __name__ == "__main__":
    console.script(main)
