"""What the report says of strategies against each other, of the baseline against itself, and of tenants together."""

import math
from typing import Any

from sharebench.core.spec import in_words
from sharebench.core.strategies import is_again
from sharebench.figures import data as tables
from sharebench.figures.data import DrawnStudy

TOGETHER = ("antt", "stp", "harmonic_speedup", "jain_index", "worst_slowdown", "isolation_index")
"""Metrics of the summary that are about all tenants of a cell."""
TEXTS = ("strategy", "reference", "workload", "tenant_workload", "separable", "reason")

Row = dict[str, Any]


def contrasts(study: DrawnStudy) -> list[Row]:
    """The rows of tables/contrasts.csv; none where the study has no comparison."""
    table = tables.table(study, "contrasts", TEXTS)
    found = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    for row in found:
        row["runs"] = in_words(row["workload"], row["tenant_workload"])
    return found


def nulls(rows: dict[str, list[Row]]) -> list[tuple[str, Row]]:
    """Of each workload that was measured again the row of that: its slowdown is the A/A ratio."""
    again = ((workload, row) for workload, of_workload in rows.items() for row in of_workload)
    return [(workload, row) for workload, row in again if is_again(row["strategy"]) and row["n"] > 0]


def devices(study: DrawnStudy) -> list[Row]:
    """Of each workload whose baseline was measured on several devices a row of tables/devices.csv, and their number."""
    table = tables.table(study, "devices", ("strategy", "workload", "device"))
    alone = table[(table["strategy"] == study.config["baseline"]) & (table["replicas"] == 1)]
    groups = [own for _, own in alone.groupby("workload", sort=False)]
    return [{**{str(key): value for key, value in own.iloc[0].items()}, "devices": len(own)} for own in groups]


def together(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """By workload the rows of several tenants that have these metrics; a mix has one row for all that it runs."""
    found: dict[str, list[Row]] = {}
    for workload, of_workload in rows.items():
        known = [row for row in of_workload if row["replicas"] > 1 and not math.isnan(row["antt"])]
        cells = {(row["strategy"], row["replicas"]): row for row in reversed(known)}
        if cells:
            found[workload] = list(reversed(cells.values()))
    return found
