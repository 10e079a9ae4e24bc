"""tables/model.csv and predictions.csv: the scaling model of each workload, and what it says of every strategy."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sharebench.analysis.cells.rows import grouped
from sharebench.analysis.decide import scaling
from sharebench.analysis.decide.rows import MEAN, MEASURED, PREDICTED, SummaryRow
from sharebench.analysis.decide.scaling import Choice, Fit, Point
from sharebench.analysis.decide.shares import Device, parts
from sharebench.analysis.statistics.intervals import Estimate, mean_draws
from sharebench.core.strategies import Strategy
from sharebench.core.study_config import StudyConfig
from sharebench.records.tables import TableRow, frame

DRAWS = 200
FLAG_PERCENT = 5.0
"""Cells that are off by more break the model: cells of one kind fit within 2 %, other physics misses by 5 to 27 %."""
MOST_REPLICAS = 16
"""Every number of tenants is predicted up to twice the largest measured one, but not beyond this."""
UNITS = {
    scaling.SERIAL: "s",
    scaling.PARALLEL: "s x units",
    scaling.CONTENTION: "s per pair of tenants",
    scaling.SWITCHING: "ratio",
}
SIZE_NOT_KNOWN = "the number of the device's SMs is not known"


@dataclass(frozen=True)
class Prediction:
    """Mean latency in seconds, and draws of it, shape (draws,): from the repeats and from the model's own error; NaN
    where neither is known."""

    seconds: float
    draws: NDArray[np.float64]

    @property
    def estimate(self) -> Estimate:
        """With the 95 % interval of the draws."""
        if not np.isfinite(self.draws).all():
            return Estimate(self.seconds, math.nan, math.nan)
        return Estimate(self.seconds, *np.quantile(self.draws, [0.025, 0.975]))


@dataclass(frozen=True)
class Model:
    """The scaling model of one workload; `choice` is None where there is none, for that `reason`."""

    workload: str
    points: Sequence[Point]
    choice: Choice | None
    draws: Sequence[Fit]
    """Fits to draws of the repeats; empty where a cell has no repeats."""
    intervals: Mapping[str, tuple[float, float]]
    """Of the chosen shape's parameters; empty where no two repeats have all cells."""
    left_out: Mapping[tuple[str, int], float | None]
    reason: str

    def error(self, strategy: str) -> float:
        """Standard deviation of the log of a prediction, from points that were left out: for a strategy that was
        measured one at a time, for another one all of a strategy."""
        assert self.choice is not None
        one = self.choice.error or 0.0
        known = [error for error in self.left_out.values() if error is not None]
        if any(point.strategy == strategy for point in self.points) or not known:
            return one
        return max(one, math.sqrt(sum(error * error for error in known) / len(known)))

    def predict(self, asked: Sequence[tuple[Strategy, int]], device: Device) -> list[Prediction | None]:
        """Of each strategy with its number of tenants; None where nothing is known."""
        shared = [parts(strategy, replicas, device) for strategy, replicas in asked]
        values = [self.choice.fit.seconds(each) if self.choice and each else None for each in shared]
        told = [each for each, value in zip(shared, values, strict=True) if each is not None and value is not None]
        fits = iter(scaling.seconds_of(self.draws, told).T if told and self.draws else ())
        return [
            None if value is None else Prediction(value, self._drawn(strategy.name, next(fits, np.full(DRAWS, value))))
            for (strategy, _), value in zip(asked, values, strict=True)
        ]

    def _drawn(self, strategy: str, fits: NDArray[np.float64]) -> NDArray[np.float64]:
        error = self.error(strategy)
        rng = np.random.default_rng(list(strategy.encode()))
        noise = np.exp(rng.normal(0.0, error, len(fits))) if error else np.full(len(fits), math.nan)
        return fits * (noise if error or not self.draws else 1.0)


def is_modelled(workload: str, config: StudyConfig) -> str | None:
    """Why the scaling model is not for this workload; None if it is."""
    entry = config["workload_catalogue"].get(workload)
    if entry is None or entry.get("tenants") is not None:
        return "tenants of a mix differ from each other"
    if entry["load"]["arrival"] != "closed":
        return "an open load does not keep the device busy"
    return None if entry["kind"] == "loop" else f"iterations of kind {entry['kind']} are not those of a loop"


def repeat_means(cells: pd.DataFrame) -> dict[tuple[str, str, int], dict[int, float]]:
    """Mean latency of all tenants' iterations in each valid cell by repeat, by strategy, workload and replicas."""
    keys = ["strategy", "workload", "replicas", "repeat"]
    used = cells[cells["valid"] & (cells["count"] > 0)]
    sums = used.assign(total=used["count"] * used[MEAN]).groupby(keys)[["total", "count"]].sum()
    means: dict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
    for row in (sums["total"] / sums["count"]).reset_index(name="seconds").to_dict("records"):
        means[row["strategy"], row["workload"], int(row["replicas"])][int(row["repeat"])] = float(row["seconds"])
    return means


def models(
    summary: Sequence[SummaryRow],
    cells: pd.DataFrame,
    config: StudyConfig,
    strategies: Mapping[str, Strategy],
    device: Device,
) -> dict[str, Model]:
    """The model of each workload of the summary that is not a pair."""
    means = repeat_means(cells)
    found = {}
    for workload, own in grouped((row for row in summary if "+" not in row.workload), lambda row: row.workload).items():
        reason = is_modelled(workload, config) or ""
        points, repeats = [], []
        for row in own:
            key, strategy = (row.strategy, workload, row.replicas), strategies.get(row.strategy)
            shared = parts(strategy, row.replicas, device) if strategy and not reason and row.n else None
            if shared is not None and key in means and MEAN in row.metrics:
                points.append(Point(row.strategy, row.replicas, shared, row.metrics[MEAN].value))
                repeats.append(means[key])
        if not points and not reason:
            reason = SIZE_NOT_KNOWN if device.units is None else "no valid cell of a known share of the device"
        found[workload] = _model(workload, points, repeats, reason)
    return found


def _model(workload: str, points: Sequence[Point], repeats: Sequence[Mapping[int, float]], reason: str) -> Model:
    choice = scaling.choose(points)
    if choice is None:
        return Model(workload, points, None, [], {}, {}, reason)
    rng = np.random.default_rng(list(workload.encode()))
    drawn = np.array([mean_draws(list(values.values()), DRAWS, rng) for values in repeats]).T
    draws = scaling.refit(choice.fit, points, drawn) if np.isfinite(drawn).all() else []
    whole = sorted(set.intersection(*(set(values) for values in repeats)))
    apart = np.array([[values[repeat] for values in repeats] for repeat in whole])
    intervals = scaling.intervals(choice.fit, points, apart)
    return Model(workload, points, choice, draws, intervals, scaling.left_out_strategies(points), reason)


def model_table(models: Mapping[str, Model]) -> pd.DataFrame:
    """One row per workload, shape and parameter; intervals for the chosen shape only."""
    rows: list[TableRow] = []
    for name, model in models.items():
        shared: TableRow = {"workload": name, "cells": len(model.points)}
        if model.choice is None:
            rows.append({**shared, "chosen": False, "reason": model.reason})
            continue
        for shape, error in model.choice.errors.items():
            is_chosen = shape == model.choice.fit.shape
            fitted = model.choice.fit if is_chosen else scaling.fit(model.points, shape)
            of_shape: TableRow = {
                **shared,
                "shape": shape,
                "chosen": is_chosen,
                "leave_one_out_error_percent": None if error is None else 100 * math.expm1(error),
                "reason": "" if fitted else "these cells do not determine its parameters",
            }
            for parameter, value in (fitted.parameters if fitted else {"": None}).items():
                low, high = model.intervals.get(parameter, (None, None)) if is_chosen else (None, None)
                own = {"parameter": parameter or None, "unit": UNITS.get(parameter), "value": value}
                rows.append({**of_shape, **own, "low": low, "high": high})
    return frame("model", rows)


def prediction_table(
    models: Mapping[str, Model], summary: Sequence[SummaryRow], strategies: Mapping[str, Strategy], device: Device
) -> pd.DataFrame:
    """One row per workload, strategy and number of tenants that is possible and was measured or can be predicted."""
    rows = []
    for workload, model in models.items():
        measured = {(row.strategy, row.replicas): row for row in summary if row.workload == workload}
        sizes = {n for _, n in measured}
        sizes |= set(range(1, min(2 * max(sizes), MOST_REPLICAS) + 1))
        asked = [
            (strategy, n)
            for strategy in strategies.values()
            for n in sorted(sizes)
            if (row := measured.get((strategy.name, n))) is None or row.status == "ok"
            if device.infeasible(strategy, n) is None
        ]
        for (strategy, n), predicted in zip(asked, model.predict(asked, device), strict=True):
            row = measured.get((strategy.name, n))
            if predicted is not None or (row is not None and MEAN in row.metrics):
                rows.append(_prediction(model, strategy, n, device, row, predicted))
    return frame("predictions", rows)


def _prediction(
    model: Model,
    strategy: Strategy,
    replicas: int,
    device: Device,
    measured: SummaryRow | None,
    predicted: Prediction | None,
) -> TableRow:
    reason = model.reason
    if predicted is None and not reason:
        is_known = parts(strategy, replicas, device) is not None
        reason = "no cell determines it" if is_known else "its part of the device is not known"
    row: TableRow = {
        "strategy": strategy.name,
        "workload": model.workload,
        "replicas": replicas,
        "basis": PREDICTED,
        "reason": reason,
    }
    if predicted is not None:
        row |= predicted.estimate.columns("predicted_mean_seconds")
    mean = measured.metrics.get(MEAN) if measured else None
    if mean is None:
        return row
    row |= {"basis": MEASURED, **mean.columns("measured_mean_seconds")}
    if predicted is not None:
        residual_percent = 100 * (predicted.seconds / mean.value - 1)
        is_inside = mean.low is not None and mean.high is not None and mean.low <= predicted.seconds <= mean.high
        row["residual_percent"] = residual_percent
        row["flagged"] = abs(residual_percent) > FLAG_PERCENT and not is_inside
    left_out = model.left_out.get((strategy.name, replicas))
    row["left_out_residual_percent"] = None if left_out is None else 100 * math.expm1(left_out)
    return row
