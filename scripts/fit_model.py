"""Fit the scaling model of a study, and write what it predicts and what suits which workload."""

import json
from pathlib import Path
from typing import Annotated

from sharebench.analysis.decide import decide
from sharebench.core import console


def main(data: Path, results: Path, classes: Annotated[dict[str, str], json.loads]) -> None:
    decide.write_model(decide.read(data, results), classes)


if __name__ == "__main__":
    console.script(main)
