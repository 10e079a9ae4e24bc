"""Prometheus metrics of a tenant: its totals since the start, with fewer buckets than the record has."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from tenant.contract import LAST_FINITE_INDEX, upper_seconds
from tenant.recorder import Tally

CONTENT_TYPE = CONTENT_TYPE_LATEST
# Two buckets per doubling. Each bound is also one of the record's, so that all counts are exact.
BOUNDS = range(0, LAST_FINITE_INDEX + 1, 32)


class _Totals(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(totals: Tally, errors: int, is_ready: bool, workload: str, tenant: int, cell: str = "") -> bytes:
    """Prometheus text; a `cell` becomes a label of every series."""
    names, values = ["workload", "tenant"], [workload, str(tenant)]
    if cell:
        names, values = [*names, "cell"], [*values, cell]
    cumulative = np.cumsum(totals.counts)
    buckets = [(repr(upper_seconds(index)), int(cumulative[index])) for index in BOUNDS]
    buckets.append(("+Inf", totals.count))
    iterations = HistogramMetricFamily(
        "sharebench_iteration_seconds", "Latency of the iterations since the start.", labels=names
    )
    iterations.add_metric(values, buckets, totals.sum_ns / 1e9)
    failures = CounterMetricFamily("sharebench_errors", "Iterations that failed since the start.", labels=names)
    failures.add_metric(values, errors)
    ready = GaugeMetricFamily("sharebench_ready", "1 once the tenant is warm.", labels=names)
    ready.add_metric(values, int(is_ready))
    registry = CollectorRegistry()
    registry.register(_Totals([iterations, failures, ready]))
    return generate_latest(registry)
