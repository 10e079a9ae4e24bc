"""Blocks of a publication's README from its conformance study: the promises, and the map of wrong answers."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from publication.numbers import DataSet
from publication.tables import markdown
from sharebench.model.promises import BROKEN, KEPT
from sharebench.read.figures.conformance import promise_label
from sharebench.read.figures.data import table_rows
from sharebench.read.report.words import format_number

CONFORMANCE = "conformance"


def promises_table(datasets: Mapping[str, DataSet]) -> str:
    """Promise × strategy, each with what was measured and, where the strategy makes the promise, the verdict."""
    if (study := _own(datasets)) is None:
        return markdown([])
    table = study.table(CONFORMANCE)
    strategies = list(dict.fromkeys(table["strategy"]))
    rows = []
    for name, own in table.groupby("promise", sort=False):
        found = {row["strategy"]: _text(row) for row in table_rows(own)}
        rows.append({"promise": promise_label(str(name))} | {f"`{each}`": found.get(each, "") for each in strategies})
    return markdown(rows)


def _text(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["measured"]):
        return ""
    measured = format_number(row["measured"]).removesuffix(".00")
    return {KEPT: f"{measured}, kept", BROKEN: f"**{measured}, broken**"}.get(row["verdict"], measured)


def answers_table(datasets: Mapping[str, DataSet]) -> str:
    """Wrong results by the share of the SMs that an MPS client has."""
    study = _own(datasets)
    shares = {} if study is None else study.answers_by_percent()
    return markdown(
        [
            {"% of the SMs": str(percent), "SMs": str(found["sm_count"]), "wrong": f"{len(found['wrong'])}"}
            for percent, found in shares.items()
        ]
    )


def _own(datasets: Mapping[str, DataSet]) -> DataSet | None:
    return next((data for name, data in datasets.items() if name.endswith(f"/{CONFORMANCE}")), None)
