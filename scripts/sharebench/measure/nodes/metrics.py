"""A program's own Prometheus metrics: one series scraped twice, and the window between the two scrapes.

A scrape is the state of the series at some moment between the request and its answer. The difference of two scrapes is
exact except for three things: that moment, a page with sum and counts from different moments, and the iterations at the
edges, which began before the window or ended after it. `Difference` bounds the errors of rate and mean.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import NodeError, TenantUnreachable
from sharebench.model.workload import UNIT_SECONDS, Metrics
from tenant.contract.requests import MAX_PAGE_BYTES, Page

MAX_SHOWN_NAMES = 8
MAX_SHOWN_DIGITS = 24
# One iteration at each end of a window may be counted or not.
EDGE_ITERATIONS = 2
# A 64-bit counter ends there, so that a larger number counts nothing.
LARGEST_VALUE = 2.0**64
# A sum over several processes may lose its last digits when they are added in another order.
SUM_TOLERANCE_RATIO = 1e-9


class MissingSeries(Exception):
    """The program answers, but the page is too large, or the named series is missing, ambiguous or no histogram."""


@dataclass(frozen=True)
class Scrape:
    """One state of a series: the times of request and answer, and the totals since the program began.

    `cumulative` has the counts up to each of `upper_seconds`, ascending, the last one infinite; both are empty for a
    summary.
    """

    begun_ns: int
    ended_ns: int
    count: int
    sum_seconds: float
    upper_seconds: tuple[float, ...]
    cumulative: tuple[int, ...]

    @property
    def middle_ns(self) -> float:
        return (self.begun_ns + self.ended_ns) / 2

    @property
    def jitter_seconds(self) -> float:
        return (self.ended_ns - self.begun_ns) / 2e9


def parse_metrics(text: str, metrics: Metrics, begun_ns: int = 0, ended_ns: int = 0) -> Scrape:
    """The series that a workload's `metrics` names, from a page in the text format of Prometheus.

    Raises MissingSeries with a line that lists the existing series, and ValueError for a page of another format.
    """
    kind = "histogram" if metrics.histogram is not None else "summary"
    name = str(metrics.histogram or metrics.summary)
    families = text_string_to_metric_families(text.removeprefix("\ufeff"))
    samples = [sample for family in families for sample in family.samples]
    sums = _single_sample(samples, f"{name}_sum", metrics.labels, kind, name)
    counts = _single_sample(samples, f"{name}_count", metrics.labels, kind, name)
    series = f"{kind} {name!r}"
    total, count = _checked(sums.value, f"the sum of {series}"), _checked(counts.value, f"the count of {series}")
    buckets: list[tuple[float, float]] = []
    if kind == "histogram":
        own_labels = {**sums.labels, "le": ""}
        buckets = sorted(
            _checked_bucket(sample, series)
            for sample in samples
            if sample.name == f"{name}_bucket" and "le" in sample.labels and {**sample.labels, "le": ""} == own_labels
        )
        _check_buckets(buckets, name, series)
        # A page is not written in one instant: the count must match the buckets.
        count = buckets[-1][1]
    unit = UNIT_SECONDS[metrics.unit]
    return Scrape(
        begun_ns,
        ended_ns,
        int(count),
        total * unit,
        tuple(upper * unit for upper, _ in buckets),
        tuple(int(number) for _, number in buckets),
    )


def _checked(value: float, what: str) -> float:
    """Raises MissingSeries for what is not the value of a counter."""
    if not 0 <= value < LARGEST_VALUE:
        why = "below 0" if -math.inf < value < 0 else "beyond 64 bits" if 0 < value < math.inf else "not finite"
        raise MissingSeries(f"{what} is {str(value)[:MAX_SHOWN_DIGITS]}, which is {why}")
    return value


def _checked_bucket(sample: Sample, series: str) -> tuple[float, float]:
    """The upper bound of a bucket and its count. Raises MissingSeries."""
    label = sample.labels["le"]
    try:
        upper = float(label)
    except ValueError:
        raise MissingSeries(f'a bucket of {series} has le="{label}", which is not a number') from None
    if upper != math.inf:
        _checked(upper, f"the bound of a bucket of {series}")
    return upper, _checked(sample.value, f'the bucket le="{label}" of {series}')


def _check_buckets(buckets: Sequence[tuple[float, float]], name: str, series: str) -> None:
    """Raises MissingSeries unless the buckets count up to ascending bounds, the last one infinite."""
    if not buckets or buckets[-1][0] != math.inf:
        raise MissingSeries(f'{name} has no classic buckets up to le="+Inf"; name it as metrics.summary instead')
    for (lower, before), (upper, after) in pairwise(buckets):
        if lower == upper:
            raise MissingSeries(f"{series} has the bucket up to {upper} twice")
        if after < before:
            raise MissingSeries(
                f"the buckets of {series} fall from {before:.0f} up to {lower} to {after:.0f} up to {upper}; "
                "each must include those below it"
            )


def _single_sample(samples: Iterable[Sample], wanted: str, labels: Mapping[str, str], kind: str, name: str) -> Sample:
    """The only sample of that name with these labels. Raises MissingSeries."""
    samples = list(samples)
    named = [sample for sample in samples if sample.name == wanted]
    matching = [sample for sample in named if labels.items() <= sample.labels.items()]
    if len(matching) == 1:
        return matching[0]
    if named:
        choices = ", ".join(str(sample.labels) for sample in (matching or named)[:MAX_SHOWN_NAMES])
        count = len(matching) or "no"
        raise MissingSeries(
            f"{kind} {name!r} has {count} series with metrics.labels {dict(labels)}; name one of {choices}"
        )
    suffix = "_bucket" if kind == "histogram" else "_count"
    others = sorted({sample.name.removesuffix(suffix) for sample in samples if sample.name.endswith(suffix)})
    listed = ", ".join(others[:MAX_SHOWN_NAMES]) or "none"
    raise MissingSeries(f"there is no {kind} {name!r}; this page has: {listed}")


def parse_page(page: Page, metrics: Metrics) -> Scrape:
    """The series on a page. Raises MissingSeries, and TenantUnreachable when there is no page."""
    if page["failure"] is not None:
        raise TenantUnreachable(f"GET {metrics.path}: {page['failure']}")
    if not page["is_whole"]:
        raise MissingSeries(f"its page of metrics is larger than {MAX_PAGE_BYTES >> 20} MiB; export fewer series")
    try:
        return parse_metrics(page["text"], metrics, page["begun_ns"], page["ended_ns"])
    except (ValueError, KeyError) as error:
        raise TenantUnreachable(f"GET {metrics.path}: {error}") from error


@dataclass(frozen=True)
class Difference:
    """A program's counts between two scrapes."""

    begun_ns: float
    """The moment of the first scrape."""
    seconds: float
    """Time from the first scrape to the second."""
    seconds_error: float
    count: int
    sum_seconds: float
    upper_seconds: tuple[float, ...]
    counts: tuple[int, ...]
    """Iterations in each bucket, not cumulative."""
    longest_seconds: float | None
    """Upper bound of the counted latencies, from the buckets; None where the last bucket is infinite."""

    @property
    def rate_hz(self) -> float:
        return self.count / self.seconds

    @property
    def mean_seconds(self) -> float | None:
        return self.sum_seconds / self.count if self.count else None

    @property
    def rate_error_ratio(self) -> float | None:
        """Bound of the rate's error: the uncertain moments of the scrapes, and one iteration at each edge."""
        return self.seconds_error / self.seconds + EDGE_ITERATIONS / self.count if self.count else None

    @property
    def mean_error_ratio(self) -> float | None:
        """Bound of the mean's error against the mean of the iterations that began in the window.

        An iteration at an edge moves the sum by its distance from the mean: at most the mean itself downwards, and up
        to the longest latency upwards, which is taken as twice the mean where it is not known. Sum and counts of one
        page may be as far apart as the page took, at both ends: twice `seconds_error` for a program that is never idle.
        """
        mean = self.mean_seconds
        if not mean:
            return None
        upwards = mean if self.longest_seconds is None else self.longest_seconds - mean
        return EDGE_ITERATIONS / self.count * max(mean, upwards) / mean + 2 * self.seconds_error / self.seconds


def restart_sign(first: Scrape, last: Scrape) -> str | None:
    """What went back, or changed, between two scrapes of a program that restarted in between; None if nothing did."""
    if last.count < first.count:
        return f"its counters went backwards from {first.count} to {last.count} iterations"
    if last.upper_seconds != first.upper_seconds:
        return f"the bounds of its buckets changed from {first.upper_seconds} to {last.upper_seconds} s"
    if last.sum_seconds < first.sum_seconds * (1 - SUM_TOLERANCE_RATIO):
        return f"its sum went backwards from {first.sum_seconds:.6g} to {last.sum_seconds:.6g} s"
    increases = _bucket_increases(last.cumulative, first.cumulative)
    for upper, increase in zip(last.upper_seconds, increases, strict=True):
        if increase < 0:
            return f"the bucket up to {upper:.6g} s lost {-increase} iterations"
    return None


def subtract_scrapes(first: Scrape, last: Scrape) -> Difference:
    """The counts from one scrape to the next.

    Raises NodeError when a count or the sum went backwards: the program, or its metrics server, restarted.
    """
    if what := restart_sign(first, last):
        raise NodeError(f"{what}: it restarted")
    counts = _bucket_increases(last.cumulative, first.cumulative)
    seconds = (last.middle_ns - first.middle_ns) / NS
    filled = [upper for upper, number in zip(last.upper_seconds, counts, strict=True) if number]
    longest = filled[-1] if filled and math.isfinite(filled[-1]) else None
    return Difference(
        first.middle_ns,
        seconds,
        first.jitter_seconds + last.jitter_seconds,
        last.count - first.count,
        max(0.0, last.sum_seconds - first.sum_seconds),
        last.upper_seconds,
        counts,
        longest,
    )


def _bucket_increases(last: tuple[int, ...], first: tuple[int, ...]) -> tuple[int, ...]:
    """The increase of each single bucket, from two cumulative counts; empty for a summary."""
    increases = [after - before for after, before in zip(last, first, strict=True)]
    return tuple(after - before for before, after in pairwise([0, *increases]))
