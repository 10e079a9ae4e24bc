"""From the tables to what the rule of advice.py looks at: each strategy's levels, isolation and effort."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sharebench.analysis.decide import documented
from sharebench.analysis.decide.advice import Interval, Level, Option
from sharebench.analysis.decide.capacity import DRAWS, column, metric_draws, percentile_of
from sharebench.analysis.decide.documented import MEASURED, Evidence
from sharebench.analysis.decide.model import PREDICTED
from sharebench.analysis.decide.shares import Device
from sharebench.core.strategies import Strategy

# Statuses of cells for which no tenant was started.
NEVER_STARTED = ("infeasible", "not-measured")

MEAN, TOTAL = "latency_mean_seconds", "throughput_total_hz"
MOST_GROWTH = 1.1
"""Tenants count as isolated while their mean latency is at most this many times that of one alone with the strategy."""
Z = 1.959964
"""97.5 % quantile of the normal distribution."""


def options(
    workload: str,
    summary: pd.DataFrame,
    predictions: pd.DataFrame,
    strategies: Mapping[str, Strategy],
    device: Device,
    faults: Mapping[str, Evidence],
    is_open_load: bool = False,
) -> list[Option]:
    """One option per strategy that was measured with the workload or can be predicted, in the catalogue's order.

    `faults` holds what was measured of fault isolation, by strategy; of an open load latency decides.
    """
    found = []
    for name, strategy in strategies.items():
        if strategy.mechanisms == ("exclusive",) and name != "exclusive":
            # A second measurement of the same thing is no choice.
            continue
        measured = _rows(summary, name, workload)
        predicted = _rows(predictions[predictions["basis"] == PREDICTED], name, workload)
        levels = {level.replicas: level for row in predicted if (level := _predicted(row, strategy))}
        of_rows = (_measured(row, measured, strategy, is_open_load) for row in measured)
        levels |= {level.replicas: level for level in of_rows if level}
        if not levels:
            continue
        sizes = range(1, max(max(levels), *(int(row["replicas"]) for row in measured), 1) + 1)
        infeasible = {n: reason for n in sizes if (reason := device.infeasible(strategy, n))}
        infeasible |= _refused(measured)
        fitting = [int(row["tenants_that_fit"]) for row in measured if not pd.isna(row["tenants_that_fit"])]
        found.append(
            Option(
                name,
                levels,
                faults.get(name, documented.fault_isolation(strategy)),
                documented.effort(strategy)[0],
                strategy.mechanisms != ("exclusive",),
                infeasible,
                min(fitting, default=None),
            )
        )
    return found


def _refused(measured: list[dict[str, Any]]) -> dict[int, str]:
    """Why there is nothing valid of so many tenants; between two that were not even tried, none is predicted."""
    found = {int(row["replicas"]): str(row["reason"] or row["status"]) for row in measured if row["n"] == 0}
    impossible = sorted(int(row["replicas"]) for row in measured if row["status"] in NEVER_STARTED)
    if len(impossible) == len(measured):
        for low, high in pairwise(impossible):
            found |= dict.fromkeys(range(low + 1, high), found[low])
    return found


def _rows(table: pd.DataFrame, strategy: str, workload: str) -> list[dict[str, Any]]:
    own = table[(table["strategy"] == strategy) & (table["workload"] == workload)]
    return [{str(key): value for key, value in row.items()} for row in own.to_dict("records")]


def interval(row: Mapping[str, Any], metric: str, seed: int) -> Interval | None:
    """A metric of a row of the summary; None where it is blank."""
    if math.isnan(row[metric]):
        return None
    low, high = (None if math.isnan(row[f"{metric}{end}"]) else row[f"{metric}{end}"] for end in ("_low", "_high"))
    rng = np.random.default_rng([seed, int(row["replicas"]), *str(row["strategy"]).encode()])
    return Interval(row[metric], low, high, metric_draws(row, metric, rng))


def _measured(
    row: Mapping[str, Any], rows: list[dict[str, Any]], strategy: Strategy, is_open_load: bool
) -> Level | None:
    percentile = percentile_of([row]) if row["n"] > 0 else None
    latency = interval(row, column(percentile), 1) if percentile else None
    if percentile is None or latency is None:
        return None
    one = next((each[MEAN] for each in rows if each["replicas"] == 1 and not math.isnan(each[MEAN])), None)
    isolation = documented.performance_isolation(strategy)
    if one is not None and row["replicas"] > 1:
        growth = row[MEAN] / one
        text = f"{row['replicas']} tenants take {growth:.2f} times as long as one with this strategy"
        isolation = Evidence(growth <= MOST_GROWTH, MEASURED, text)
    mean = interval(row, MEAN, 4) if is_open_load else None
    prompt = mean and Interval(
        1 / mean.value, mean.high and 1 / mean.high, mean.low and 1 / mean.low, _inverted(mean.draws)
    )
    return Level(int(row["replicas"]), True, percentile, latency, interval(row, TOTAL, 2), isolation, prompt)


def _inverted(draws: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    return None if draws is None else 1 / draws


def _predicted(row: Mapping[str, Any], strategy: Strategy) -> Level | None:
    """The mean, which is all that the model knows; throughput of closed loops by Little's law."""
    mean, low, high = (row[f"predicted_mean_seconds{end}"] for end in ("", "_low", "_high"))
    if math.isnan(mean):
        return None
    n, draws = int(row["replicas"]), None
    if math.isnan(low):
        low = high = None
    else:
        rng = np.random.default_rng([3, n, *strategy.name.encode()])
        draws = mean * np.exp(math.log(high / low) / 2 / Z * rng.standard_normal(DRAWS))
    throughput = Interval(n / mean, high and n / high, low and n / low, None if draws is None else n / draws)
    return Level(
        n, False, "mean", Interval(mean, low, high, draws), throughput, documented.performance_isolation(strategy)
    )
