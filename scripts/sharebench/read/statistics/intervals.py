"""Statistics over repeats: geometric means and ratios with 95 % Student-t intervals on the log scale.

The unit of replication is the cell run, not the iteration: the iterations of one run are correlated. With several
devices it is the device, as repeats on one device share its deviation from the others, or the machine, where devices
of one machine share its deviation (`independent_values`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from scipy.special import bdtrc, stdtr, stdtrit

from sharebench.read.columns import TableRow
from sharebench.read.statistics.spread import measure_spread

CONFIDENCE = 0.95
MACHINES_LEVEL = 0.5
"""The machine is the unit where p of the F test of machines is below. A test at 5 % misses most differences between so
few machines, and intervals then cover 80 to 90 % (docs/method.md, Hosts)."""


class Place(NamedTuple):
    """Where a cell was measured: identities (hashed) of the device and of its machine, which old records lack."""

    device: str
    machine: str | None = None


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, in the unit of the input; without bounds where `n` values give none."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Number of values behind it."""
    log_variance: float | None = field(default=None, compare=False)
    """Variance of the mean log, with `degrees_of_freedom`; None where it is not known."""
    degrees_of_freedom: float = field(default=0.0, compare=False)
    probability: float | None = field(default=None, compare=False)
    """p of Student's two-sided test that it is 1: below 0.05 exactly where the interval excludes 1."""

    def columns(self, name: str) -> dict[str, float | None]:
        """Its three columns of a table: `name`, `name`_low and `name`_high."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def times(self, factor: float) -> Estimate:
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, low, high, self.n)

    def inverse_times(self, numerator: float) -> Estimate:
        """`numerator` over the estimate; a bound of 0 becomes no bound."""
        low, high = (numerator / end if end else None for end in (self.high, self.low))
        return Estimate(numerator / self.value, low, high, self.n)


def independent_values(values: Sequence[float], places: Sequence[Place]) -> Sequence[float]:
    """The geometric mean of each device's positive values, or of each machine's devices.

    `places` has the place of each value; if empty, all belong to one device. With one device it is the values. The
    machine counts where several machines, at least one with several devices, differ by more than devices of one
    (MACHINES_LEVEL). An interval over these means contains the variance between them, with one degree of freedom less
    than means. It is exact for equally many repeats on each, without a split into variance components.
    """
    machine_of = {place.device: place.machine for place in places}
    if len(machine_of) < 2:
        return values
    by_device = _grouped(values, [place.device for place in places])
    means = values if len(by_device) == len(values) else _geometric_means(by_device)
    by_machine = _grouped(means, machine_of.values())
    if None in by_machine or not 1 < len(by_machine) < len(means):
        return means
    p = measure_spread(by_machine.values()).probability
    return _geometric_means(by_machine) if p is None or p < MACHINES_LEVEL else means


def _grouped(values: Sequence[float], keys: Iterable[str | None]) -> dict[str | None, list[float]]:
    found: dict[str | None, list[float]] = {}
    for value, key in zip(values, keys, strict=True):
        found.setdefault(key, []).append(value)
    return found


def _geometric_means(groups: Mapping[str | None, Sequence[float]]) -> list[float]:
    return [math.exp(mean_of_logs(own)[0]) for own in groups.values()]


def log_interval(values: Sequence[float], places: Sequence[Place] = ()) -> Estimate:
    """Geometric mean of positive values and exp(m ± t s / √n), m and s being mean and deviation of the logs.

    With several devices among the `places` it is that of `independent_values`. One value has no interval. Raises
    ValueError without values, or for one that is not positive.
    """
    units = independent_values(values, places)
    mean, variance = mean_of_logs(units)
    return _estimate(mean, variance, len(units) - 1, len(values))


def rate_interval(values: Sequence[float], places: Sequence[Place] = ()) -> Estimate:
    """`log_interval` of rates; where any is 0, their arithmetic mean without an interval."""
    if min(values) > 0:
        return log_interval(values, places)
    return Estimate(math.fsum(values) / len(values), n=len(values))


def welch_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    places: tuple[Sequence[Place], Sequence[Place]] = ((), ()),
) -> Estimate:
    """Ratio of the geometric means of two independent samples, with Welch's interval on the log scale.

    exp(d ± t √(v₁ + v₂)): d is the difference of the mean logs, v their variances, and t has the degrees of
    freedom of Welch (Biometrika 34, 1947) and Satterthwaite. No interval when either sample has one value;
    `n` is the number of numerators. `places` are those of both samples. Raises ValueError like `log_interval`.
    """
    over, under = (independent_values(*sample) for sample in zip((numerators, denominators), places, strict=True))
    mean_over, variance_over = mean_of_logs(over)
    mean_under, variance_under = mean_of_logs(under)
    parts = [(variance_over, len(over) - 1), (variance_under, len(under) - 1)]
    return welch_estimate(mean_over - mean_under, parts, len(numerators))


def welch_estimate(mean: float, parts: Sequence[tuple[float | None, float]], n: int) -> Estimate:
    """exp(`mean`) for a mean of logs whose variance is the sum of independent `parts` (variance, degrees of freedom).

    The degrees of freedom of the sum are those of Welch (Biometrika 34, 1947) and Satterthwaite (Biometrics Bulletin 2,
    1946). No interval where the variance of a part is not known (None).
    """
    known = [(variance, degrees) for variance, degrees in parts if variance is not None]
    if len(known) < len(parts):
        return _estimate(mean, None, 0, n)
    total = math.fsum(variance for variance, _ in known)
    spread = math.fsum(variance**2 / degrees for variance, degrees in known)
    return _estimate(mean, total, total**2 / spread if spread else 1.0, n)


def holm(probabilities: Sequence[float]) -> list[float]:
    """The p values adjusted for their number by Holm's step-down method (Scandinavian J. of Statistics 6, 1979).

    The k-th smallest of m values becomes the largest of (m - i + 1) p_i over i <= k, at most 1. Keeps the order.
    """
    adjusted = [0.0] * len(probabilities)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(probabilities)), key=lambda i: probabilities[i])):
        largest = max(largest, min(1.0, (len(probabilities) - rank) * probabilities[index]))
        adjusted[index] = largest
    return adjusted


def with_holm(rows: Sequence[TableRow]) -> Sequence[TableRow]:
    """The rows, with a `p_holm` added to those that have a `p`."""
    tested = [(row, p) for row in rows if isinstance(p := row.get("p"), float)]
    for (row, _), adjusted in zip(tested, holm([p for _, p in tested]), strict=True):
        row["p_holm"] = adjusted
    return rows


def required_count(quantile: float) -> int:
    """How many samples an upper 95 % bound on this quantile needs: the smallest n with 1 - quantileⁿ >= 0.95.

    Fewer samples may all lie below the quantile, whatever it is (299 for p99, 59 for p95, 5 for the median).
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile))


def surely_below(quantile: float, count: float) -> float:
    """The place of a lower 95 % bound on this quantile in a sample of this size; 0 if it is too small for one.

    The number of samples above it would be there by chance with a probability of 5 % at most (binomial).
    """
    n = math.floor(count)
    above = next((k for k in range(1, n + 1) if bdtrc(k - 1, n, 1 - quantile) <= 1 - CONFIDENCE), n)
    return 1 - above / n if n else 0.0


def mean_of_logs(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean of the logs of positive values, and the variance of that mean, s²/n; None for one value.

    Raises ValueError for no value, or one that is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs at least one value, and all of them positive")
    logs = [math.log(value) for value in values]
    n = len(logs)
    mean = math.fsum(logs) / n
    if n == 1:
        return mean, None
    return mean, math.fsum((log - mean) ** 2 for log in logs) / (n - 1) / n


@lru_cache(maxsize=4096)
def _t(degrees_of_freedom: float) -> float:
    # scipy.stats.t.ppf gives the same number, but its import takes half a second.
    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))


def _estimate(mean: float, variance: float | None, degrees_of_freedom: float, n: int) -> Estimate:
    if variance is None:
        return Estimate(math.exp(mean), n=n)
    error = math.sqrt(variance)
    half = _t(degrees_of_freedom) * error
    return Estimate(
        math.exp(mean),
        math.exp(mean - half),
        math.exp(mean + half),
        n,
        log_variance=variance,
        degrees_of_freedom=degrees_of_freedom,
        probability=float(2 * stdtr(degrees_of_freedom, -abs(mean) / error)) if error else float(mean == 0),
    )
