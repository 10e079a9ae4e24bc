"""Context managers that edit files of a study in place."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd


@contextmanager
def edited_table(path: Path) -> Iterator[pd.DataFrame]:
    """The rows of a csv file, which are written back at the end."""
    rows = pd.read_csv(path)
    yield rows
    rows.to_csv(path, index=False)


@contextmanager
def edited_json(path: Path) -> Iterator[Any]:
    """The content of a json file, which is written back at the end."""
    content = json.loads(path.read_text())
    yield content
    path.write_text(json.dumps(content))
