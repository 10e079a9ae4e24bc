"""tables/cost.csv: the cost of a device per iteration and per tenant, and the iterations within the SLO."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pandas as pd

from sharebench.read.columns import TableRow, table_frame
from sharebench.read.decide.rows import TOKENS, TOTAL, SummaryRow, known_parts
from sharebench.read.gates.gates import is_valid, read_judged
from sharebench.read.slo import LATENCY, dollars_per_million, format_limits, good_count, goodput_hz
from sharebench.read.statistics.intervals import Estimate, rate_interval

HOURS_PER_MONTH = 720
"""30 days."""
CostKey = tuple[str, str, int]
"""Strategy, workload and number of tenants."""


def cost_table(
    summary: Sequence[SummaryRow],
    price_per_hour: float | None,
    limits: Mapping[str, float],
    raw: Mapping[CostKey, Sequence[Path]],
    studies: Collection[str] = (),
) -> pd.DataFrame:
    """One row per row of `summary` with a throughput; iterations within the SLO `limits` are counted in `raw`."""
    applying = {
        row.workload: known_parts([each for each in summary if each.workload == row.workload]) for row in summary
    }
    rows = []
    for row in (row for row in summary if TOTAL in row.metrics):
        applicable = {part: seconds for part, seconds in limits.items() if part in applying[row.workload]}
        records = raw.get((row.strategy, row.workload, row.replicas), ()) if applicable else ()
        rows.append(_row(row, price_per_hour, limits, applicable) | _goodput(records, applicable, price_per_hour))
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


def _goodput(raw: Sequence[Path], limits: Mapping[str, float], price_per_hour: float | None) -> TableRow:
    """Columns of the iterations within the SLO: per second, and their share; empty without a valid record."""
    rates, shares, devices = [], [], []
    for record in map(read_judged, raw):
        count = sum(tenant["count"] for tenant in record["tenants"])
        if is_valid(record) and count:
            rates.append(sum(goodput_hz(tenant, limits) or 0.0 for tenant in record["tenants"]))
            shares.append(sum(good_count(tenant, limits) or 0.0 for tenant in record["tenants"]) / count)
            devices.append(record["node"]["device"])
    if not rates:
        return {}
    goodput = rate_interval(rates, devices)
    columns: TableRow = {"within_slo_ratio": sum(shares) / len(shares), **goodput.columns("goodput_hz")}
    if price_per_hour is not None and goodput.value:
        columns["dollars_per_million_good_iterations"] = dollars_per_million(price_per_hour, goodput.value)
    return columns
