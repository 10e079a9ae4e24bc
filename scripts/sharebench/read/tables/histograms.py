"""The latency histograms of all valid cells of one strategy and workload."""

from pathlib import Path

import pandas as pd

from sharebench.core.files import replace_atomically
from sharebench.model.records.record import RecordError
from sharebench.read.columns import columns
from sharebench.read.gates.gates import is_valid, read_judged
from sharebench.read.histogram import tenant_buckets


def export_histograms(raw: list[Path], out: Path) -> None:
    """Write the non-empty buckets of the host latencies, by replicas, repeat, tenant and bucket; atomically.

    The overflow bucket's upper bound is `inf`. Raises RecordError, with the command that re-measures the record, if it
    is damaged or has another strategy or workload than the first.
    """
    rows: list[tuple[int, int, int, float, float, float]] = []
    first: tuple[str, str] | None = None
    for path in raw:
        try:
            measured = read_judged(path)
            cell = measured["cell"]
            pair = (cell["strategy"], cell["workload"])
            first = first or pair
            if pair != first:
                raise RecordError(f"{path}: is of {' and '.join(pair)}, not of {' and '.join(first)}")
        except RecordError as error:
            remedy = f"re-measure it: snakemake --forcerun {path} (with the options of this run)"
            raise RecordError(f"{error}; {remedy}") from None
        if is_valid(measured):
            key = cell["replicas"], cell["repeat"]
            rows += (
                (*key, tenant["index"], *each) for tenant in measured["tenants"] for each in tenant_buckets(tenant)
            )
    replace_atomically(out, pd.DataFrame(sorted(rows), columns=list(columns("histograms"))).to_csv(index=False))
