"""Endpoints of tenants that are user programs: measured by their own metrics, or by the driver's client."""

import time
from pathlib import Path

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import TenantUnreachable
from sharebench.measure.nodes.host.logs import LogSearch
from sharebench.measure.nodes.host.programs.process_tree import EdgeReader, ProcessTree
from sharebench.measure.nodes.scraped import ScrapedProgram
from sharebench.measure.nodes.tenant_http import HttpEndpoint
from sharebench.model.spec import WorkloadSpec
from tenant.contract import NO_OUTPUTS, Outputs, SteadinessRule, TenantReport, environment
from tenant.contract.requests import EDGE_TIMEOUT_SECONDS, Page, fetch_page


class ScrapedEndpoint(ScrapedProgram):
    """A program that measures itself; `port` serves its metrics on this host, `log` is its output.

    This process takes the scrapes at the window's start and end.
    """

    def __init__(
        self, index: int, workload: WorkloadSpec, port: int, log: Path, outside: ProcessTree, rule: SteadinessRule
    ) -> None:
        super().__init__(index, workload, rule)
        self.port = port
        self.outside = outside
        wanted = workload["ready"]["log"]
        self._in_log = None if wanted is None else LogSearch(log, wanted)
        self._edges: EdgeReader[tuple[Page, float]] | None = None
        self._window = (0, 0)

    def page(self, path: str) -> Page:
        return fetch_page(self.port, path)

    def has_printed(self, text: str) -> bool:
        return self._in_log is None or self._in_log.is_found()

    def clock(self) -> tuple[int, int, float]:
        return time.monotonic_ns(), time.time_ns(), 0.0

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        assert iterations is None, "a user program runs no jobs"
        if start_ns <= time.monotonic_ns():
            return False
        self._window = (start_ns, end_ns)
        self._edges = EdgeReader(self._read_edge, start_ns, end_ns)
        return True

    def _read_edge(self) -> tuple[Page, float]:
        return fetch_page(self.port, self.workload["metrics"]["path"], EDGE_TIMEOUT_SECONDS), self.outside.cpu_seconds()

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """Raises TenantUnreachable when a scrape was not answered, and like `report`."""
        assert self._edges is not None
        left_seconds = max(ahead_seconds, (self._window[1] - time.monotonic_ns()) / NS)
        readings = self._edges.readings(left_seconds + deadline_seconds + EDGE_TIMEOUT_SECONDS)
        if readings is None:
            raise TenantUnreachable("its metrics were not answered at the window's ends")
        (first, cpu_before), (last, cpu_after) = readings
        return {
            **self.report((first, last), self._window, environment({})),
            "cpu": self.outside.cpu_use(cpu_after - cpu_before),
            "memory_bytes": self.outside.peak_resident_bytes(),
            "outside": self.outside.view(),
        }

    def outputs(self, deadline_seconds: float) -> Outputs:
        return NO_OUTPUTS


class ServedEndpoint(HttpEndpoint):
    """The driver's client and its server: the client's report, with the server's use of the host.

    `outside` is None for an external server, which the host cannot see.
    """

    def __init__(self, port: int, token: str, outside: ProcessTree | None) -> None:
        super().__init__("127.0.0.1", port, token)
        self.outside = outside
        self._edges: EdgeReader[float] | None = None

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        """Announce the window, and read the server's CPU time at its ends."""
        taken = super().set_window(start_ns, end_ns, iterations)
        if taken and self.outside is not None:
            self._edges = EdgeReader(self.outside.cpu_seconds, start_ns, end_ns)
        return taken

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The client's report; `cpu` and `memory_bytes` are the server's, `generator` has the client's use."""
        report = super().record(deadline_seconds, ahead_seconds)
        report["measured_by"] = "client"
        report["cpu"] = report["memory_bytes"] = report["work"] = report["outside"] = None
        if self.outside is not None:
            readings = self._edges.readings(EDGE_TIMEOUT_SECONDS) if self._edges is not None else None
            if readings is None:
                raise TenantUnreachable("its server could not be looked at")
            report["cpu"] = self.outside.cpu_use(readings[1] - readings[0])
            report["memory_bytes"] = self.outside.peak_resident_bytes()
            report["outside"] = self.outside.view()
        return report

    def outputs(self, deadline_seconds: float) -> Outputs:
        """Answers only: there is no digest, since a server's last answer is another each time."""
        return super().outputs(deadline_seconds) | NO_OUTPUTS
