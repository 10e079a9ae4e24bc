"""The metrics in which cells are compared, with the buckets' error of percentiles, and why a percentile is blank."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

from sharebench.model.study_config import StudyConfig, has_streams
from sharebench.read.cells.rows import NEEDED_COUNT, PERCENTILES, STAGE_METRICS, MeasuredCell, percentile_of
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
        return cast(Mapping[str, float | None], cell.device_columns)[column]
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
    failed = max(cell.failed_ratio for cell in blank)
    if failed >= 1 - PERCENTILES[percentile_of(name)]:
        return f"{PERCENTILE_LABELS[name]} is not known: {failed:.1%} failed{share}"
    if name in STAGE_METRICS:
        stage, percentile = STAGE_METRICS[name]
        best = max(
            (cell.stages[stage] for cell in blank if stage in cell.stages), key=lambda each: each.effective_count
        )
        size_text = f"the effective sample size of {best.count} is {math.floor(best.effective_count)}"
        needed = NEEDED_COUNT[percentile]
        window = _needed_window(needed, best.effective_count, blank[0])
        return f"{PERCENTILE_LABELS[name]} needs {needed} independent requests, {size_text}{share}{window}"
    needed, most = NEEDED_COUNT[name], max(blank, key=lambda cell: cell.effective_count)
    if name == max(NEEDED_COUNT, key=lambda each: NEEDED_COUNT[each]) and most.effective_count < needed:
        # Few windows are long enough, so all rows share one note without their own sample size.
        return f"{PERCENTILE_LABELS[name]} needs {needed} independent iterations{share}"
    if most.count < needed:
        window = _needed_window(needed, most.count, most)
        return f"{PERCENTILE_LABELS[name]} needs {needed} iterations, had {most.count}{share}{window}"
    if most.effective_count < needed:
        size = math.floor(most.effective_count)
        size_text = f"the effective sample size of {most.count} is {size}"
        window = _needed_window(needed, most.effective_count, most)
        return f"{PERCENTILE_LABELS[name]} needs {needed} independent iterations, {size_text}{share}{window}"
    if any(row.scrape_error_percent is not None for cell in blank for row in cell.rows):
        return f"{PERCENTILE_LABELS[name]} is not in the program's own metrics{share}"
    return f"{PERCENTILE_LABELS[name]} is outside the buckets (1 µs to 1000 s){share}"


def _needed_window(needed: int, had: float, cell: MeasuredCell) -> str:
    """The length of a window that would have as many, as text; empty where it is not known."""
    if cell.window_seconds is None or had < 1:
        return ""
    seconds = cell.window_seconds * needed / had
    return f" (windows of about {float(f'{seconds:.2g}'):g} s have as many)"


def _value(quantile: Quantile) -> float:
    assert quantile.value_seconds is not None, "a percentile without a value was kept"
    return quantile.value_seconds
