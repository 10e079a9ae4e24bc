"""Answer what the config asks of finished results: cost, capacity and advice; prints the advice."""

import json
import sys
from pathlib import Path
from typing import Annotated

from sharebench.analysis.decide import decide
from sharebench.core import console
from sharebench.core.study_config import Question


def main(data: Path, results: Path, question: Annotated[Question, json.loads], decided: Path) -> int:
    try:
        print(decide.decide(decide.read(data, results), question, decided))
    except decide.Undecided as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    console.script(main)
