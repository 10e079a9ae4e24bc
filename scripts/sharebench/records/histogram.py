"""Histograms over the fixed bucket layout: merge, and quantiles with their error bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sharebench.records.types import TenantRecord
from tenant.contract import BUCKET_COUNT, OVERFLOW_INDEX, ForeignBuckets, lower_seconds, upper_seconds

Bucket = tuple[float, float, float]
"""Lower and upper bound in seconds, and the count."""

_UPPERS = np.array([upper_seconds(index) for index in range(OVERFLOW_INDEX)])
# Of each bucket in seconds; the overflow is taken as a point at its lower bound.
_WIDTHS = np.append(np.diff(_UPPERS, prepend=0.0), 0.0)
_MIDDLES = np.append(_UPPERS, _UPPERS[-1]) - _WIDTHS / 2


@dataclass(frozen=True)
class Quantile:
    """A quantile taken from buckets, in seconds; the exact one lies in (low_seconds, high_seconds].

    In the first bucket (at most 1 µs) `value_seconds` is None, as there is no lower bound to interpolate
    from; in the overflow bucket it is infinite.
    """

    value_seconds: float | None
    low_seconds: float
    high_seconds: float

    @property
    def error_percent(self) -> float:
        """By how much, in percent of the value, the exact quantile may differ; infinite in an end bucket."""
        if self.value_seconds is None or math.isinf(self.value_seconds):
            return math.inf
        return 100 * max(self.high_seconds / self.value_seconds - 1, 1 - self.low_seconds / self.value_seconds)

    @property
    def is_bounded(self) -> bool:
        """Whether its bucket has two bounds, so that there is a value."""
        return self.value_seconds is not None and math.isfinite(self.value_seconds)

    def within(self, min_seconds: float, max_seconds: float) -> Quantile:
        """The same, bounded quantile, knowing the smallest and the largest latency too."""
        assert self.value_seconds is not None
        low, high = max(self.low_seconds, min_seconds), min(self.high_seconds, max_seconds)
        return Quantile(min(max(self.value_seconds, low), high), low, high)


def tenant_buckets(tenant: TenantRecord) -> Iterator[Bucket]:
    """The non-empty buckets of a tenant's latencies, by whoever measured them."""
    for text, count in tenant["histogram"].items():
        yield lower_seconds(int(text)), upper_seconds(int(text)), count
    if (foreign := tenant.get("foreign_histogram")) is not None:
        uppers = [math.inf if upper is None else upper for upper in foreign["upper_seconds"]]
        for (lower, upper), count in zip(pairwise([0.0, *uppers]), foreign["count"], strict=True):
            if count:
                yield lower, upper, count


class Histogram:
    """Counts of latencies per bucket of `tenant.contract`; `counts` has shape (BUCKET_COUNT,)."""

    def __init__(self, counts: npt.NDArray[np.int64]) -> None:
        self.counts = counts

    @classmethod
    def from_sparse(cls, sparse: Mapping[str, int]) -> Histogram:
        """From a record's index (as text) to count. Raises ValueError for an index outside the layout."""
        counts = np.zeros(BUCKET_COUNT, dtype=np.int64)
        if sparse:
            index = np.fromiter(map(int, sparse), dtype=np.int64, count=len(sparse))
            if index.max() >= BUCKET_COUNT:
                raise ValueError(f"bucket {index.max()}: the layout ends at {BUCKET_COUNT - 1}")
            counts[index] = np.fromiter(sparse.values(), dtype=np.int64, count=len(sparse))
        return cls(counts)

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def variance(self) -> float:
        """Variance of the latencies in s², as if they were spread evenly inside each bucket; 0 without any.

        Those of the overflow bucket count as at its lower bound.
        """
        index = np.flatnonzero(self.counts)
        if index.size == 0:
            return 0.0
        counts, middles = self.counts[index] / self.count, _MIDDLES[index]
        mean = counts @ middles
        return float(counts @ ((middles - mean) ** 2 + _WIDTHS[index] ** 2 / 12))

    def quantiles(self, qs: Iterable[float]) -> list[Quantile]:
        """The q-quantiles, 0 < q <= 1, each interpolated inside its bucket linearly on the log scale.

        The bucket is the first whose cumulative count reaches q times count: the one that holds the sorted sample
        number ceil(q times count). Raises ValueError when there is nothing to rank.
        """
        return [_interpolate(*place) for place in _quantile_places(self.counts, qs)]


class ForeignHistogram:
    """Counts of latencies in a program's own buckets; `upper_seconds` ascend, the last one may be infinite.

    Where a latency lies in its bucket is not known: a quantile is interpolated linearly, as Prometheus does, and its
    bounds are the bucket's.
    """

    def __init__(self, upper_seconds: Iterable[float], counts: Iterable[int]) -> None:
        self.upper_seconds = tuple(upper_seconds)
        self.counts = np.array(tuple(counts), dtype=np.int64)

    @classmethod
    def from_record(cls, stored: ForeignBuckets) -> ForeignHistogram:
        return cls((math.inf if upper is None else upper for upper in stored["upper_seconds"]), stored["count"])

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def quantiles(self, qs: Iterable[float]) -> list[Quantile]:
        """As those of `Histogram`; one in a bucket without an upper bound is infinite. Raises ValueError if empty."""
        found = []
        for index, inside in _quantile_places(self.counts, qs):
            low, high = (self.upper_seconds[index - 1] if index else 0.0), self.upper_seconds[index]
            found.append(Quantile(low + (high - low) * inside if math.isfinite(high) else math.inf, low, high))
        return found


def merge_foreign(histograms: Iterable[ForeignHistogram]) -> ForeignHistogram | None:
    """The sum of histograms with the same buckets; None where they differ, or there is none."""
    known = list(histograms)
    if not known or any(each.upper_seconds != known[0].upper_seconds for each in known):
        return None
    return ForeignHistogram(known[0].upper_seconds, np.sum([each.counts for each in known], axis=0))


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of any number of histograms, none included."""
    return Histogram(sum((each.counts for each in histograms), np.zeros(BUCKET_COUNT, dtype=np.int64)))


def _quantile_places(counts: npt.NDArray[np.int64], qs: Iterable[float]) -> Iterator[tuple[int, float]]:
    """The bucket of each quantile, and how far into its counts it lies, within (0, 1]."""
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if total == 0:
        raise ValueError("an empty histogram has no quantiles")
    for q in qs:
        if not 0 < q <= 1:
            raise ValueError(f"quantile {q} is not in (0, 1]")
        index = int(np.searchsorted(cumulative, q * total))
        before = int(cumulative[index]) - int(counts[index])
        yield index, (q * total - before) / int(counts[index])


def _interpolate(index: int, inside: float) -> Quantile:
    high = float(upper_seconds(index))
    if index == 0:
        return Quantile(None, 0.0, high)
    low = float(upper_seconds(index - 1))
    value = low * (high / low) ** inside if math.isfinite(high) else math.inf
    return Quantile(value, low, high)
