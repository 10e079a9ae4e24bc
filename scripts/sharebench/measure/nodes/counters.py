"""Counters whose samples do not coincide with the ends of a window.

Values between two samples are interpolated linearly. For a steady load that is exact to one iteration, and the error
is never larger than the increase between the two. Prometheus's own `increase` extrapolates from inside the window.
"""

import bisect
from collections.abc import Sequence
from itertools import pairwise

Samples = Sequence[tuple[float, float]]
"""Seconds and value, ascending in time."""


def count_resets(samples: Samples) -> int:
    return sum(later < before for (_, before), (_, later) in pairwise(samples))


def undo_resets(samples: Samples) -> list[tuple[float, float]]:
    """The counter without its resets: after a reset it continues from its last value, as in Prometheus."""
    offset, last, continued = 0.0, 0.0, []
    for at, value in samples:
        if value < last:
            offset += last
        last = value
        continued.append((at, value + offset))
    return continued


def value_at(samples: Samples, moment: float) -> float | None:
    """The interpolated value at a moment; None where no sample lies before it, or none after."""
    after = bisect.bisect_left(samples, moment, key=lambda sample: sample[0])
    if after < len(samples) and samples[after][0] == moment:
        return samples[after][1]
    if not 0 < after < len(samples):
        return None
    (low_at, low), (high_at, high) = samples[after - 1], samples[after]
    return low + (high - low) * (moment - low_at) / (high_at - low_at)


def increase(samples: Samples, start: float, end: float) -> float | None:
    """Increase of the counter between two moments; None unless each moment lies between two samples."""
    continued = undo_resets(samples)
    first, last = value_at(continued, start), value_at(continued, end)
    return None if first is None or last is None else last - first


def longest_gap(samples: Samples, start: float, end: float) -> float | None:
    """The longest time between two samples that touches the window; None without a sample.

    The time before the first sample and after the last counts up to the window's ends.
    """
    times = [at for at, _ in samples]
    if not times:
        return None
    edges = [min(start, times[0]), *times, max(end, times[-1])]
    return max(later - before for before, later in pairwise(edges) if later > start and before < end)


def count_between(samples: Samples, start: float, end: float) -> int:
    return sum(start <= at <= end for at, _ in samples)
