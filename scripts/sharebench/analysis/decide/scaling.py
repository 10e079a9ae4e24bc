"""The scaling model: mean latency of a closed loop by strategy and number of tenants, from two to four numbers.

A part of the device with `units` SMs, on which `n` tenants run together or take `t` turns, has (x is n / units):

* affine: T = t (1 + eps) (a + w x). On the whole device of S SMs that is s = a + w / S alone, N s (1 + eps) under
  time-slicing, a + N w / S under MPS, and a + w / k in a MIG instance of k SMs.
* floor: T = t (1 + eps) max(a, w x), for work that a part of the device serves as fast as the whole.
* curved: affine with c n (n - 1) added: tenants at the same time that also wait for each other's memory traffic.

eps is 0 where no tenants alternate. Each is fitted to the logs of all cells of a workload at once, by least squares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import leastsq
from scipy.special import stdtrit

from sharebench.analysis.cells.rows import grouped
from sharebench.analysis.decide.shares import Part
from sharebench.analysis.statistics.intervals import CONFIDENCE

Floats = NDArray[np.float64]

SERIAL, PARALLEL, CONTENTION, SWITCHING = "serial_seconds", "parallel_unit_seconds", "contention_seconds", "switching"
SHAPES: Mapping[str, tuple[str, ...]] = {
    "affine": (SERIAL, PARALLEL),
    "floor": (SERIAL, PARALLEL),
    "curved": (SERIAL, PARALLEL, CONTENTION),
}
LEAST_GAIN = 0.1
"""Another shape than the first must lower the leave-one-out error by at least this part: noise alone may do a bit."""
STARTS = (0.05, 0.5, 0.95)
"""Serial parts of s from which the search begins; the best end counts."""


@dataclass(frozen=True)
class Point:
    """Mean latency of a strategy at one number of tenants, with the parts of the device that these have."""

    strategy: str
    replicas: int
    parts: tuple[Part, ...]
    seconds: float


@dataclass(frozen=True)
class Fit:
    """Parameters of one shape; those that the points say nothing about are missing."""

    shape: str
    parameters: Mapping[str, float]
    shares: frozenset[float]
    """The shares that were seen, where only one was: then nothing is known about others."""

    def seconds(self, parts: Sequence[Part]) -> float | None:
        """Mean latency of the tenants on `parts` together; None where the points say nothing about such parts."""
        if SERIAL not in self.parameters or (SWITCHING not in self.parameters and any(p.turns > 1 for p in parts)):
            return None
        if PARALLEL not in self.parameters and not {_rounded(part.share) for part in parts} <= self.shares:
            return None
        return float(seconds_of([self], [parts])[0, 0])


def seconds_of(fits: Sequence[Fit], points: Sequence[Sequence[Part]]) -> Floats:
    """Mean latency of each point by each fit, shape (fits, points), of points that the fits say something about."""
    design = _Design(points)
    return np.array([design.seconds(fit.shape, fit.parameters) for fit in fits])


class _Design:
    def __init__(self, points: Sequence[Sequence[Part]]) -> None:
        flat = [(index, part) for index, parts in enumerate(points) for part in parts]
        self.index = np.array([index for index, _ in flat])
        self.tenants = np.array([part.tenants for _, part in flat], dtype=float)
        self.turns = np.array([part.turns for _, part in flat], dtype=float)
        self.share = np.array([part.share for _, part in flat])
        self.pairs = np.array([part.together * (part.together - 1) for _, part in flat], dtype=float)

    def _each(self, shape: str, values: Mapping[str, float]) -> tuple[Floats, Floats, Floats]:
        """Serial and spread work of each part (of a floor the smaller one is 0), and the latency there."""
        serial, spread = np.full(self.share.size, values[SERIAL]), values.get(PARALLEL, 0.0) * self.share
        if shape == "floor":
            serial, spread = np.where(serial >= spread, serial, 0.0), np.where(serial < spread, spread, 0.0)
        work = serial + spread + values.get(CONTENTION, 0.0) * self.pairs
        return serial, spread, work * self.turns * np.where(self.turns > 1, 1 + values.get(SWITCHING, 0.0), 1.0)

    def seconds(self, shape: str, values: Mapping[str, float]) -> Floats:
        """Mean latency of each point: where parts differ, that of all iterations together, N over the sum of rates."""
        _, _, each = self._each(shape, values)
        result: Floats = np.bincount(self.index, self.tenants) / np.bincount(self.index, self.tenants / each)
        return result

    def slopes(self, shape: str, values: Mapping[str, float]) -> Floats:
        """Change of the logs of `seconds` with the logs of `values` (of eps: 1 + eps), shape (points, values)."""
        serial, spread, each = self._each(shape, values)
        queue = values.get(CONTENTION, 0.0) * self.pairs
        is_switching = (self.turns > 1).astype(float)
        work = serial + spread + queue
        parts = {SERIAL: serial / work, PARALLEL: spread / work, CONTENTION: queue / work, SWITCHING: is_switching}
        rates = self.tenants / each
        total = np.bincount(self.index, rates)
        return np.column_stack([np.bincount(self.index, rates * parts[name]) / total for name in values])


def fit(points: Sequence[Point], shape: str, near: Fit | None = None) -> Fit | None:
    """The shape with the least sum of squared log residuals; None where the points do not determine its parameters.

    The search begins at `near`, the fit to almost the same points, or else at several places.
    """
    if not points:
        return None
    names = _free(points, shape)
    if names is None or len(points) < len(names):
        return None
    design, observed = _Design([point.parts for point in points]), np.log([point.seconds for point in points])
    starts = _starts(points, shape) if PARALLEL in names else _starts(points, shape)[:1]
    if near is not None and set(names) == set(near.parameters):
        starts = [dict(near.parameters)]
    found = [_search(design, shape, observed, {name: start[name] for name in names}) for start in starts]
    parameters, _ = min(found, key=lambda each: each[1])
    shares = {_rounded(part.share) for point in points for part in point.parts}
    return Fit(shape, parameters, frozenset(shares) if PARALLEL not in names else frozenset())


def refit(fitted: Fit, points: Sequence[Point], seconds: Floats) -> list[Fit]:
    """`fitted` again to each row of `seconds`, shape (draws, points), beginning where it is."""
    design = _Design([point.parts for point in points])
    return [
        replace(fitted, parameters=_search(design, fitted.shape, row, fitted.parameters)[0]) for row in np.log(seconds)
    ]


def intervals(fitted: Fit, points: Sequence[Point], repeats: Floats) -> dict[str, tuple[float, float]]:
    """95 % interval of each parameter: Student's over the fits to each repeat, shape (repeats, points), on its own.

    A repeat is a small study of all points, so its fit errs as a whole repeat does, whatever the noise of a cell. The
    interval lies around the parameter of the fit to all. Empty for one repeat.
    """
    if len(repeats) < 2:
        return {}
    apart = refit(fitted, points, repeats)
    factor = float(stdtrit(len(repeats) - 1, (1 + CONFIDENCE) / 2)) / math.sqrt(len(repeats))
    halves = {
        name: factor * float(np.std([each.parameters[name] for each in apart], ddof=1)) for name in fitted.parameters
    }
    return {name: (value - halves[name], value + halves[name]) for name, value in fitted.parameters.items()}


def leave_one_out(points: Sequence[Point], fitted: Fit) -> list[float | None]:
    """Log of predicted over observed for each point, by a fit to all others; None where these do not determine it."""
    rest = (fit([*points[:i], *points[i + 1 :]], fitted.shape, near=fitted) for i in range(len(points)))
    return [_log_error(each, point) for each, point in zip(rest, points, strict=True)]


def _log_error(fitted: Fit | None, point: Point) -> float | None:
    predicted = fitted.seconds(point.parts) if fitted else None
    return None if predicted is None else math.log(predicted / point.seconds)


@dataclass(frozen=True)
class Choice:
    """The shape that was chosen, and the leave-one-out error of each as a standard deviation of logs."""

    fit: Fit
    errors: Mapping[str, float | None]

    @property
    def error(self) -> float | None:
        """Leave-one-out error of the chosen shape; None where no point could be left out."""
        return self.errors[self.fit.shape]


def choose(points: Sequence[Point]) -> Choice | None:
    """The shape with the least leave-one-out error over the points that all shapes could predict; None without any.

    The first shape stays unless another is better by LEAST_GAIN.
    """
    fits = {shape: found for shape in SHAPES if (found := fit(points, shape)) is not None}
    if not fits:
        return None
    left_out = {shape: leave_one_out(points, fitted) for shape, fitted in fits.items()}
    common = [i for i in range(len(points)) if all(errors[i] is not None for errors in left_out.values())]
    errors: dict[str, float | None] = dict.fromkeys(SHAPES)
    if common:
        errors |= {
            shape: math.sqrt(sum((each[i] or 0.0) ** 2 for i in common) / len(common))
            for shape, each in left_out.items()
        }
    best = next(iter(fits))
    for shape in fits:
        new, old = errors[shape], errors[best]
        if new is not None and old is not None and new < (1 - LEAST_GAIN) * old:
            best = shape
    return Choice(fits[best], errors)


def left_out_strategies(points: Sequence[Point]) -> dict[tuple[str, int], float | None]:
    """Log of predicted over observed by (strategy, replicas), predicted without any point of that strategy."""
    errors: dict[tuple[str, int], float | None] = {}
    for strategy, own in grouped(points, lambda point: point.strategy).items():
        rest = choose([point for point in points if point.strategy != strategy])
        errors |= {(strategy, point.replicas): _log_error(rest.fit if rest else None, point) for point in own}
    return errors


def _starts(points: Sequence[Point], shape: str) -> list[dict[str, float]]:
    """Where searches begin: parts of the time alone that are serial; of a floor, where the least point leaves it."""
    alone = min(p.seconds / max(part.turns for part in p.parts) for p in points)
    units = 1 / min(part.share for p in points for part in p.parts)
    pairs = [(serial * alone, (1 - serial) * alone * units) for serial in STARTS]
    if shape == "floor":
        # Nothing pulls a parameter that is below the other one everywhere.
        spread = sorted(p.seconds / part.turns / part.share for p in points for part in p.parts)
        pairs = [(alone, spread[0]), (alone, spread[len(spread) // 2])]
    return [{SERIAL: a, PARALLEL: w, CONTENTION: 0.01 * alone, SWITCHING: 0.1} for a, w in pairs]


def _rounded(share: float) -> float:
    return float(f"{share:.9g}")


def _free(points: Sequence[Point], shape: str) -> tuple[str, ...] | None:
    """The parameters that these points determine; None where the shape has one that they do not.

    Where all have the same share of the device, the first shape stands for the one number that they tell.
    """
    flat = [part for point in points for part in point.parts]
    switching = (SWITCHING,) if any(part.turns > 1 for part in flat) else ()
    columns = np.array([[1.0, part.share, part.together * (part.together - 1)] for part in flat])
    columns = columns[:, : len(SHAPES[shape])] / np.maximum(columns[:, : len(SHAPES[shape])].max(axis=0), 1e-300)
    if np.linalg.matrix_rank(columns, tol=1e-6) == len(SHAPES[shape]):
        return (*SHAPES[shape], *switching)
    return (SERIAL, *switching) if shape == next(iter(SHAPES)) else None


def _search(
    design: _Design, shape: str, observed: Floats, start: Mapping[str, float]
) -> tuple[dict[str, float], float]:
    """Parameters and sum of squares at the end of a search; logs keep them positive (of eps: 1 + eps)."""
    names, is_switching = list(start), np.array([name == SWITCHING for name in start])

    def natural(logs: Floats) -> dict[str, float]:
        values = np.exp(np.clip(logs, -30.0, 30.0)) - is_switching
        return dict(zip(names, values.tolist(), strict=True))

    def residuals(logs: Floats) -> Floats:
        result: Floats = np.log(design.seconds(shape, natural(logs))) - observed
        return result

    def slopes(logs: Floats) -> Floats:
        return design.slopes(shape, natural(logs))

    begin = np.log([max(value + (name == SWITCHING), 1e-30) for name, value in start.items()])
    # A thousand searches make one table: this is the shortest way into MINPACK.
    end, _, info, _, _ = leastsq(residuals, begin, Dfun=slopes, full_output=True, maxfev=400)
    return natural(end), float(np.sum(info["fvec"] ** 2))
