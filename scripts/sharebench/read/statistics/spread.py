"""The spread of values between groups, as devices or machines, against that within them."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scipy.special import fdtrc


@dataclass(frozen=True)
class Spread:
    """None where too little was measured."""

    between_percent: float
    """Standard deviation of the groups' mean logs."""
    within_percent: float | None
    """Standard deviation of the logs in one group, pooled over groups."""
    probability: float | None
    """p of the F test that all groups have one mean (one-way analysis of variance of the logs)."""


def measure_spread(groups: Collection[Sequence[float]]) -> Spread:
    """The spread of positive values by group. Raises ValueError for fewer than two groups."""
    if len(groups) < 2:
        raise ValueError("one group has nothing to be compared with")
    logs = [[math.log(value) for value in values] for values in groups]
    means = [math.fsum(own) / len(own) for own in logs]
    mean_of_means = math.fsum(means) / len(means)
    between = math.sqrt(math.fsum((mean - mean_of_means) ** 2 for mean in means) / (len(means) - 1))
    count = sum(map(len, logs))
    degrees = count - len(logs)
    if not degrees:
        return Spread(100 * between, None, None)
    within = math.fsum((log - mean) ** 2 for own, mean in zip(logs, means, strict=True) for log in own) / degrees
    grand = math.fsum(map(math.fsum, logs)) / count
    between_squares = math.fsum(len(own) * (mean - grand) ** 2 for own, mean in zip(logs, means, strict=True))
    ratio = between_squares / (len(logs) - 1) / within if within else None
    probability = None if ratio is None else float(fdtrc(len(logs) - 1, degrees, ratio))
    return Spread(100 * between, 100 * math.sqrt(within), probability)
