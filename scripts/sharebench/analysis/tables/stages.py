"""tables/stages.csv: the times that workloads take themselves, such as a stream's first chunk; one row per tenant's."""

from collections.abc import Iterator

from sharebench.analysis.cells.rows import bounded, tenant_key
from sharebench.records.histogram import Histogram
from sharebench.records.tables import TableRow
from sharebench.records.types import Record


def stage_rows(record: Record) -> Iterator[TableRow]:
    """The rows of one record; none where no workload times stages."""
    for tenant in record["tenants"]:
        for stage, timed in sorted(tenant["stages"].items()):
            count = timed["count"]
            percentiles = bounded(Histogram.from_sparse(timed["histogram"]), count)
            yield {
                **tenant_key(record, tenant),
                "stage": stage,
                "count": count,
                "mean_seconds": timed["sum_seconds"] / count if count else None,
                **{f"{name}_seconds": quantile.value_seconds for name, quantile in percentiles.items()},
            }
