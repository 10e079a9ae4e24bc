"""The latency histograms of all valid cells of one pair: the tenants' own, and those that Prometheus scraped."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from sharebench.core.files import replace_atomically
from sharebench.gates import judged
from sharebench.gates.gates import is_valid
from sharebench.records.histogram import buckets_of, foreign_buckets
from sharebench.records.record import RecordError
from sharebench.records.tables import columns
from sharebench.records.types import Record

OfTenant = tuple[int, float, float, float]
"""Tenant, lower and upper bound in seconds, and the count."""


def _own(measured: Record) -> Iterator[OfTenant]:
    for tenant in measured["tenants"]:
        yield from ((tenant["index"], *bucket) for bucket in buckets_of(tenant))


def _prometheus(measured: Record) -> Iterator[OfTenant]:
    prometheus = measured.get("prometheus")
    for seen in prometheus["tenants"] if prometheus else ():
        yield from ((seen["index"], *bucket) for bucket in foreign_buckets(seen["histogram"]))


SOURCES: Mapping[str, Callable[[Record], Iterable[OfTenant]]] = {"tenants": _own, "prometheus": _prometheus}


def export_histograms(raw: list[Path], out: Path, source: str = "tenants") -> None:
    """Write the non-empty buckets of the host latencies, by replicas, repeat, tenant and bucket; atomically.

    `source` is a key of SOURCES. The overflow bucket's upper bound is `inf`. Raises RecordError for a damaged record,
    and for one that is not of the first one's strategy and workload, with the command that re-measures it.
    """
    rows: list[tuple[int, int, int, float, float, float]] = []
    first: tuple[str, str] | None = None
    for path in raw:
        try:
            measured = judged.read(path)
            cell = measured["cell"]
            pair = (cell["strategy"], cell["workload"])
            first = first or pair
            if pair != first:
                raise RecordError(f"{path}: is of {' and '.join(pair)}, not of {' and '.join(first)}")
        except RecordError as error:
            remedy = f"re-measure it: snakemake --forcerun {path} (with the options of this run)"
            raise RecordError(f"{error}; {remedy}") from None
        if is_valid(measured):
            rows += ((cell["replicas"], cell["repeat"], *bucket) for bucket in SOURCES[source](measured))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns("histograms"))
    writer.writerows(sorted(rows))
    replace_atomically(out, text.getvalue())
