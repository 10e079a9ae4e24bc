"""What tables/*.csv hold: their columns, their one writer and their one reader."""

import csv
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

TableRow = dict[str, object]
"""A row that will be written: values by column; None is a blank."""
SCHEMA = Path(__file__).with_name("columns.csv")
SHARED_TABLE = "all"
"""The name in SCHEMA of what several tables have: there is the meaning of a column that has none of its own."""
INTERVAL_SUFFIXES = ("_low", "_high")
STREAMS, SLO, ACTIVITY = "streams", "slo", "activity"
STUDY_KINDS = {STREAMS, SLO, ACTIVITY}
"""Studies in which a tenant streams, whose config has an SLO, or with a cell on a GPU that counts its activity."""


class Column(NamedTuple):
    """A line of SCHEMA. Its kind is `whole`, `flag` (True or False), `interval` (with columns for ENDS) or empty.

    One that some studies only have names these (OF_STUDIES) too.
    """

    table: str
    name: str
    kind: str
    meaning: str
    blank: str

    @property
    def studies(self) -> set[str]:
        """Which studies have it; empty where all do."""
        return STUDY_KINDS & set(self.kind.split())

    @property
    def names(self) -> tuple[str, ...]:
        """Itself, and its ends."""
        return (self.name, *(f"{self.name}{end}" for end in INTERVAL_SUFFIXES if "interval" in self.kind))


@cache
def schema() -> list[Column]:
    """All columns of all tables, in their order."""
    with SCHEMA.open(encoding="utf-8", newline="") as file:
        return [Column(*line) for line in csv.reader(file)][1:]


def table_columns(table: str) -> Iterator[Column]:
    """The columns of a table without the ends of intervals."""
    return (column for column in schema() if column.table == table)


def columns(table: str, studies: Collection[str] = ()) -> tuple[str, ...]:
    """The names of a table's columns, in their order, with those of these kinds of study."""
    every = (column for column in table_columns(table) if not column.studies or column.studies.intersection(studies))
    return tuple(name for column in every for name in column.names)


def table_frame(
    table: str, rows: Iterable[TableRow], names: Iterable[str] = (), studies: Collection[str] = ()
) -> pd.DataFrame:
    """The rows as that table, with these columns in place of its own; whole numbers stay so next to blanks."""
    made = pd.DataFrame(list(rows), columns=list(names) or list(columns(table, studies)))
    return made.astype({column.name: "Int64" for column in table_columns(table) if column.kind == "whole"})


def read_table(
    path: Path, texts: Iterable[str] = (), columns: list[str] | None = None, repeated: Iterable[str] = ()
) -> pd.DataFrame:
    """The table at `path`, or `columns` of it: blank `texts` are empty, and flags are booleans; a blank reads as False.

    `repeated` columns have few values, and are read as categories. Raises OSError, and ValueError where a flag is
    neither True nor False.
    """
    words = dict.fromkeys(texts, str)
    flags = {column.name for column in schema() if "flag" in column.kind}
    kinds = words | dict.fromkeys(repeated, "category") | dict.fromkeys(flags, "boolean")
    table = pd.read_csv(path, usecols=columns, dtype=kinds, low_memory=False)
    is_there = [name for name in table if name in flags]
    table[is_there] = table[is_there].fillna(False).astype(bool)
    return table.fillna({name: "" for name in words if name in table})
