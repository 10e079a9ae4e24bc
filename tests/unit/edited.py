"""Files of a study or of its results, changed in place."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd


@contextmanager
def edited_table(path: Path) -> Iterator[pd.DataFrame]:
    """The rows of a csv file, written again as they are at the end."""
    rows = pd.read_csv(path)
    yield rows
    rows.to_csv(path, index=False)


@contextmanager
def edited_json(path: Path) -> Iterator[Any]:
    """What a json file holds, written again as it is at the end."""
    content = json.loads(path.read_text())
    yield content
    path.write_text(json.dumps(content))
