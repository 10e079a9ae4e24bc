"""tables/cells.csv: one row per cell and tenant."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from sharebench.analysis.cells.baseline import Baseline
from sharebench.analysis.cells.rows import COLUMNS, MeasuredCell, TenantRow

# Whole numbers that may be blank; pandas would otherwise write 3 as 3.0.
BLANKABLE_INTEGERS = ("tenant", "count", "errors", "censored", "effective_count")


def cells_table(cells: Sequence[MeasuredCell], baseline: Baseline) -> pd.DataFrame:
    """The rows of all cells, in order of cells and tenants: COLUMNS, and `slowdown` after throughput.

    A tenant's slowdown is its mean latency over the baseline's of the same workload: over that of the one
    baseline cell of the same run and block where there is one, else over the geometric mean of all.
    """
    rows = [row for cell in cells for row in cell.rows]
    table = pd.DataFrame({name: [getattr(row, name) for row in rows] for name in COLUMNS})
    slowdowns = [_slowdown(cell, row, baseline) for cell in cells for row in cell.rows]
    table.insert(COLUMNS.index("throughput_hz") + 1, "slowdown", pd.Series(slowdowns, dtype=float))
    return table.astype(dict.fromkeys(BLANKABLE_INTEGERS, "Int64"))


def _slowdown(cell: MeasuredCell, row: TenantRow, baseline: Baseline) -> float | None:
    if row.latency_mean_seconds is None or row.tenant_workload is None:
        return None
    baseline = baseline.seen_by(cell.strategy)
    partner = baseline.partner_seconds(cell, row.tenant_workload)
    alone = partner or baseline.mean_seconds(row.tenant_workload)
    return row.latency_mean_seconds / alone if alone else None
