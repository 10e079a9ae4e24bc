"""A program's own Prometheus metrics: one series scraped twice, and the window between the two scrapes.

A scrape is the state of the series at some moment between the request and its answer. The difference of two scrapes is
exact except for three things: that moment, a page with sum and counts from different moments, and the iterations at the
edges, which began before the window or ended after it. `Difference` bounds the errors of rate and mean.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import NodeError, TenantUnreachable
from sharebench.model.config_catalogues import Metrics
from sharebench.model.programs import UNIT_SECONDS
from tenant.contract.requests import MAX_PAGE_BYTES, Page

MAX_SHOWN_NAMES = 8
# One iteration at each end of a window may be counted or not.
EDGE_ITERATIONS = 2


class MissingSeries(Exception):
    """The program answers, but the page is too large, or the named series is missing, ambiguous or not finite."""


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
    kind = "histogram" if metrics["histogram"] is not None else "summary"
    name = str(metrics["histogram"] or metrics["summary"])
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    sums = _single_sample(samples, f"{name}_sum", metrics["labels"], kind, name)
    counts = _single_sample(samples, f"{name}_count", metrics["labels"], kind, name)
    for part, sample in (("sum", sums), ("count", counts)):
        if not math.isfinite(sample.value):
            raise MissingSeries(f"the {part} of {kind} {name!r} is {sample.value}, which is not finite")
    buckets = sorted(
        (float(sample.labels["le"]), int(sample.value))
        for sample in samples
        if sample.name == f"{name}_bucket"
        and {**sample.labels, "le": ""} == {**sums.labels, "le": ""}
        and "le" in sample.labels
    )
    if kind == "histogram" and (not buckets or not math.isinf(buckets[-1][0])):
        raise MissingSeries(f'{name} has no classic buckets up to le="+Inf"; name it as metrics.summary instead')
    unit = UNIT_SECONDS[metrics["unit"]]
    if kind == "summary":
        buckets = []
    return Scrape(
        begun_ns,
        ended_ns,
        # A page is not written in one instant: the count must match the buckets.
        buckets[-1][1] if buckets else int(counts.value),
        sums.value * unit,
        tuple(upper * unit for upper, _ in buckets),
        tuple(count for _, count in buckets),
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
        raise TenantUnreachable(f"GET {metrics['path']}: {page['failure']}")
    if not page["is_whole"]:
        raise MissingSeries(f"its page of metrics is larger than {MAX_PAGE_BYTES >> 20} MiB; export fewer series")
    try:
        return parse_metrics(page["text"], metrics, page["begun_ns"], page["ended_ns"])
    except (ValueError, KeyError) as error:
        raise TenantUnreachable(f"GET {metrics['path']}: {error}") from error


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


def subtract_scrapes(first: Scrape, last: Scrape) -> Difference:
    """The counts from one scrape to the next.

    Raises NodeError when a count went backwards: the program, or its metrics server, restarted.
    """
    counts = _bucket_increases(last.cumulative, first.cumulative)
    has_other_buckets = first.upper_seconds != last.upper_seconds
    if has_other_buckets or last.count < first.count or min(counts, default=0) < 0:
        raise NodeError(f"its counters went backwards from {first.count} to {last.count} iterations: it restarted")
    seconds = (last.middle_ns - first.middle_ns) / NS
    count = last.count - first.count
    filled = [upper for upper, number in zip(last.upper_seconds, counts, strict=True) if number]
    longest = filled[-1] if filled and math.isfinite(filled[-1]) else None
    return Difference(
        first.middle_ns,
        seconds,
        first.jitter_seconds + last.jitter_seconds,
        count,
        max(0.0, last.sum_seconds - first.sum_seconds),
        last.upper_seconds,
        counts,
        longest,
    )


def _bucket_increases(last: tuple[int, ...], first: tuple[int, ...]) -> tuple[int, ...]:
    """The increase of each single bucket, from two cumulative counts."""
    increases = [after - before for after, before in zip(last, first, strict=False)]
    return tuple(after - before for after, before in zip(increases, [0, *increases[:-1]], strict=True))
