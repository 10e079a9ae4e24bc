"""The section on promises: a row for each promise that a strategy makes or was measured for."""

from typing import NamedTuple

from sharebench.model.promises import BROKEN, closing_line, promises
from sharebench.model.study_config import has_conformance
from sharebench.read.figures.data import DrawnStudy, Row, table_rows
from sharebench.read.grouping import group_by


class PromiseRows(NamedTuple):
    summary: str
    broken: list[Row]
    """The rows that a reader must know, with the `title` and the `meaning` of each promise, and the source's `link`."""
    promises: list[list[Row]]
    """The rows of each promise."""


def promise_rows(study: DrawnStudy) -> PromiseRows | None:
    """The rows of tables/conformance.csv; None for a study without any."""
    if not has_conformance(study.config):
        return None
    rows = table_rows(study.table("conformance"))
    for row in rows:
        name, _, kind = str(row["promise"]).partition(" ")
        promise = promises()[name]
        links = (each.link for each in promise.mechanisms.values() if each.source == row["source"])
        row |= {"title": f"{promise.title}: {kind}" if kind else promise.title, "meaning": promise.meaning}
        row["link"] = next(links, None)
    broken = [row for row in rows if row["verdict"] == BROKEN]
    own = group_by(rows, lambda row: row["promise"])
    return PromiseRows(closing_line(row["verdict"] for row in rows), broken, list(own.values()))
