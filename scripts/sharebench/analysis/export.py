"""The latency histograms of all valid cells of one pair: the tenants' own, and what Prometheus saw of them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sharebench import record
from sharebench.files import replace_atomically
from sharebench.gates import is_valid
from tenant.buckets import upper_seconds

COLUMNS = ("replicas", "repeat", "tenant", "bucket_upper_seconds", "count")


def _buckets(tenant: Mapping[str, Any]) -> Iterator[tuple[float, int]]:
    """Upper bound in seconds and count of each bucket that is not empty; of a program that measures itself, its own."""
    for index, count in tenant["histogram"].items():
        yield upper_seconds(int(index)), count
    foreign = tenant.get("foreign_histogram") or {"upper_seconds": [], "count": []}
    for upper, count in zip(foreign["upper_seconds"], foreign["count"], strict=True):
        if count:
            yield (math.inf if upper is None else upper), count


def _own(measured: Mapping[str, Any]) -> Iterator[tuple[int, float, float]]:
    for tenant in measured["tenants"]:
        for bound, count in _buckets(tenant):
            yield tenant["index"], bound, count


def _prometheus(measured: Mapping[str, Any]) -> Iterator[tuple[int, float, float]]:
    for seen in (measured.get("prometheus") or {"tenants": []})["tenants"]:
        stored = seen["histogram"] or {"upper_seconds": [], "count": []}
        for upper, count in zip(stored["upper_seconds"], stored["count"], strict=True):
            if count:
                yield seen["index"], (math.inf if upper is None else upper), count


SOURCES: Mapping[str, Callable[[Mapping[str, Any]], Iterable[tuple[int, float, float]]]] = {
    "tenants": _own,
    "prometheus": _prometheus,
}


def export_histograms(raw_paths: Sequence[Path], out: Path, source: str = "tenants") -> None:
    """Write the non-empty buckets of the host latencies, by replicas, repeat, tenant and bucket; atomically.

    `source` is whose they are, a key of SOURCES. The overflow bucket's upper bound is `inf`. Raises RecordError for a
    damaged record, and for one that is not of the first one's strategy and workload.
    """
    rows: list[tuple[int, int, int, float, float]] = []
    first: tuple[str, str] | None = None
    for path in raw_paths:
        measured = record.read(path)
        cell = measured["cell"]
        pair = (cell["strategy"], cell["workload"])
        first = first or pair
        if pair != first:
            raise record.RecordError(f"{path}: is of {' and '.join(pair)}, not of {' and '.join(first)}")
        if is_valid(measured):
            for tenant, bound, count in SOURCES[source](measured):
                rows.append((cell["replicas"], cell["repeat"], tenant, bound, count))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(sorted(rows))
    replace_atomically(out, text.getvalue())
