"""tables/contrasts.csv: the comparisons that a study is for, tested together."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import pandas as pd

from sharebench.read.cells.metrics import MEAN, cell_value, optional_metrics
from sharebench.read.cells.rows import GROUP_COLUMNS, MeasuredCell
from sharebench.read.cells.slowdown import Baseline, Separability, are_paired, group_ratio
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.grouping import group_by
from sharebench.read.statistics.intervals import with_holm
from sharebench.study.study import Study


def contrasts_table(
    cells: Iterable[MeasuredCell], study: Study, baseline: Baseline, studies: Collection[str] = ()
) -> pd.DataFrame:
    """One row per comparison and workload, and per metric; `cells` are those of `split_by_workload`.

    A metric that no cell of a workload has gives no row. Holm's adjustment counts, for each metric by itself, the
    comparisons with an interval.
    """
    found = group_by(cells, lambda cell: cell.group)
    separability = Separability((cell for tested in found.values() for cell in tested), baseline)
    rows: dict[str, list[TableRow]] = {metric: [] for metric in (MEAN, *optional_metrics(studies))}
    for strategy, reference in declared_contrasts(study):
        for point in _points(study, strategy, reference):
            over, under = (found[name, *point] for name in (strategy, reference))
            for metric, tested in rows.items():
                row: TableRow = dict(zip(GROUP_COLUMNS, (strategy, *point), strict=True)) | {"reference": reference}
                if metric == MEAN or any(cell_value(cell, metric) for cell in (*over, *under)):
                    tested.append(row | {"metric": metric} | _comparison(over, under, separability, point[1], metric))
    return table_frame("contrasts", (row for tested in rows.values() for row in with_holm(tested)), studies=studies)


def declared_contrasts(study: Study) -> list[tuple[str, str]]:
    """The study's comparisons as (strategy, reference); by default every sharing strategy against the first one."""
    if study.config["contrasts"]:
        pairs = (contrast.split("/") for contrast in study.config["contrasts"])
        return [(strategy, reference) for strategy, reference in pairs]
    alone = {("exclusive",), ("sequential",)}
    sharing = [name for name in study.config["strategies"] if study.strategies[name].mechanism not in alone]
    return [(name, sharing[0]) for name in sharing[1:]]


def _points(study: Study, strategy: str, reference: str) -> Iterator[tuple[str, str, int]]:
    """Workload, workload of the tenants, and the largest number of tenants under both strategies."""
    over, under = (
        {(c.workload, c.replicas): c for c in study.table_cells() if c.strategy == name and study.is_compared(c)}
        for name in (strategy, reference)
    )
    common = [point for point in over if point in under and point[0] not in study.interference]
    largest = dict(sorted(common))
    for workload in dict.fromkeys(workload for workload, _ in over if workload in largest):
        for tenant_workload in study.components(over[workload, largest[workload]]):
            yield workload, tenant_workload, largest[workload]


def _comparison(
    over: Sequence[MeasuredCell],
    under: Sequence[MeasuredCell],
    separability: Separability,
    tenant_workload: str,
    metric: str,
) -> TableRow:
    valid_over, valid_under = ([cell for cell in cells if cell.valid] for cells in (over, under))
    counts: TableRow = {"n": len(valid_over), "n_reference": len(valid_under)}
    ratio = group_ratio(valid_over, valid_under, metric)
    if ratio is None:
        invalid = [cells for cells, valid in ((over, valid_over), (under, valid_under)) if not valid]
        reasons = [cell.reason or cell.status for cells in invalid for cell in cells] or ["not measured"]
        return counts | {"reason": "; ".join(dict.fromkeys(reasons))}
    return counts | {
        **ratio.columns("ratio"),
        "paired": are_paired(valid_over, valid_under, metric),
        "p": ratio.probability,
        "separable": separability.verdict(tenant_workload, ratio, metric),
    }
