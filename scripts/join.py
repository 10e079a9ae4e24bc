"""Put the parts of a study together that were measured in several folders."""

import json
from pathlib import Path
from typing import Annotated

from sharebench.core import console
from sharebench.core.study_config import StudyConfig
from sharebench.datasets.join import NotJoined, join
from sharebench.study.study import Study


def main(config: Annotated[StudyConfig, json.loads], results: Path) -> None:
    study, parts = Study(config), [Path(part) for part in config["parts"]]
    join(study, parts, results)
    print(f"joined: {len(study.cells)} cells of {len(parts)} parts in {results}")
    print("tables, figures and report: the same command without `join`")


if __name__ == "__main__":
    console.script(main, NotJoined, OSError)
