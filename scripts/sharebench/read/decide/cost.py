"""tables/cost.csv: the cost of a device per iteration and per tenant, and the iterations within the SLO."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from sharebench.read.columns import TableRow, table_frame
from sharebench.read.decide.rows import GOODPUT, TOKENS, TOTAL, SummaryRow, applying_limits
from sharebench.read.grouping import group_by
from sharebench.read.slo import LATENCY, LimitsOf, dollars_per_million, format_limits
from sharebench.read.statistics.intervals import Estimate

HOURS_PER_MONTH = 720
"""30 days."""


def cost_table(
    summary: Sequence[SummaryRow],
    price_per_hour: float | None,
    limits: LimitsOf,
    studies: Collection[str] = (),
) -> pd.DataFrame:
    """One row per row of `summary` with a throughput; its goodput is that within the SLO."""
    by_workload = group_by(summary, lambda row: row.workload)
    rows = []
    for row in (row for row in summary if TOTAL in row.metrics):
        own = limits(row.workload)
        applicable = applying_limits(by_workload[row.workload], own)
        rows.append(_row(row, price_per_hour, own, applicable) | (_goodput(row, price_per_hour) if applicable else {}))
    return table_frame("cost", rows, studies=studies)


def _row(
    row: SummaryRow, price_per_hour: float | None, limits: Mapping[str, float], applying: Mapping[str, float]
) -> TableRow:
    rate, tokens = row.metrics[TOTAL], row.metrics.get(TOKENS)
    columns: TableRow = {
        "strategy": row.strategy,
        "workload": row.workload,
        "replicas": row.replicas,
        "throughput_total_hz": rate.value,
        TOKENS: tokens and tokens.value,
        "price_per_hour": price_per_hour,
        "slo_ms": 1e3 * limits[LATENCY] if LATENCY in limits else None,
        "slo": format_limits(applying),
    }
    if price_per_hour is None:
        return columns
    columns["dollars_per_tenant_month"] = price_per_hour * HOURS_PER_MONTH / row.replicas
    columns |= _per_million("dollars_per_million_iterations", rate, price_per_hour)
    return columns | (_per_million("dollars_per_million_tokens", tokens, price_per_hour) if tokens else {})


def _per_million(name: str, rate: Estimate, price: float) -> TableRow:
    ends = (("", rate.value), ("_low", rate.high), ("_high", rate.low))
    return {f"{name}{end}": hz and dollars_per_million(price, hz) for end, hz in ends}


def _goodput(row: SummaryRow, price_per_hour: float | None) -> TableRow:
    """Columns of the iterations within the SLO: per second, and their share; empty where that is not known."""
    goodput = row.metrics.get(GOODPUT)
    if goodput is None:
        return {}
    share = min(1.0, goodput.value / row.metrics[TOTAL].value)
    columns: TableRow = {"within_slo_ratio": share, **goodput.columns("goodput_hz")}
    if price_per_hour is not None and goodput.value:
        columns["dollars_per_million_good_iterations"] = dollars_per_million(price_per_hour, goodput.value)
    return columns
