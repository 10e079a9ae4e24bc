"""Tables as they were written: the one reader of tables/*.csv."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

TableRow = dict[str, object]
"""A row that will be written: values by column; None is a blank."""
BOOLEANS = ("chosen", "flagged", "paired", "restarted", "valid")
"""Columns that hold True or False, in every table that has them; a blank, where nothing is known, is no True."""


def read_table(
    path: Path, texts: Iterable[str] = (), columns: list[str] | None = None, repeated: Iterable[str] = ()
) -> pd.DataFrame:
    """The table at `path`, or `columns` of it: blank `texts` are empty, and BOOLEANS are booleans.

    `repeated` columns have few values, and are read as categories. Raises OSError, and ValueError where a boolean is
    neither True nor False.
    """
    words = dict.fromkeys(texts, str)
    kinds = words | dict.fromkeys(repeated, "category") | dict.fromkeys(BOOLEANS, "boolean")
    table = pd.read_csv(path, usecols=columns, dtype=kinds, low_memory=False)
    is_there = [name for name in BOOLEANS if name in table]
    table[is_there] = table[is_there].fillna(False).astype(bool)
    return table.fillna({name: "" for name in words if name in table})
