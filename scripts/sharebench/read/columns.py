"""The tables in tables/*.csv: their columns, the one writer and the one reader."""

import csv
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict

import pandas as pd

TableRow = dict[str, object]
"""Values of a row by column; None is a blank."""
SCHEMA = Path(__file__).with_name("columns.csv")
SHARED_TABLE = "all"
"""Table name in SCHEMA for columns that several tables share; it has the meaning where their own line has none."""
INTERVAL_SUFFIXES = ("_low", "_high")
FORMULA_BEGINS = ("=", "+", "-", "@")
STREAMS, SLO, OPTIONAL = "streams", "slo", "optional"
STUDY_KINDS = {STREAMS, SLO}
"""Kinds of study with columns of their own: a tenant streams, or the config has an SLO."""


class _Blanks(TypedDict):
    keep_default_na: bool
    na_values: list[str]


ONLY_BLANKS: _Blanks = {"keep_default_na": False, "na_values": [""]}
"""Options of pandas' reader, which otherwise takes a strategy or a workload named `null` or `nan` for a blank."""


class Column(NamedTuple):
    """A line of SCHEMA; `kind` is empty, or has `whole`, `flag` (True or False), `text` or `interval`.

    It also names the STUDY_KINDS of a column that only some studies have, or `optional` for one that is there only
    where a row of cells.csv has a value. `flag` and `text` stand once for all columns of a name. That of a metric may
    have `zero`, where 0 is a value and not a blank, and how it comes from the columns of cells.csv: `sum:`, `mean:` or
    `max:` and a column of the tenants, or `device:` and one of the device.
    """

    table: str
    name: str
    kind: str
    meaning: str
    blank: str

    @property
    def words(self) -> set[str]:
        return set(self.kind.split())

    @property
    def studies(self) -> set[str]:
        """The STUDY_KINDS, or the column of cells.csv, without which it is not there; empty where it always is."""
        return STUDY_KINDS & self.words | ({self.rule[1] or self.name} if OPTIONAL in self.words else set())

    @property
    def rule(self) -> tuple[str, str]:
        """How a metric comes from which column of cells.csv; both empty where code says so."""
        words = (word.partition(":") for word in self.kind.split())
        return next(((how, column) for how, colon, column in words if colon), ("", ""))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the column itself and of the ends of its interval."""
        return (self.name, *(f"{self.name}{end}" for end in INTERVAL_SUFFIXES if "interval" in self.words))


@cache
def schema() -> list[Column]:
    """All columns of all tables, in order."""
    with SCHEMA.open(encoding="utf-8", newline="") as file:
        return [Column(*line) for line in csv.reader(file)][1:]


def table_columns(table: str) -> Iterator[Column]:
    """Columns of a table, without separate ends of intervals."""
    return (column for column in schema() if column.table == table)


def meaning(table: str, name: str) -> str:
    """What a column is, by its own line or by that of all tables."""
    meanings = {column.table: column.meaning for column in schema() if column.name == name}
    return meanings[table] or meanings[SHARED_TABLE]


def columns(table: str, studies: Collection[str] = ()) -> tuple[str, ...]:
    """Names of a table's columns in order, including those of these kinds of study and columns of cells.csv."""
    included = (column for column in table_columns(table) if not column.studies or column.studies & set(studies))
    return tuple(name for column in included for name in column.names)


def table_frame(
    table: str, rows: Iterable[TableRow], names: Iterable[str] = (), studies: Collection[str] = ()
) -> pd.DataFrame:
    """The rows as a table with the columns `names`, else its own; whole numbers stay whole next to blanks."""
    optional = {column.name for column in table_columns(table) if OPTIONAL in column.words}
    frame = pd.DataFrame(list(rows), columns=list(names) or list(columns(table, {*studies, *optional})))
    frame = frame.drop(columns=[name for name in frame if name in optional and frame[name].isna().all()])
    whole = (column.name for column in table_columns(table) if "whole" in column.words and column.name in frame)
    return frame.astype(dict.fromkeys(whole, "Int64"))


def csv_text(table: pd.DataFrame) -> str:
    """The table as CSV, in which no text is a formula for a spreadsheet: a record may be another user's."""
    safe = table.copy()
    for name in table:
        is_formula = table[name].map(_is_formula).astype(bool)
        if is_formula.any():
            safe[name] = table[name].astype(object).where(~is_formula, "'" + table[name].astype(str))
    return safe.to_csv(index=False)


def _is_formula(value: object) -> bool:
    return isinstance(value, str) and value.startswith(FORMULA_BEGINS)


def read_table(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """The table at `path`, or `columns` of it; blank texts are empty, flags are booleans, and a blank flag is False.

    Raises OSError, and ValueError for any other flag.
    """
    flags, texts = ({column.name for column in schema() if word in column.words} for word in ("flag", "text"))
    dtypes = dict.fromkeys(texts, str) | dict.fromkeys(flags, "boolean")
    table = pd.read_csv(path, usecols=columns, dtype=dtypes, low_memory=False, **ONLY_BLANKS)
    present = [name for name in table if name in flags]
    table[present] = table[present].fillna(False).astype(bool)
    return table.fillna({name: "" for name in table if name in texts})
