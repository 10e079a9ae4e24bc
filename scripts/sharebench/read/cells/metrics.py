"""The metrics in which cells are compared, with the buckets' error of percentiles, and why a percentile is blank."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from sharebench.model.study_config import StudyConfig, has_streams
from sharebench.read.cells.rows import (
    NEEDED_COUNT,
    PERCENTILES,
    STAGE_METRICS,
    MeasuredCell,
    StageSample,
    percentile_of,
)
from sharebench.read.columns import SLO, STREAMS, STUDY_KINDS, columns, table_columns
from sharebench.read.histogram import Quantile
from sharebench.read.slo import PART_LABELS, format_slo
from sharebench.read.statistics.intervals import Estimate, log_interval

MEAN, TOKEN_COST = "latency_mean_seconds", "cost_per_million_tokens"
RULES = {column.name: column.rule for column in table_columns("metrics") if column.rule != ("", "")}
"""The metrics that come from one column of cells.csv, with how, and that column."""
OVER_TENANTS: Mapping[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "max": max,
}
QUANTILES = {f"latency_{name}_seconds": name for name in NEEDED_COUNT} | {
    f"{name}_seconds": name for name in STAGE_METRICS
}
PERCENTILE_LABELS = {name: name for name in NEEDED_COUNT} | {"p999": "p99.9"}
PERCENTILE_LABELS |= {name: f"{PART_LABELS[stage]} {percentile}" for name, (stage, percentile) in STAGE_METRICS.items()}


def study_kinds(config: StudyConfig) -> set[str]:
    """Which of `columns.STUDY_KINDS` a study is."""
    return {kind for kind, holds in ((STREAMS, has_streams(config)), (SLO, format_slo(config["slo"]))) if holds}


def optional_metrics(studies: Collection[str]) -> list[str]:
    """The metrics that only these kinds of study have.

    Cost is left out, as it compares the same as its tokens, and so are `optional` ones, neither good nor bad.
    """
    every = columns("metrics", STUDY_KINDS & {*studies})
    return [metric for metric in every if metric not in (*columns("metrics"), TOKEN_COST)]


def over_tenants(cell: MeasuredCell, metric: str) -> float | None:
    """One of RULES, from the device's or the tenants' columns; None where none is known."""
    how, column = RULES[metric]
    if how == "device":
        return cell.device_columns.get(column)
    known = cell.values(column)
    return OVER_TENANTS[how](known) if known else None


def cell_value(cell: MeasuredCell, metric: str) -> float | None:
    """The mean latency, a percentile or one of RULES; None where it is 0 or not known."""
    if metric == MEAN:
        return cell.latency_mean_seconds or None
    if metric in QUANTILES:
        quantile = cell.percentiles.get(QUANTILES[metric])
        return None if quantile is None else quantile.value_seconds
    return over_tenants(cell, metric) or None


def group_percentile(name: str, cells: Sequence[MeasuredCell]) -> Estimate | None:
    """Geometric mean of a percentile over the cells, Student's interval widened by the buckets' error.

    None unless all cells have it: those that lack it are the disturbed ones, and a mean of the others would flatter.
    Each exact percentile is anywhere within its bucket, perhaps all of them at the same end, so the interval's ends
    are moved by the geometric mean of bound over value.
    """
    quantiles = [cell.percentiles[name] for cell in cells if name in cell.percentiles]
    if not cells or len(quantiles) < len(cells):
        return None
    places = [cell.place for cell in cells]
    estimate = log_interval([_value(quantile) for quantile in quantiles], places)
    if estimate.low is None or estimate.high is None:
        return estimate
    lows = [quantile.low_seconds / _value(quantile) for quantile in quantiles]
    # The first bucket of a program's own histogram begins at 0.
    below = log_interval(lows, places).value if min(lows) > 0 else 0.0
    above = log_interval([quantile.high_seconds / _value(quantile) for quantile in quantiles], places).value
    return Estimate(estimate.value, estimate.low * below, estimate.high * above, estimate.n)


def percentile_note(name: str, cells: Sequence[MeasuredCell]) -> str | None:
    """Why a percentile is blank in some of the valid cells; None if it is not."""
    blank = [cell for cell in cells if name not in cell.percentiles]
    if not blank or (name in STAGE_METRICS and not any(STAGE_METRICS[name][0] in cell.stages for cell in blank)):
        return None
    share = "" if len(blank) == len(cells) else f" in {len(blank)} of {len(cells)} cells"
    label, needed, unit = PERCENTILE_LABELS[name], NEEDED_COUNT[percentile_of(name)], "iterations"
    failed = max(cell.failed_ratio for cell in blank)
    if failed >= 1 - PERCENTILES[percentile_of(name)]:
        return f"{label} is not known: {failed:.1%} failed{share}"
    cell = max(blank, key=lambda cell: cell.effective_count)
    sample: MeasuredCell | StageSample = cell
    if name in STAGE_METRICS:
        cell, unit, stage = blank[0], "requests", STAGE_METRICS[name][0]
        known = (each.stages[stage] for each in blank if stage in each.stages)
        sample = max(known, key=lambda each: each.effective_count)
    elif needed == max(NEEDED_COUNT.values()) and sample.effective_count < needed:
        # Few windows are long enough, so all rows share one note without their own sample size.
        return f"{label} needs {needed} independent iterations{share}"
    elif sample.count < needed:
        return (
            f"{label} needs {needed} iterations, had {sample.count}{share}{_needed_window(needed, sample.count, cell)}"
        )
    if sample.effective_count >= needed:
        is_scraped = any(row.scrape_error_percent is not None for each in blank for row in each.rows)
        where = "not in the program's own metrics" if is_scraped else "outside the buckets (1 µs to 1000 s)"
        return f"{label} is {where}{share}"
    size = f"the effective sample size of {sample.count} is {math.floor(sample.effective_count)}"
    window = _needed_window(needed, sample.effective_count, cell)
    return f"{label} needs {needed} independent {unit}, {size}{share}{window}"


def _needed_window(needed: int, had: float, cell: MeasuredCell) -> str:
    """The length of a window that would have as many, as text; empty where it is not known."""
    if cell.window_seconds is None or had < 1:
        return ""
    seconds = cell.window_seconds * needed / had
    return f" (windows of about {float(f'{seconds:.2g}'):g} s have as many)"


def _value(quantile: Quantile) -> float:
    assert quantile.value_seconds is not None, "a percentile without a value was kept"
    return quantile.value_seconds
