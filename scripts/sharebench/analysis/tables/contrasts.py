"""tables/contrasts.csv: the comparisons that a study is for, tested together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pandas as pd

from sharebench.analysis.cells.baseline import Baseline
from sharebench.analysis.cells.rows import MeasuredCell
from sharebench.analysis.cells.separability import Separability
from sharebench.analysis.cells.slowdown import are_paired, latency_ratio
from sharebench.analysis.statistics.intervals import holm
from sharebench.records.tables import TableRow
from sharebench.study.study import Study

COLUMNS = (
    "strategy",
    "reference",
    "workload",
    "tenant_workload",
    "replicas",
    "ratio",
    "ratio_low",
    "ratio_high",
    "n",
    "n_reference",
    "paired",
    "p",
    "p_holm",
    "separable",
    "reason",
)


def contrasts_table(cells: Iterable[MeasuredCell], study: Study, baseline: Baseline) -> pd.DataFrame:
    """One row per comparison and workload; `cells` are those of `rows.by_workload`.

    Holm's adjustment counts the comparisons that could be tested: with an interval.
    """
    found: dict[tuple[str, str, str, int], list[MeasuredCell]] = defaultdict(list)
    for cell in cells:
        found[cell.strategy, cell.workload, str(cell.tenant_workload), cell.replicas].append(cell)
    separability = Separability((cell for own in found.values() for cell in own), baseline)
    rows: list[TableRow] = []
    for strategy, reference in declared(study):
        for workload, tenant_workload, replicas in _points(study, strategy, reference):
            over, under = (found[name, workload, tenant_workload, replicas] for name in (strategy, reference))
            row: TableRow = {
                "strategy": strategy,
                "reference": reference,
                "workload": workload,
                "tenant_workload": tenant_workload,
                "replicas": replicas,
            }
            rows.append(row | _compared(over, under, separability, tenant_workload))
    tested = [(row, p) for row in rows if isinstance(p := row["p"], float)]
    for (row, _), adjusted in zip(tested, holm([p for _, p in tested]), strict=True):
        row["p_holm"] = adjusted
    return pd.DataFrame(rows, columns=list(COLUMNS))


def declared(study: Study) -> list[tuple[str, str]]:
    """The study's comparisons: strategy and reference; without any in its config every sharing one and the first."""
    if study.config["contrasts"]:
        pairs = (contrast.split("/") for contrast in study.config["contrasts"])
        return [(strategy, reference) for strategy, reference in pairs]
    alone = {("exclusive",), ("sequential",)}
    sharing = [name for name in study.config["strategies"] if study.strategies[name].mechanisms not in alone]
    return [(name, sharing[0]) for name in sharing[1:]]


def _points(study: Study, strategy: str, reference: str) -> list[tuple[str, str, int]]:
    """Workload, workload of the tenants and the largest number of tenants that the study has of both strategies."""
    of = {
        name: {(c.workload, c.replicas): c for c in study.tabled() if c.strategy == name and study.is_compared(c)}
        for name in (strategy, reference)
    }
    largest: dict[str, int] = {}
    for workload, replicas in of[strategy].keys() & of[reference].keys():
        if workload not in study.interference:
            largest[workload] = max(replicas, largest.get(workload, 0))
    in_order = dict.fromkeys(workload for workload, _ in of[strategy] if workload in largest)
    return [
        (workload, tenant_workload, largest[workload])
        for workload in in_order
        for tenant_workload in study.components(of[strategy][workload, largest[workload]])
    ]


def _compared(
    over: Sequence[MeasuredCell], under: Sequence[MeasuredCell], separability: Separability, tenant_workload: str
) -> TableRow:
    valid_over, valid_under = ([cell for cell in cells if cell.valid] for cells in (over, under))
    counts: TableRow = {"n": len(valid_over), "n_reference": len(valid_under)}
    test = latency_ratio(valid_over, valid_under)
    if test is None:
        without = [cells for cells, valid in ((over, valid_over), (under, valid_under)) if not valid]
        reasons = [cell.reason or cell.status for cells in without for cell in cells] or ["not measured"]
        reason = "; ".join(dict.fromkeys(reasons))
        return counts | {"ratio": None, "p": None, "separable": None, "reason": reason}
    return counts | {
        **test.ratio.columns("ratio"),
        "paired": are_paired(valid_over, valid_under),
        "p": test.probability,
        "separable": separability.verdict(tenant_workload, test.ratio),
    }
