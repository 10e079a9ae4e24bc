"""List what a run would measure, what it would change on the node, and how long it would take."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from sharebench.core import console
from sharebench.core.study_config import StudyConfig
from sharebench.nodes.contract import NodeError
from sharebench.run import lifecycle
from sharebench.study.study import Study


def main(results: Path, config: Annotated[StudyConfig, json.loads], argv: Annotated[list[str], json.loads]) -> int:
    # What is stale only Snakemake knows: the same command, of everything in place of the plan.
    others = [word for word in argv if word != "plan"]
    command = [sys.executable, "-m", "snakemake", *others, "--summary"]
    asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        print("  failed: `snakemake --summary` with the same options fails; see the log", flush=True)
        return 1
    try:
        print(lifecycle.plan(Study(config), results, lifecycle.pending(asked.stdout)))
    except NodeError as error:
        print(f"  failed: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    console.script(main)
