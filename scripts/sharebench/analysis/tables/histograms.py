"""The latency histograms of all valid cells of one pair: the tenants' own, and those that Prometheus scraped."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from sharebench.core.files import replace_atomically
from sharebench.gates import judged
from sharebench.gates.gates import is_valid
from sharebench.records import record
from sharebench.records.tables import columns
from sharebench.records.types import Record, ScrapedBuckets
from tenant.contract import ForeignBuckets, upper_seconds

Bucket = tuple[int, float, float, float]
"""Tenant, lower and upper bound in seconds, and the count."""


def _foreign(tenant: int, stored: ForeignBuckets | ScrapedBuckets | None) -> Iterator[Bucket]:
    """The non-empty buckets of any layout; the last bound may be None for infinity."""
    if stored is None:
        return
    uppers = [math.inf if upper is None else upper for upper in stored["upper_seconds"]]
    for (lower, upper), count in zip(pairwise([0.0, *uppers]), stored["count"], strict=True):
        if count:
            yield tenant, lower, upper, count


def _own(measured: Record) -> Iterator[Bucket]:
    for tenant in measured["tenants"]:
        for text, count in tenant["histogram"].items():
            index = int(text)
            yield tenant["index"], (upper_seconds(index - 1) if index else 0.0), upper_seconds(index), count
        yield from _foreign(tenant["index"], tenant.get("foreign_histogram"))


def _prometheus(measured: Record) -> Iterator[Bucket]:
    prometheus = measured.get("prometheus")
    for seen in prometheus["tenants"] if prometheus else ():
        yield from _foreign(seen["index"], seen["histogram"])


SOURCES: Mapping[str, Callable[[Record], Iterable[Bucket]]] = {"tenants": _own, "prometheus": _prometheus}


def export_histograms(raw_paths: Sequence[Path], out: Path, source: str = "tenants") -> None:
    """Write the non-empty buckets of the host latencies, by replicas, repeat, tenant and bucket; atomically.

    `source` is a key of SOURCES. The overflow bucket's upper bound is `inf`. Raises RecordError for a damaged record,
    and for one that is not of the first one's strategy and workload.
    """
    rows: list[tuple[int, int, int, float, float, float]] = []
    first: tuple[str, str] | None = None
    for path in raw_paths:
        measured = judged.read(path)
        cell = measured["cell"]
        pair = (cell["strategy"], cell["workload"])
        first = first or pair
        if pair != first:
            raise record.RecordError(f"{path}: is of {' and '.join(pair)}, not of {' and '.join(first)}")
        if is_valid(measured):
            rows += ((cell["replicas"], cell["repeat"], *bucket) for bucket in SOURCES[source](measured))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns("histograms"))
    writer.writerows(sorted(rows))
    replace_atomically(out, text.getvalue())
