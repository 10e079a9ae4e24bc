"""The matrices of a study, each cell a slowdown: of a workload by strategy and number of tenants, and of pairs."""

import math
from dataclasses import dataclass
from typing import Any

from sharebench.core.spec import in_words
from sharebench.figures import data as tables

MOST_SHADE_PERCENT = 45
"""How much of the darkest cell is colour: text on it keeps a contrast above 4.5."""
LEAST_FULL_SLOWDOWN = 2.0
"""The darkest cell is at least that slow, so that noise around 1 stays pale."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """One cell of a matrix."""

    key: str
    """strategy/workload/replicas: names its details."""
    text: str
    shade_percent: float
    """Share of colour; 0 where there is no slowdown, or none to speak of."""


@dataclass(frozen=True)
class Matrix:
    """Of a workload by strategy and number of tenants, or of a strategy by workload and neighbour.

    A field is None where the study has no such cell.
    """

    title: str
    columns: list[int] | list[str]
    rows: list[tuple[str, list[Field | None]]]


def _slowest(rows: dict[str, list[Row]]) -> float:
    known = (float(row["slowdown"]) for of_workload in rows.values() for row in of_workload if row["n"])
    return max([LEAST_FULL_SLOWDOWN, *known])


def pair_matrices(rows: dict[str, list[Row]]) -> list[Matrix]:
    """One matrix for each strategy under which pairs ran, from the rows of the summary by workload."""
    pairs = {workload: of_workload for workload, of_workload in rows.items() if "+" in workload}
    slowest, found = _slowest(pairs), []
    names = list(dict.fromkeys(name for workload in pairs for name in workload.split("+")))
    for strategy in dict.fromkeys(row["strategy"] for of_workload in pairs.values() for row in of_workload):
        fields: dict[tuple[str, str], Field] = {}
        for workload, of_workload in pairs.items():
            for row in of_workload:
                if row["strategy"] == strategy:
                    both = workload.split("+")
                    both.remove(row["tenant_workload"])
                    fields[row["tenant_workload"], both[0]] = _field(row, slowest)
        lines = [(victim, [fields.get((victim, beside)) for beside in names]) for victim in names]
        found.append(Matrix(strategy, names, lines))
    return found


def matrices(rows: dict[str, list[Row]]) -> list[Matrix]:
    """The matrices of the rows of the summary by workload; pairs have matrices of their own and are left out."""
    found = []
    slowest = _slowest(rows)
    for workload, of_workload in rows.items():
        for tenant_workload in dict.fromkeys(row["tenant_workload"] for row in of_workload):
            if "+" not in workload:
                own = [row for row in of_workload if row["tenant_workload"] == tenant_workload]
                found.append(_matrix(in_words(workload, tenant_workload), own, slowest))
    return found


def _matrix(title: str, rows: list[Row], slowest: float) -> Matrix:
    replicas = sorted({int(row["replicas"]) for row in rows})
    fields = {(row["strategy"], int(row["replicas"])): _field(row, slowest) for row in rows}
    strategies = dict.fromkeys(row["strategy"] for row in rows)
    return Matrix(title, replicas, [(name, [fields.get((name, n)) for n in replicas]) for name in strategies])


def _field(row: Row, slowest: float) -> Field:
    key = f"{row['strategy']}/{row['workload']}/{row['replicas']}"
    slowdown, mean_seconds = row["slowdown"], row["latency_mean_seconds"]
    if row["n"] == 0:
        return Field(key, tables.absence(row), 0.0)
    if not math.isnan(slowdown):
        shade = MOST_SHADE_PERCENT * max(0.0, math.log(slowdown) / math.log(slowest))
        return Field(key, f"{slowdown:.2f}", round(shade, 1))
    return Field(key, f"{1e3 * mean_seconds:.3g} ms" if not math.isnan(mean_seconds) else "–", 0.0)
