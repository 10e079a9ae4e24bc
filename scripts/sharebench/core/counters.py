"""Counters that were sampled at moments of their own, which are not a window's ends.

What a counter was at a moment between two samples is interpolated linearly: exact for a steady load but for one
iteration, and never more wrong than by what came between the two. Prometheus's own `increase` reaches from the first
sample inside the window to the last and stretches that to the whole window, which is a guess of another kind.
"""

import bisect
from collections.abc import Sequence
from itertools import pairwise

Samples = Sequence[tuple[float, float]]
"""Seconds and value, ascending in time."""


def count_resets(samples: Samples) -> int:
    return sum(later < before for (_, before), (_, later) in pairwise(samples))


def undo_resets(samples: Samples) -> list[tuple[float, float]]:
    """The same counter as if it had never begun again: after a reset it goes on from where it was, as in Prometheus."""
    lost, last, whole = 0.0, 0.0, []
    for at, value in samples:
        if value < last:
            lost += last
        last = value
        whole.append((at, value + lost))
    return whole


def value_at(samples: Samples, moment: float) -> float | None:
    """The counter at a moment, interpolated; None where no sample lies before it, or none after."""
    after = bisect.bisect_left(samples, moment, key=lambda sample: sample[0])
    if after < len(samples) and samples[after][0] == moment:
        return samples[after][1]
    if not 0 < after < len(samples):
        return None
    (low_at, low), (high_at, high) = samples[after - 1], samples[after]
    return low + (high - low) * (moment - low_at) / (high_at - low_at)


def increase(samples: Samples, start: float, end: float) -> float | None:
    """By how much the counter grew between two moments; None where samples on both sides of both are not there."""
    whole = undo_resets(samples)
    first, last = value_at(whole, start), value_at(whole, end)
    return None if first is None or last is None else last - first


def longest_gap(samples: Samples, start: float, end: float) -> float | None:
    """The longest time without a sample that touches the window, from a sample to the next.

    What comes before the first sample and after the last counts up to the window's ends. None without a sample.
    """
    times = [at for at, _ in samples]
    if not times:
        return None
    edges = [min(start, times[0]), *times, max(end, times[-1])]
    return max(later - before for before, later in pairwise(edges) if later > start and before < end)


def count_between(samples: Samples, start: float, end: float) -> int:
    return sum(start <= at <= end for at, _ in samples)
