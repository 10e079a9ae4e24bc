"""tables/stages.csv: the times that workloads take themselves, such as a stream's first chunk; one row per tenant's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd

from sharebench.analysis.cells.rows import NEEDED_COUNT, PERCENTILES
from sharebench.gates.gates import is_valid
from sharebench.records.histogram import Histogram
from sharebench.records.tables import TableRow
from sharebench.records.types import Record

COLUMNS = (
    "strategy",
    "workload",
    "replicas",
    "repeat",
    "tenant",
    "tenant_workload",
    "valid",
    "stage",
    "count",
    "mean_seconds",
    *(f"{name}_seconds" for name in PERCENTILES),
)


def stage_rows(record: Record) -> Iterator[TableRow]:
    """The rows of one record; a percentile is there where the count can carry it and its bucket has two bounds."""
    cell = record["cell"]
    for tenant in record["tenants"]:
        for stage, timed in sorted(tenant["stages"].items()):
            count = timed["count"]
            names = [name for name, needed in NEEDED_COUNT.items() if count >= needed]
            found = (
                Histogram.from_sparse(timed["histogram"]).quantiles(PERCENTILES[name] for name in names)
                if names
                else []
            )
            yield {
                "strategy": cell["strategy"],
                "workload": cell["workload"],
                "replicas": cell["replicas"],
                "repeat": cell["repeat"],
                "tenant": tenant["index"],
                "tenant_workload": tenant["workload"],
                "valid": is_valid(record),
                "stage": stage,
                "count": count,
                "mean_seconds": timed["sum_seconds"] / count if count else None,
                **{
                    f"{name}_seconds": quantile.value_seconds
                    for name, quantile in zip(names, found, strict=True)
                    if quantile.is_bounded
                },
            }


def stages_table(rows: Iterable[TableRow]) -> pd.DataFrame:
    """These rows as a table with COLUMNS, which is empty where no workload times stages."""
    return pd.DataFrame(list(rows), columns=list(COLUMNS))
