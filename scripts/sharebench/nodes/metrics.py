"""What a program says of itself as Prometheus metrics: one series scraped twice, and the window between the two.

A scrape is the state of the series at some moment between the request and its answer. What lies between two scrapes is
known exactly, but for three things: that moment, that a page's sum and counts need not be of quite the same moment, and
the iterations at the edges, which began before the window or ended after it. `Difference` says by how much they may put
rate and mean off.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sharebench.core.config_catalogues import Metrics
from sharebench.core.programs import UNIT_SECONDS
from sharebench.core.units import NS
from sharebench.nodes.contract import NodeError, TenantUnreachable
from tenant.contract.requests import MAX_PAGE_BYTES, Page

SHOWN_NAMES = 8
# One iteration at each end of a window may be counted or not.
EDGE_ITERATIONS = 2


class MissingSeries(Exception):
    """The program answers, but the page is too large, or the named series is missing, ambiguous or not finite."""


@dataclass(frozen=True)
class Scrape:
    """One state of a series: when it was asked and answered, and its totals in seconds since the program began.

    `cumulative` are the counts up to each of `upper_seconds`, ascending, the last one infinite; both are empty for a
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
    """The series that a workload's `metrics` names, in a page of metrics in the text format of Prometheus.

    Raises MissingSeries with a line that names what there is instead, and ValueError for a page of another format.
    """
    kind = "histogram" if metrics["histogram"] is not None else "summary"
    name = str(metrics["histogram"] or metrics["summary"])
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    sums = _single_sample(samples, f"{name}_sum", metrics["labels"], kind, name)
    counts = _single_sample(samples, f"{name}_count", metrics["labels"], kind, name)
    for what, sample in (("sum", sums), ("count", counts)):
        if not math.isfinite(sample.value):
            raise MissingSeries(f"the {what} of {kind} {name!r} is {sample.value}, which is not finite")
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
        # A page is not taken in one instant: the count must be that of the buckets.
        buckets[-1][1] if buckets else int(counts.value),
        sums.value * unit,
        tuple(upper * unit for upper, _ in buckets),
        tuple(count for _, count in buckets),
    )


def _single_sample(samples: Iterable[Sample], wanted: str, labels: Mapping[str, str], kind: str, name: str) -> Sample:
    """The only sample of that name with these labels."""
    samples = list(samples)
    named = [sample for sample in samples if sample.name == wanted]
    found = [sample for sample in named if labels.items() <= sample.labels.items()]
    if len(found) == 1:
        return found[0]
    if named:
        there = ", ".join(str(sample.labels) for sample in (found or named)[:SHOWN_NAMES])
        count = len(found) or "no"
        raise MissingSeries(
            f"{kind} {name!r} has {count} series with metrics.labels {dict(labels)}; name one of {there}"
        )
    suffix = "_bucket" if kind == "histogram" else "_count"
    others = sorted({sample.name.removesuffix(suffix) for sample in samples if sample.name.endswith(suffix)})
    listed = ", ".join(others[:SHOWN_NAMES]) or "none"
    raise MissingSeries(f"there is no {kind} {name!r}; this page has: {listed}")


def parse_page(page: Page, metrics: Metrics) -> Scrape:
    """The series in a page. Raises MissingSeries, and TenantUnreachable when there is no page."""
    if page["failure"] is not None:
        raise TenantUnreachable(f"GET {metrics['path']}: {page['failure']}")
    if not page["is_whole"]:
        raise MissingSeries(f"its page of metrics is larger than {MAX_PAGE_BYTES >> 20} MiB; let it show fewer series")
    try:
        return parse_metrics(page["text"], metrics, page["begun_ns"], page["ended_ns"])
    except (ValueError, KeyError) as error:
        raise TenantUnreachable(f"GET {metrics['path']}: {error}") from error


@dataclass(frozen=True)
class Difference:
    """What a program counted between two scrapes."""

    begun_ns: float
    """The moment of the first."""
    seconds: float
    """From there to the moment of the second."""
    seconds_error: float
    count: int
    sum_seconds: float
    upper_seconds: tuple[float, ...]
    counts: tuple[int, ...]
    """Iterations in each bucket, not cumulative."""
    longest_seconds: float | None
    """What none of the counted ones exceeds, from the buckets; None where these leave it open."""

    @property
    def rate_hz(self) -> float:
        return self.count / self.seconds

    @property
    def mean_seconds(self) -> float | None:
        return self.sum_seconds / self.count if self.count else None

    @property
    def rate_error_ratio(self) -> float | None:
        """By how much the rate may be off: the scrapes' moments, and one iteration at each edge."""
        return self.seconds_error / self.seconds + EDGE_ITERATIONS / self.count if self.count else None

    @property
    def mean_error_ratio(self) -> float | None:
        """By how much the mean may be off from that of the iterations which began in the window.

        An edge's iteration moves the sum by its distance from the mean: at most the mean itself downwards, and upwards
        up to the longest; where that is not known, it is taken to be twice the mean. Sum and counts of one page may be
        as far apart as the page took, at both ends: twice `seconds_error` of a program that is never idle.
        """
        mean = self.mean_seconds
        if not mean:
            return None
        upwards = mean if self.longest_seconds is None else self.longest_seconds - mean
        return EDGE_ITERATIONS / self.count * max(mean, upwards) / mean + 2 * self.seconds_error / self.seconds


def subtract_scrapes(first: Scrape, last: Scrape) -> Difference:
    """What was counted from one scrape to the next.

    Raises NodeError when a count went backwards: the program, or what serves its metrics, restarted.
    """
    counts = _bucket_increases(last.cumulative, first.cumulative)
    has_others = first.upper_seconds != last.upper_seconds
    if has_others or last.count < first.count or min(counts, default=0) < 0:
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
    """Increase of each bucket by itself, from two cumulative counts."""
    grown = [after - before for after, before in zip(last, first, strict=False)]
    return tuple(after - before for after, before in zip(grown, [0, *grown[:-1]], strict=True))
