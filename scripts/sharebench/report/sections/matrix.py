"""The matrices of a study, each cell a slowdown: of a workload by strategy and number of tenants, and of pairs."""

import math
from dataclasses import dataclass

from sharebench.core.spec import in_words
from sharebench.figures.data import Row, absence

MOST_SHADE_PERCENT = 45
"""How much of the darkest cell is colour: text on it keeps a contrast above 4.5."""
LEAST_FULL_SLOWDOWN = 2.0
"""The darkest cell is at least that slow, so that noise around 1 stays pale."""


@dataclass(frozen=True)
class Field:
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


def matrices(rows: dict[str, list[Row]]) -> list[Matrix]:
    """The matrices of the rows of the summary by workload; pairs have matrices of their own and are left out."""
    plain = {workload: of_workload for workload, of_workload in rows.items() if "+" not in workload}
    slowest = _slowest(rows)
    fields: dict[str, dict[tuple[str, int], Field]] = {}
    for workload, of_workload in plain.items():
        for row in of_workload:
            own = fields.setdefault(in_words(workload, row["tenant_workload"]), {})
            own[row["strategy"], int(row["replicas"])] = _field(row, slowest)
    found = []
    for title, own in fields.items():
        replicas = sorted({n for _, n in own})
        strategies = dict.fromkeys(strategy for strategy, _ in own)
        found.append(Matrix(title, replicas, [(name, [own.get((name, n)) for n in replicas]) for name in strategies]))
    return found


def pair_matrices(rows: dict[str, list[Row]]) -> list[Matrix]:
    """One matrix for each strategy under which pairs ran, from the rows of the summary by workload."""
    pairs = {workload: of_workload for workload, of_workload in rows.items() if "+" in workload}
    names = list(dict.fromkeys(name for workload in pairs for name in workload.split("+")))
    slowest = _slowest(pairs)
    fields: dict[str, dict[tuple[str, str], Field]] = {}
    for workload, of_workload in pairs.items():
        for row in of_workload:
            neighbours = workload.split("+")
            neighbours.remove(row["tenant_workload"])
            own = fields.setdefault(row["strategy"], {})
            own[row["tenant_workload"], neighbours[0]] = _field(row, slowest)
    return [
        Matrix(strategy, names, [(victim, [own.get((victim, neighbour)) for neighbour in names]) for victim in names])
        for strategy, own in fields.items()
    ]


def _slowest(rows: dict[str, list[Row]]) -> float:
    known = (float(row["slowdown"]) for of_workload in rows.values() for row in of_workload if row["n"])
    return max([LEAST_FULL_SLOWDOWN, *known])


def _field(row: Row, slowest: float) -> Field:
    slowdown, mean_seconds = row["slowdown"], row["latency_mean_seconds"]
    if row["n"] == 0:
        return Field(absence(row), 0.0)
    if not math.isnan(slowdown):
        shade = MOST_SHADE_PERCENT * max(0.0, math.log(slowdown) / math.log(slowest))
        return Field(f"{slowdown:.2f}", round(shade, 1))
    return Field(f"{1e3 * mean_seconds:.3g} ms" if not math.isnan(mean_seconds) else "–", 0.0)
