"""The metrics in which cells are compared: those of a study, and the value of one in a cell."""

from collections.abc import Collection

from sharebench.analysis.cells.percentiles import QUANTILES
from sharebench.analysis.cells.rows import MeasuredCell
from sharebench.analysis.slo import limits
from sharebench.core.study_config import StudyConfig, has_streams
from sharebench.records.tables import ACTIVITY, SLO, STREAMS, columns

MEAN, COST = "latency_mean_seconds", "cost_per_million_tokens"
TOTALS = {"throughput_total_hz": "throughput_hz", "output_tokens_total_hz": "output_tokens_hz"}
TOTALS |= {"goodput_total_hz": "goodput_hz"}
"""Sums over a cell's tenants, each with the column of one."""


def kinds_of(config: StudyConfig) -> set[str]:
    """Which of `records.tables.OF_STUDIES` a study is."""
    return {kind for kind, holds in ((STREAMS, has_streams(config)), (SLO, limits(config["slo"]))) if holds}


def of_kinds(studies: Collection[str]) -> list[str]:
    """The metrics that only these kinds of study have.

    A cost compares no more than its tokens do, and activity is neither good nor bad.
    """
    every = columns("metrics", {*studies} - {ACTIVITY})
    return [metric for metric in every if metric not in (*columns("metrics"), COST)]


def value_of(cell: MeasuredCell, metric: str) -> float | None:
    """The mean latency, a percentile or a total of the cell; None for one that is 0 or not known."""
    if metric in TOTALS:
        return cell.total(TOTALS[metric]) or None
    if metric in QUANTILES:
        quantile = cell.percentiles.get(QUANTILES[metric])
        return None if quantile is None else quantile.value_seconds
    return cell.latency_mean_seconds or None
