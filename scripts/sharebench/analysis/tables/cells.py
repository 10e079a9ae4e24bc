"""tables/cells.csv: one row per cell and tenant."""

from collections.abc import Collection, Sequence

import pandas as pd

from sharebench.analysis.cells.baseline import Baseline
from sharebench.analysis.cells.rows import MeasuredCell, TenantRow
from sharebench.records.tables import TableRow, frame


def cells_table(cells: Sequence[MeasuredCell], baseline: Baseline, studies: Collection[str] = ()) -> pd.DataFrame:
    """The rows of all cells, in order of cells and tenants.

    A tenant's slowdown is its mean latency over the baseline's of the same workload: over that of the one
    baseline cell of the same run and block where there is one, else over the geometric mean of all.
    """
    rows = (_row(cell, row) | {"slowdown": _slowdown(cell, row, baseline)} for cell in cells for row in cell.rows)
    return frame("cells", rows, studies=studies).astype({"slowdown": float})


def _row(cell: MeasuredCell, row: TenantRow) -> TableRow:
    of_cell = ("strategy", "workload", "replicas", "repeat", "block", "run_id", "device", "status", "valid", "reason")
    of_tenant = ("tenant_workload", "latency_mean_seconds", "throughput_hz", "memory_mib", "scrape_error_percent")
    return {
        **{name: getattr(cell, name) for name in of_cell},
        "warnings": ";".join(cell.warnings),
        **(cell.of_device if row.tenant_workload else {}),
        **{name: getattr(row, name) for name in of_tenant},
        "output_tokens_hz": row.output_tokens_hz,
        "goodput_hz": row.goodput_hz,
        **row.others,
    }


def _slowdown(cell: MeasuredCell, row: TenantRow, baseline: Baseline) -> float | None:
    if row.latency_mean_seconds is None or row.tenant_workload is None:
        return None
    baseline = baseline.seen_by(cell.strategy)
    partner = baseline.partner_seconds(cell, row.tenant_workload)
    alone = partner or baseline.mean_seconds(row.tenant_workload)
    return row.latency_mean_seconds / alone if alone else None
