"""tables/summary.csv: one row per strategy, workload, workload of the tenants and number of replicas, over its repeats.

Each value is the geometric mean over the valid repeats, with a 95 % interval. A mix has a row for each workload of its
tenants. Mean latency and percentiles of a cell are over all these tenants' latencies together. Throughput, memory per
tenant and slowdown are means over these tenants. Power and energy are the device's, and the `multiprogram` metrics
include all tenants of the cell.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import pandas as pd

from sharebench.model.strategies import is_control
from sharebench.read.cells.metrics import (
    MEAN,
    QUANTILES,
    RULES,
    TOKEN_COST,
    group_percentile,
    over_tenants,
    percentile_note,
)
from sharebench.read.cells.multiprogram import FORMULAS, group_metrics
from sharebench.read.cells.rows import GROUP_COLUMNS, PERCENTILES, GroupKey, MeasuredCell, outcome_columns
from sharebench.read.cells.slowdown import Baseline, Separability, group_ratio, group_slowdown
from sharebench.read.columns import SLO, TableRow, columns, table_columns, table_frame
from sharebench.read.grouping import group_by
from sharebench.read.histogram import merge
from sharebench.read.slo import dollars_per_million
from sharebench.read.statistics.intervals import Estimate, Place, log_interval, rate_interval, surely_below
from sharebench.study.cells import Cell, pair_name

METRICS = tuple(column.name for column in table_columns("metrics"))
"""All metrics, some of some studies only; each has a column per METRIC_SUFFIXES, percentiles one more."""
METRIC_SUFFIXES = ("", "_low", "_high", "_n", "_n_excluded")
BUCKET_ERROR = "_bucket_error_percent"
POSSIBLY_ZERO = {column.name for column in table_columns("metrics") if "zero" in column.words}
# Metrics that only GPUs, streams or some records have; elsewhere a blank needs no note.
OPTIONAL_METRICS = {"throughput_per_watt"} | {
    column.name for column in table_columns("metrics") if column.rule[0] == "device" or column.studies - {SLO}
}
# Metrics that are not a mean of one value per cell.
DERIVED = ("slowdown", *FORMULAS, "isolation_index")
# Warnings whose message a note quotes: failures, and the client's part.
TOLD_WARNINGS = ("errors", "outage", "new_connections", "generator_cost", "generator_gap", "token_count")
UNIT = re.compile(r"_(seconds|hz|mib|watts|joules|percent)$")


def summary_table(
    cells: Iterable[MeasuredCell],
    expected: Iterable[tuple[Cell, str]],
    baseline: Baseline,
    studies: Collection[str] = (),
    price_per_hour: float | None = None,
) -> pd.DataFrame:
    """One row per group of `expected`, in its order.

    `cells` come from `split_by_workload`; `expected` are cells with the workloads of their tenants. `studies` are the
    kinds of study that this one is (`columns.STUDY_KINDS`), and its columns of cells.csv.
    """
    metrics = columns("metrics", studies)
    wanted = group_by(expected, lambda each: (each[0].strategy, each[0].workload, each[1], each[0].replicas))
    found = group_by(cells, lambda cell: cell.group)
    separability = Separability((cell for own in found.values() for cell in own), baseline)
    rows = []
    for group, cells_of_group in wanted.items():
        strategy, _, tenant_workload, replicas = group
        alone = found[strategy, tenant_workload, tenant_workload, 1] if replicas > 1 else []
        alone = [cell for cell in alone if cell.valid]
        row = _row(group, len(cells_of_group), found[group], alone, baseline, metrics, price_per_hour)
        if not baseline.includes(strategy, replicas) and not is_control(strategy):
            valid = [cell for cell in found[group] if cell.valid]
            row["separable"] = separability.verdict(tenant_workload, group_slowdown(valid, baseline)[0])
            if row["separable"] == "no":
                note = "slowdown not separable from the difference of the baseline from itself"
                row["notes"] = f"{row['notes']}; {note}" if row["notes"] else note
        rows.append(row)
    ends = {metric: (*METRIC_SUFFIXES, *((BUCKET_ERROR,) if metric in QUANTILES else ())) for metric in metrics}
    metric_columns = (f"{metric}{end}" for metric in metrics for end in ends[metric])
    return table_frame("summary", rows, (*columns("summary"), *metric_columns))


def interference_table(summary: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """tables/interference.csv: one row per strategy with pairs, victim and aggressor, from the summary's rows."""
    pairs = pd.DataFrame(
        [(pair_name(victim, aggressor), victim, aggressor) for victim in names for aggressor in names],
        columns=["workload", "victim", "aggressor"],
    )
    victims = summary.rename(columns={"tenant_workload": "victim"})
    victims = victims[["workload", *(name for name in columns("interference") if name != "aggressor")]]
    rows = pairs.merge(victims, on=["workload", "victim"])
    rank = {strategy: rank for rank, strategy in enumerate(dict.fromkeys(summary["strategy"]))}
    rows = rows.sort_values("strategy", key=lambda strategies: strategies.map(rank), kind="stable")
    return rows[list(columns("interference"))]


def _row(
    group: GroupKey,
    n_expected: int,
    cells: Sequence[MeasuredCell],
    alone: Sequence[MeasuredCell],
    baseline: Baseline,
    metrics: Collection[str],
    price_per_hour: float | None,
) -> TableRow:
    """`alone` are the valid cells of the same strategy and workload with one tenant."""
    valid = [cell for cell in cells if cell.valid]
    row: TableRow = {
        **dict(zip(GROUP_COLUMNS, group, strict=True)),
        **outcome_columns((cell.status for cell in cells), (cell.reason for cell in cells), n_expected, valid),
        "n_excluded": len(cells) - len(valid),
        "warnings": sum(bool(cell.warnings) for cell in valid),
    }
    notes = _cell_notes(n_expected, cells)
    estimates: dict[str, Estimate | None] = {}
    of_cells = [_cell_values(cell, price_per_hour) for cell in valid]
    for metric in (metric for metric in metrics if metric not in (*DERIVED, *QUANTILES)):
        values = [each[metric] for each in of_cells]
        estimates[metric] = _estimate(metric, values, [cell.place for cell in valid])
        notes.append(_blank_note(metric, values))
    for metric, name in ((metric, name) for metric, name in QUANTILES.items() if metric in metrics):
        estimates[metric] = group_percentile(name, valid)
        notes.append(percentile_note(name, valid))
        bounds = [cell.percentiles[name].error_percent for cell in valid if name in cell.percentiles]
        row[f"{metric}{BUCKET_ERROR}"] = max(bounds, default=None)
    estimates["slowdown"], note = group_slowdown(valid, baseline)
    notes.append(note)
    estimates |= group_metrics(valid, baseline)
    estimates["isolation_index"] = isolation_index(valid, alone)
    for metric, estimate in estimates.items():
        n = estimate.n if estimate else 0
        row |= {f"{metric}_n": n, f"{metric}_n_excluded": len(cells) - n}
        row |= estimate.columns(metric) if estimate else {}
    errors = [row.scrape_error_percent for cell in valid for row in cell.rows if row.scrape_error_percent is not None]
    if errors:
        notes.append(f"between two scrapes: means and rates within {max(errors):.2g} %")
    notes += dict.fromkeys(note for cell in valid for note in cell.notes)
    if len(valid) == 1:
        notes.append("no intervals from one cell")
    fitting = min((cell.tenants_that_fit for cell in valid if cell.tenants_that_fit is not None), default=None)
    return row | {
        "notes": "; ".join(filter(None, notes)),
        "tenants_that_fit": fitting,
        "latency_p95_at_least_seconds": _p95_at_least(valid),
        "scrape_error_percent": max(errors, default=None),
    }


def _p95_at_least(cells: Sequence[MeasuredCell]) -> float | None:
    """A lower 95 % bound on the p95 of these cells together; None where each has its p95.

    It is no longer than the 95th percentile of any cell's sample, so that one disturbed cell does not raise it.
    """
    q, place = PERCENTILES["p95"], surely_below(PERCENTILES["p95"], sum(cell.effective_count for cell in cells))
    if not place or all("p95" in cell.percentiles for cell in cells) or not all(cell.histogram.count for cell in cells):
        return None
    together = merge(cell.histogram for cell in cells).quantiles([place])
    own = [quantile for cell in cells for quantile in cell.histogram.quantiles([q])]
    return min(quantile.low_seconds for quantile in (*together, *own)) or None


def isolation_index(shared: Sequence[MeasuredCell], alone: Sequence[MeasuredCell]) -> Estimate | None:
    """1 - (T_shared - T_alone) / T_alone, with the mean latencies T next to neighbours and, same strategy, without any.

    1 if neighbours have no effect, 0 if they double the latency, negative beyond. The interval comes from the ratio of
    the latencies (`group_ratio`). None where either has no valid cell.
    """
    ratio = group_ratio(shared, alone)
    if ratio is None or ratio.low is None or ratio.high is None:
        return ratio and Estimate(2 - ratio.value, n=ratio.n)
    return Estimate(2 - ratio.value, 2 - ratio.high, 2 - ratio.low, ratio.n)


def _cell_values(cell: MeasuredCell, price_per_hour: float | None) -> dict[str, float | None]:
    """The value of each metric that is a plain mean over cells; None where the cell has none."""
    rate, tokens = (over_tenants(cell, f"{each}_total_hz") for each in ("throughput", "output_tokens"))
    watts = cell.device_columns["power_mean_watts"]
    # The power of a mix cannot be attributed to a workload.
    is_comparable = len({row.tenant_workload for row in cell.all_rows}) == 1
    cost = None
    if price_per_hour is not None and tokens:
        # The device's price is divided by the tokens of all its tenants.
        cost = dollars_per_million(price_per_hour, sum(row.output_tokens_hz or 0.0 for row in cell.all_rows))
    return {metric: over_tenants(cell, metric) for metric in RULES} | {
        MEAN: cell.latency_mean_seconds,
        "throughput_per_watt": rate / watts if rate and watts and is_comparable else None,
        TOKEN_COST: cost,
    }


def _estimate(metric: str, values: Sequence[float | None], places: Sequence[Place]) -> Estimate | None:
    # A geometric mean cannot include a zero, or energy below idle. Leaving those cells out would bias the mean.
    present = [value for value in values if value is not None]
    own = [place for value, place in zip(values, places, strict=True) if value is not None]
    if metric in POSSIBLY_ZERO and present:
        return rate_interval(present, own)
    return log_interval(present, own) if present and min(present) > 0 else None


def _cell_notes(n_expected: int, cells: Sequence[MeasuredCell]) -> list[str | None]:
    """Notes on cells that are missing, excluded, or counted with a warning."""
    notes: list[str | None] = []
    if len(cells) < n_expected:
        notes.append(f"{n_expected - len(cells)} of {n_expected} cells missing")
    for status, number in Counter(cell.status for cell in cells if cell.status != "ok").items():
        notes.append(f"{number} of {n_expected} cells {status}")
    for gate, number in Counter(gate for cell in cells for gate in cell.failed_gates).items():
        notes.append(f"{number} of {n_expected} cells excluded by {gate}")
    warned = [(gate, text) for cell in cells if cell.valid for gate, text in cell.warnings.items()]
    for gate, number in Counter(gate for gate, _ in warned).items():
        text = dict(reversed(warned))[gate] if gate in TOLD_WARNINGS else ""
        example = f" ({text.replace('; ', ', ')})" if text else ""
        notes.append(f"{number} of {n_expected} cells with a warning: {gate}{example}")
    return notes


def _blank_note(metric: str, values: Sequence[float | None]) -> str | None:
    """Why a metric, or its interval, is blank in some of the valid cells."""
    name = UNIT.sub("", metric).replace("_", " ")
    below = sum(value is not None and value <= 0 for value in values)
    blank = values.count(None)
    if metric not in POSSIBLY_ZERO and below:
        return f"{name} not above 0 in {below} of {len(values)} cells"
    if blank and not (metric in OPTIONAL_METRICS and blank == len(values)):
        return f"{name} not known" + (f" in {blank} of {len(values)} cells" if blank < len(values) else "")
    return f"{name} has no interval with a 0 among its values" if 0 < below < len(values) - blank else None
