"""tables/stages.csv: the times that workloads take themselves, such as a stream's first chunk; one row per tenant's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from sharebench.analysis.cells.rows import NEEDED_COUNT, PERCENTILES
from sharebench.gates.gates import is_valid
from sharebench.records.histogram import Histogram

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


def stage_rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of one record; a percentile is there where the count can carry it and its bucket has two bounds."""
    cell = {key: record["cell"][key] for key in ("strategy", "workload", "replicas", "repeat")}
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
                **cell,
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


def stages_table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """These rows as a table with COLUMNS, which is empty where no workload times stages."""
    return pd.DataFrame(list(rows), columns=list(COLUMNS))
