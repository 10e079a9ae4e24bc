"""A cell that Prometheus watches: its numbers go next to the tenants' own records, which remain authoritative.

The steps are those of every cell (cell.py) until all tenants are steady. Then Prometheus discovers the tenants, and the
window waits until it has scraped each of them, so that there is a sample before its start; after its end one more
sample is waited for. If Prometheus is not available at the start, the harness fails with one line. If it fails later,
the cell only lacks its numbers.
"""

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sharebench.core.files import write_json
from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.core.units import NS
from sharebench.measure.cell.cell import CellProcedure, MeasuredCell, Observation
from sharebench.measure.cell.prometheus.server import Labels, PrometheusUnavailable, Server, duration, selector
from sharebench.measure.nodes import counters
from sharebench.measure.nodes.contract import Grant, NodeError, Settings, State, Tenants, WatchSettings
from sharebench.measure.nodes.node import Node
from sharebench.model import prometheus_options
from sharebench.model.records.types import PrometheusRecord, PrometheusTenant
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy

if TYPE_CHECKING:
    from sharebench.model.config_nodes import PrometheusOptions

# Labels of a target in a file, which override the scrape config.
INTERVAL_LABEL, TIMEOUT_LABEL = "__scrape_interval__", "__scrape_timeout__"
# Prometheus reads its files at once, and applies what it found every five seconds.
FILE_SECONDS = 15.0
# The operator writes a Secret, the kubelet updates it in the pod within about a minute, and then it is read.
MONITOR_SECONDS = 180.0
# Annotations that scrape configs for pods use by convention; not part of Kubernetes.
ANNOTATIONS = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000", "prometheus.io/path": "/metrics"}
METRIC = "sharebench_iteration_seconds"
QUANTILES = (0.5, 0.95, 0.99)
POLL_SECONDS = 0.2
# One scrape may fail, and the next one must be stored too.
SCRAPES_TO_WAIT = 3
STORED_SECONDS = 2.0
# A server that restarts after a crash reads its log first.
RESTART_SECONDS = 20.0
# Older samples are of no use at the window's start.
BEFORE_SCRAPES = 10


def watch_settings(section: "PrometheusOptions", cell_folder: str) -> WatchSettings:
    """The additional settings of a watched cell, with the cell's name for the tenants' metrics."""
    name = f"{os.environ.get(RUN_ID_VARIABLE, '')}/{cell_folder}"
    cell = hashlib.sha256(name.encode()).hexdigest()[:12]
    is_annotated = prometheus_options.discovery_method(section) == "annotations"
    return {"prometheus": section, "watched_cell": cell, "pod_annotations": ANNOTATIONS if is_annotated else {}}


@contextlib.contextmanager
def target_file(folder: Path, owner: Path, scrape_seconds: float, addresses: Sequence[str]) -> Iterator[None]:
    """A file of targets in a folder that Prometheus reads; one per results folder, removed at the end."""
    digest = hashlib.sha256(str(owner.resolve()).encode()).hexdigest()[:12]
    path, interval = folder / f"sharebench-{digest}.json", f"{round(1000 * scrape_seconds)}ms"
    try:
        labels = {INTERVAL_LABEL: interval, TIMEOUT_LABEL: interval}
        write_json(path, [{"targets": list(addresses), "labels": labels}])
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


class PrometheusProcedure(CellProcedure):
    """The window of a watched cell; `settings` includes those of `watch_settings`."""

    def __init__(self, node: Node, strategy: Strategy, spec: Spec, settings: Settings) -> None:
        super().__init__(node, strategy, spec, settings)
        self.section = settings["prometheus"]
        self.scrape_seconds: float = self.section["scrape_seconds"]
        self.cell: Labels = {"cell": settings["watched_cell"]}
        self.server = Server(str(self.section["url"]))
        self.replicas = spec.replicas

    def observe(self, tenants: Tenants, grants: Sequence[Grant]) -> Observation:
        """Run the window while Prometheus watches. Raises like `CellProcedure.observe`."""
        with contextlib.ExitStack() as exposed:
            try:
                self._wait_until_scraped(tenants, self._expose_tenants(tenants.metrics_addresses(), exposed))
            except (PrometheusUnavailable, OSError) as failure:
                raise NodeError(f"{failure}; prometheus.url is {self.server.url}") from None
            observed = super().observe(tenants, grants)
            ends = observed.window["start_epoch_seconds"], observed.window["end_epoch_seconds"]
        return replace(observed, prometheus=self._query_window(*ends))

    def complete(
        self, record: MeasuredCell, observed: Observation | None, state: State, grants: Sequence[Grant]
    ) -> MeasuredCell:
        prometheus = observed.prometheus if observed else None
        return {**super().complete(record, observed, state, grants), "prometheus": prometheus}

    def _expose_tenants(self, addresses: Sequence[str], exposed: contextlib.ExitStack) -> float:
        """Let Prometheus discover the tenants while `exposed` is open; returns how many seconds that may take."""
        discovery = prometheus_options.discovery_method(self.section)
        if discovery == "file":
            folder = Path(str(self.section["folder"]))
            exposed.enter_context(target_file(folder, self.node.folder, self.scrape_seconds, addresses))
            return FILE_SECONDS
        if discovery == "pod-monitor":
            self.node.add_pod_monitor(self.section)
            return MONITOR_SECONDS
        # Pods carry their annotations.
        return FILE_SECONDS + SCRAPES_TO_WAIT * self.scrape_seconds

    def _wait_until_scraped(self, tenants: Tenants, discovery_seconds: float) -> None:
        """Wait until each tenant has been scraped. Raises NodeError after a time-out, TenantsFailed when one ends."""
        timeout = discovery_seconds + SCRAPES_TO_WAIT * self.scrape_seconds + STORED_SECONDS
        query = f"count(count by (tenant) ({selector(f'{METRIC}_count', self.cell)}))"

        def scraped_count() -> int:
            return int(max((value for _, value in self.server.vector(query)), default=0))

        deadline = time.monotonic() + timeout
        while (count := scraped_count()) < self.replicas:
            if time.monotonic() > deadline:
                raise NodeError(
                    f"Prometheus at {self.section['url']} saw {count} of {self.replicas} tenants within {timeout:g} s "
                    f"(discovery: {prometheus_options.discovery_method(self.section)}); see its page of targets, "
                    "and docs/prometheus.md"
                )
            # Raises when a tenant ends.
            tenants.sleep_until(tenants.now_ns() + int(POLL_SECONDS * NS))

    def _query_window(self, start: float, end: float) -> PrometheusRecord:
        """The record's `prometheus`: the server's numbers for the window, as soon as it has a sample after its end."""
        blank: PrometheusRecord = {
            "discovery": prometheus_options.discovery_method(self.section),
            "scrape_seconds": self.scrape_seconds,
            "error": None,
            "tenants": [],
        }
        try:
            return {**blank, "tenants": self._tenants(self._samples_past_end(start, end), start, end)}
        except PrometheusUnavailable as failure:
            return {**blank, "error": str(failure)}

    def _samples(self, suffix: str, start: float, end: float) -> dict[int, counters.Samples]:
        """Raw samples around the window, by tenant; of a tenant that two jobs scrape, the longer series."""
        before = BEFORE_SCRAPES * self.scrape_seconds
        after = SCRAPES_TO_WAIT * self.scrape_seconds + RESTART_SECONDS
        name = selector(f"{METRIC}_{suffix}", self.cell)
        by_tenant: dict[int, counters.Samples] = {}
        for labels, samples in self.server.samples(name, before + end - start + after, end + after):
            tenant = int(labels["tenant"])
            by_tenant[tenant] = max(samples, by_tenant.get(tenant, ()), key=len)
        return by_tenant

    def _samples_past_end(self, start: float, end: float) -> dict[int, counters.Samples]:
        """The samples of each tenant's count, once each has one after the window, or after a time-out.

        Raises PrometheusUnavailable when the server has not answered until then.
        """
        deadline = time.monotonic() + SCRAPES_TO_WAIT * self.scrape_seconds + RESTART_SECONDS
        while True:
            try:
                counts = self._samples("count", start, end)
                is_whole = len(counts) == self.replicas and all(each[-1][0] >= end for each in counts.values())
                if is_whole or time.monotonic() > deadline:
                    return counts
            except PrometheusUnavailable:
                if time.monotonic() > deadline:
                    raise
            # The tenants have delivered their records, so they need not be watched any more.
            time.sleep(POLL_SECONDS)

    def _tenants(self, counts: dict[int, counters.Samples], start: float, end: float) -> list[PrometheusTenant]:
        sums = self._samples("sum", start, end)
        buckets = f"{selector(f'{METRIC}_bucket', self.cell)}[{duration(end - start)}]"

        def quantile(q: float) -> dict[int, float]:
            values = self.server.vector(f"histogram_quantile({q}, max by (tenant, le) (increase({buckets})))", end)
            return {int(labels["tenant"]): value for labels, value in values if not math.isnan(value)}

        quantiles = {q: quantile(q) for q in QUANTILES}
        return [
            {
                "index": index,
                "scrapes": counters.count_between(samples, start, end),
                "longest_gap_seconds": counters.longest_gap(samples, start, end),
                "resets": counters.count_resets(samples),
                "count": counters.increase(samples, start, end),
                "sum_seconds": counters.increase(sums.get(index, ()), start, end),
                "quantiles_seconds": {f"{q:g}": quantiles[q].get(index) for q in QUANTILES},
            }
            for index in range(self.replicas)
            for samples in [counts.get(index, ())]
        ]
