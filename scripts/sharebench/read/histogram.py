"""Histograms over the fixed bucket layout: merging, and quantiles with their error bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sharebench.model.records.types import TenantRecord
from tenant.contract import BUCKET_COUNT, ForeignBuckets, lower_seconds, upper_seconds

Bucket = tuple[float, float, float]
"""Lower and upper bound in seconds, and the count."""


@dataclass(frozen=True)
class Quantile:
    """A quantile taken from buckets, in seconds; the exact one lies in (low_seconds, high_seconds].

    `value_seconds` is None in the first bucket (at most 1 µs), which has no lower bound, and infinite in the last.
    """

    value_seconds: float | None
    low_seconds: float
    high_seconds: float

    @property
    def error_percent(self) -> float:
        """Largest possible difference of the exact quantile, in percent of the value; infinite in an end bucket."""
        if self.value_seconds is None or math.isinf(self.value_seconds):
            return math.inf
        return 100 * max(self.high_seconds / self.value_seconds - 1, 1 - self.low_seconds / self.value_seconds)

    @property
    def is_bounded(self) -> bool:
        """Whether its bucket has two bounds, so that the value is finite."""
        return self.value_seconds is not None and math.isfinite(self.value_seconds)

    def within(self, min_seconds: float, max_seconds: float) -> Quantile:
        """The bounded quantile, narrowed by the smallest and the largest latency."""
        assert self.value_seconds is not None
        low, high = max(self.low_seconds, min_seconds), min(self.high_seconds, max_seconds)
        return Quantile(min(max(self.value_seconds, low), high), low, high)


def tenant_buckets(tenant: TenantRecord) -> Iterator[Bucket]:
    """The non-empty buckets of a tenant's latencies, both ours and those of a scraped histogram."""
    for text, count in tenant["histogram"].items():
        yield lower_seconds(int(text)), upper_seconds(int(text)), count
    if (foreign := tenant.get("foreign_histogram")) is not None:
        uppers = [math.inf if upper is None else upper for upper in foreign["upper_seconds"]]
        for (lower, upper), count in zip(pairwise([0.0, *uppers]), foreign["count"], strict=True):
            if count:
                yield lower, upper, count


def bucket_variance(buckets: Iterable[Bucket]) -> float:
    """Variance in s², assuming an even spread inside each bucket; a bucket without an upper bound is its lower one."""
    table = np.array(list(buckets), dtype=np.float64).reshape(-1, 3)
    if not table.size:
        raise ValueError("no latency has no variance")
    lowers, uppers, counts = table.T
    uppers = np.where(np.isinf(uppers), lowers, uppers)
    widths, shares = uppers - lowers, counts / counts.sum()
    middles = uppers - widths / 2
    return float(shares @ ((middles - shares @ middles) ** 2 + widths**2 / 12))


class Histogram:
    """Counts of latencies per bucket of `tenant.contract`; `counts` has shape (BUCKET_COUNT,).

    Quantiles are interpolated linearly on the log scale inside their bucket.
    """

    def __init__(self, counts: npt.NDArray[np.int64]) -> None:
        self.counts = counts

    @classmethod
    def from_sparse(cls, sparse: Mapping[str, int]) -> Histogram:
        """The histogram of a record's counts by index (as text). Raises ValueError for an index outside the layout."""
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

    def quantiles(self, qs: Iterable[float]) -> list[Quantile]:
        """The q-quantiles, 0 < q <= 1, each interpolated inside its bucket.

        The bucket is the first whose cumulative count reaches q times count, so it holds the sorted sample number
        ceil(q times count). Raises ValueError for an empty histogram.
        """
        cumulative = np.cumsum(self.counts)
        total = int(cumulative[-1])
        if total == 0:
            raise ValueError("an empty histogram has no quantiles")
        found = []
        for q in qs:
            if not 0 < q <= 1:
                raise ValueError(f"quantile {q} is not in (0, 1]")
            index = int(np.searchsorted(cumulative, q * total))
            before = int(cumulative[index]) - int(self.counts[index])
            found.append(self._quantile(index, (q * total - before) / int(self.counts[index])))
        return found

    def _quantile(self, index: int, inside: float) -> Quantile:
        """The quantile in a bucket, `inside` being the fraction of its count up to there, within (0, 1]."""
        high = float(upper_seconds(index))
        if index == 0:
            return Quantile(None, 0.0, high)
        low = float(upper_seconds(index - 1))
        return Quantile(low * (high / low) ** inside if math.isfinite(high) else math.inf, low, high)


class ForeignHistogram(Histogram):
    """Counts of latencies in a program's own buckets; `upper_seconds` ascend, and the last one may be infinite.

    Quantiles are interpolated linearly, as Prometheus does, and are infinite in a bucket without an upper bound.
    """

    def __init__(self, upper_seconds: Iterable[float], counts: Iterable[int]) -> None:
        super().__init__(np.array(tuple(counts), dtype=np.int64))
        self.upper_seconds = tuple(upper_seconds)

    @classmethod
    def from_record(cls, stored: ForeignBuckets) -> ForeignHistogram:
        return cls((math.inf if upper is None else upper for upper in stored["upper_seconds"]), stored["count"])

    def _quantile(self, index: int, inside: float) -> Quantile:
        low, high = (self.upper_seconds[index - 1] if index else 0.0), self.upper_seconds[index]
        return Quantile(low + (high - low) * inside if math.isfinite(high) else math.inf, low, high)


def merge_foreign(histograms: Iterable[ForeignHistogram]) -> ForeignHistogram | None:
    """The sum of histograms; None without any, or where their buckets differ."""
    parts = list(histograms)
    if len({part.upper_seconds for part in parts}) != 1:
        return None
    return ForeignHistogram(parts[0].upper_seconds, np.sum([part.counts for part in parts], axis=0))


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of any number of histograms, none included."""
    return Histogram(sum((each.counts for each in histograms), np.zeros(BUCKET_COUNT, dtype=np.int64)))
