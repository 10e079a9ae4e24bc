"""Write the lists of columns in results/README.md from the schema of the tables."""

import re
from itertools import groupby
from pathlib import Path

from sharebench.read.columns import INTERVAL_SUFFIXES, OPTIONAL, SLO, STREAMS, Column, table_columns

MANUAL = Path(__file__).resolve().parent.parent / "results" / "README.md"
CONDITIONS = {
    STREAMS: "where a tenant streams",
    SLO: "with an `slo`",
    OPTIONAL: "where records have it",
}
TABLE = re.compile(r"(<!-- columns of (\w+), by `make docs` -->\n).*?(<!-- end of columns -->)", re.DOTALL)


def table(name: str) -> str:
    """The columns of a table as a Markdown list; neighbours with the same text, or without one, share a line."""
    lines = []
    for (meaning, blank), columns in groupby(table_columns(name), lambda column: (_meaning(column), column.blank)):
        names = ", ".join(f"`{column.name}`" + "±" * (len(column.names) > len(INTERVAL_SUFFIXES)) for column in columns)
        text = f"{meaning} {f'*Blank: {blank}.*' if blank else ''}".strip()
        lines.append(f"- {names}{f': {text}' if text else ''}\n")
    return "".join(lines)


def _meaning(column: Column) -> str:
    where = " or ".join(CONDITIONS[kind] for kind in CONDITIONS if kind in column.words)
    return f"{column.meaning} Only {where}." if where else column.meaning


def manual() -> str:
    return TABLE.sub(lambda match: f"{match[1]}{table(match[2])}{match[3]}", MANUAL.read_text("utf-8"))


if __name__ == "__main__":
    MANUAL.write_text(manual(), "utf-8")
