"""Gates, evidence and outcomes of a study, counted for the report."""

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

from sharebench.read.figures.data import DrawnStudy, Row, table_rows
from sharebench.read.tables.checks import FAILED

POINT = ["strategy", "workload", "replicas"]
DIFFERENCE = "answers_difference_nats"


class Audit(NamedTuple):
    cells: int
    gates: dict[Hashable, Counter[str]]
    """(Gate, severity) → how many cells `passed`, `failed`, or were `unjudged` as the value is not known."""
    failures: dict[str, list[Row]]
    """Severity → the rows of gates.csv that failed."""
    outcomes: list[Row]
    """Points of the matrix with cells that did not end well: their status, reason, `repeats` and first log."""
    evidence: dict[Hashable, Counter[bool]]
    """(Strategy, evidence item) → how often it held and how often not."""
    answers: dict[Hashable, list[float]]
    """(Strategy, workload, tenants) → how far the answers of each of their servers are from those alone, in nat."""


def audit(study: DrawnStudy) -> Audit:
    cells, gates, evidence, outcomes = map(study.table, ("cells", "gates", "evidence", "outcomes"))
    failed = gates[gates["outcome"] == FAILED]
    answers = cells.dropna(subset=[DIFFERENCE]) if DIFFERENCE in cells else cells[:0]
    return Audit(
        cells=len(cells[[*POINT, "repeat"]].drop_duplicates()),
        gates={key: Counter(own["outcome"]) for key, own in gates.groupby(["gate", "severity"], sort=False)},
        failures={severity: table_rows(failed[failed["severity"] == severity]) for severity in ("invalid", "warning")},
        outcomes=[
            table_rows(own[:1])[0] | {"repeats": list(own["repeat"]), "log": next(filter(None, own["log"]), "")}
            for _, own in outcomes.groupby([*POINT, "status", "reason"], sort=False)
        ],
        evidence={key: Counter(own["holds"]) for key, own in evidence.groupby(["strategy", "evidence"], sort=False)},
        answers={key: list(own[DIFFERENCE]) for key, own in answers.groupby(POINT, sort=False)},
    )
