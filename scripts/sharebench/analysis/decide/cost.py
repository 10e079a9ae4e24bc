"""tables/cost.csv: what a device costs per iteration and per tenant, and how many iterations are within the SLO."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from sharebench.analysis.decide.rows import TOKENS, TOTAL, SummaryRow, parts_of
from sharebench.analysis.slo import LATENCY, dollars_per_million, good_count, in_words, within_slo
from sharebench.analysis.statistics.intervals import Estimate, rate_interval
from sharebench.gates import judged
from sharebench.gates.gates import is_valid
from sharebench.records.tables import TableRow, frame

HOURS_PER_MONTH = 720
"""As in the published example: 30 days."""
Repeat = tuple[tuple[float, float, float], int]
"""`within_slo` of a repeat, and its number of iterations."""


def saved(tenants: int, price_per_hour: float, stp: float = 1.0) -> float:
    """What sharing saves per month where each tenant needs its even share of a device, over a device for each.

    `stp` is the work that sharing gets out of a device, over that of one exclusive tenant (system throughput of Eyerman
    and Eeckhout): 1/stp devices are needed, at least one; parts of a device count as parts, as in a fleet.
    """
    return (tenants - max(1.0, 1 / stp)) * price_per_hour * HOURS_PER_MONTH


def with_lower_bounds(buckets: pd.DataFrame) -> pd.DataFrame:
    """The rows of a histograms.csv; older ones have upper bounds only, of the record's layout (64 per doubling)."""
    if "bucket_lower_seconds" in buckets:
        return buckets
    return buckets.assign(bucket_lower_seconds=buckets["bucket_upper_seconds"] / 2 ** (1 / 64))


def cost_table(
    summary: Sequence[SummaryRow],
    price_per_hour: float | None,
    limits: Mapping[str, float],
    window_seconds: float,
    repeats: Callable[[SummaryRow], Sequence[Repeat]],
    studies: Collection[str] = (),
) -> pd.DataFrame:
    """One row per row of the summary with a throughput; `summary` holds plain workloads, `limits` is the SLO."""
    applying = {row.workload: parts_of([each for each in summary if each.workload == row.workload]) for row in summary}
    rows = []
    for row in (row for row in summary if TOTAL in row.metrics):
        own = {part: seconds for part, seconds in limits.items() if part in applying[row.workload]}
        rows.append(_row(row, price_per_hour, limits, own, window_seconds, repeats))
    return frame("cost", rows, studies=studies)


def _row(
    row: SummaryRow,
    price_per_hour: float | None,
    limits: Mapping[str, float],
    applying: Mapping[str, float],
    window_seconds: float,
    repeats: Callable[[SummaryRow], Sequence[Repeat]],
) -> TableRow:
    work, tokens = stp(row), row.metrics.get(TOKENS)
    found: TableRow = {
        "strategy": row.strategy,
        "workload": row.workload,
        "replicas": row.replicas,
        "throughput_total_hz": row.metrics[TOTAL].value,
        TOKENS: tokens and tokens.value,
        "price_per_hour": price_per_hour,
        "slo_ms": 1e3 * limits[LATENCY] if LATENCY in limits else None,
        "slo": in_words(applying),
        "stp": work and work.value,
    }
    if price_per_hour is not None:
        found |= _dollars(row, work, price_per_hour)
        found |= _per_million("dollars_per_million_tokens", tokens, price_per_hour) if tokens else {}
    if not applying:
        return found
    those = repeats(row)
    found |= _within_slo(those)
    if goodput := _goodput(those, window_seconds):
        found |= goodput.columns("goodput_hz")
        if price_per_hour is not None and goodput.value:
            found["dollars_per_million_good_iterations"] = dollars_per_million(price_per_hour, goodput.value)
    return found


def stp(row: SummaryRow) -> Estimate | None:
    """System throughput of a row of the summary: the column of that name, or, where all tenants run the same, their
    number over their slowdown."""
    slowdown = row.metrics.get("slowdown")
    return row.metrics.get("stp") or (slowdown and slowdown.under(row.replicas))


def _dollars(row: SummaryRow, work: Estimate | None, price: float) -> TableRow:
    rate, n = row.metrics[TOTAL], row.replicas
    found: TableRow = {"dollars_per_tenant_month": price * HOURS_PER_MONTH / n}
    found |= _per_million("dollars_per_million_iterations", rate, price)
    if n == 1:
        return found
    found["saving_before_loss_dollars_per_month"] = saved(n, price)
    if work is not None:
        for end, value in (("", work.value), ("_low", work.low), ("_high", work.high)):
            found[f"saving_after_loss_dollars_per_month{end}"] = value and saved(n, price, value)
    return found


def _per_million(name: str, rate: Estimate, price: float) -> TableRow:
    ends = (("", rate.value), ("_low", rate.high), ("_high", rate.low))
    return {f"{name}{end}": hz and dollars_per_million(price, hz) for end, hz in ends}


def by_buckets(buckets: pd.DataFrame, slo_seconds: float) -> list[Repeat]:
    """The repeats in rows of a histograms.csv."""
    return [
        (
            within_slo(own["bucket_lower_seconds"], own["bucket_upper_seconds"], own["count"], slo_seconds),
            int(own["count"].sum()),
        )
        for _, own in buckets.groupby("repeat")
    ]


def by_requests(paths: Iterable[Path], limits: Mapping[str, float]) -> list[Repeat]:
    found: list[Repeat] = []
    for record in map(judged.read, paths):
        count = sum(tenant["count"] for tenant in record["tenants"])
        good = sum(each[0] for tenant in record["tenants"] if (each := good_count(tenant, limits)))
        if is_valid(record) and count:
            found.append(((good / count,) * 3, count))
    return found


def _within_slo(repeats: Sequence[Repeat]) -> TableRow:
    shares = [share for share, _ in repeats]
    names = ("within_slo_ratio", "within_slo_ratio_least", "within_slo_ratio_most")
    return {name: sum(values) / len(values) for name, values in zip(names, zip(*shares, strict=True), strict=False)}


def _goodput(repeats: Sequence[Repeat], window_seconds: float) -> Estimate | None:
    """Iterations within the SLO per second; None without repeats."""
    rates = [share[0] * count / window_seconds for share, count in repeats]
    return rate_interval(rates) if rates else None
