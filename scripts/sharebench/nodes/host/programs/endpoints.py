"""The driver's side of a tenant that is a user program: measured by its own metrics, or by the driver's client."""

import http.client
import math
import platform
import time
from pathlib import Path

from sharebench.core.spec import WorkloadSpec
from sharebench.core.units import NS
from sharebench.nodes.contract import NodeError, TenantUnreachable, unmeasured
from sharebench.nodes.host.logs import Search
from sharebench.nodes.host.programs.metrics import MissingSeries, Scrape, between, scrape
from sharebench.nodes.host.programs.process_tree import AtEdges, ProcessTree
from sharebench.nodes.tenant_http import READY_TIMEOUT_SECONDS, HttpEndpoint
from tenant.contract import BATCH_SECONDS, Batches, Environment, Rule, Steadiness, TenantReport
from tenant.contract.requests import described

# Beyond the record's deadline: a scrape that has begun is waited for.
LATE_SECONDS = 10.0


def environment() -> Environment:
    """What is known of that of a program: this host's."""
    return {
        "python": platform.python_version(),
        "platform": "-".join((platform.system(), platform.release(), platform.machine())),
        "packages": {},
    }


class MeansJudge(Batches):
    """Judges by the means of batches between scrapes, in place of medians."""

    _first: Scrape | None = None

    def add(self, now: Scrape) -> None:
        """Take the next scrape; it ends a batch when there is enough between it and the one that began it."""
        first = self._first
        if first is None or now.count < first.count:
            self._first = now
            return
        count = now.count - first.count
        is_long_enough = now.middle_ns - first.middle_ns >= BATCH_SECONDS * NS
        if self.settled is None and is_long_enough and count >= self.least_iterations:
            self.close_batch((now.sum_seconds - first.sum_seconds) / count * NS)
            self._first = now


class ScrapedEndpoint:
    """A program that measures itself; `port` is where its metrics are on this host, `log` what it prints.

    The window's scrapes are taken by this process, at the window's start and end.
    """

    def __init__(
        self, index: int, workload: WorkloadSpec, port: int, log: Path, outside: ProcessTree, rule: Rule
    ) -> None:
        self.index = index
        self.workload = workload
        self.port = port
        self.outside = outside
        self.complaint: str | None = None
        self.waiting_for: str | None = None
        wanted = workload["ready"]["log"]
        self._in_log = None if wanted is None else Search(log, wanted)
        self._rule = rule
        self._begun_ns = time.monotonic_ns()
        self._load_seconds: float | None = None
        self._warmup_seconds = 0.0
        self._judge: MeansJudge | None = None
        self._asked_ns = 0
        self._edges: AtEdges[tuple[Scrape, float]] | None = None
        self._window = (0, 0)

    def _scrape(self, timeout_seconds: float) -> Scrape:
        return scrape(self.port, self.workload["metrics"], timeout_seconds)

    def _has_started(self) -> bool:
        """Whether the rule of the workload's `ready` holds, and the series is there. Raises TenantUnreachable."""
        rule = self.workload["ready"]
        if self._in_log is not None and not self._in_log.found():
            self.waiting_for = f"its log has no {self._in_log.text!r}"
            return False
        if rule["path"] is not None and (why := self._no_answer(rule["path"])):
            self.waiting_for = f"GET {rule['path']}: {why}"
            return False
        try:
            count = self._scrape(READY_TIMEOUT_SECONDS).count
        except MissingSeries as missing:
            self.complaint = f"tenant {self.index}: {missing}"
            return False
        except TenantUnreachable as unreachable:
            self.waiting_for = str(unreachable)
            raise
        self.complaint = None
        wanted = rule["count"] or 1
        self.waiting_for = f"its metrics count {count} of {wanted} iterations"
        return count >= wanted

    def _no_answer(self, path: str) -> str | None:
        """Why a GET of this path has no status 200, or None."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=READY_TIMEOUT_SECONDS)
        try:
            connection.request("GET", path)
            status = connection.getresponse().status
            return None if status == 200 else f"status {status}"
        except (OSError, http.client.HTTPException) as error:
            return described(error)
        finally:
            connection.close()

    def ready(self) -> bool:
        if self._load_seconds is None:
            if not self._has_started():
                return False
            self._load_seconds = (time.monotonic_ns() - self._begun_ns) / NS
            self.waiting_for = "its warm-up has not ended"
        if self.settled(self._begun_ns) is None:
            return False
        self._warmup_seconds = (time.monotonic_ns() - self._begun_ns) / NS - self._load_seconds
        return True

    def settled(self, since_ns: int | None) -> Steadiness | None:
        if self._judge is None or since_ns not in (None, self._judge.since_ns):
            self._judge = MeansJudge(self._rule, self._begun_ns if since_ns is None else since_ns)
        now_ns = time.monotonic_ns()
        # A scrape takes time of the program's.
        if now_ns - self._asked_ns >= BATCH_SECONDS * NS:
            self._asked_ns = now_ns
            try:
                self._judge.add(self._scrape(READY_TIMEOUT_SECONDS))
            except MissingSeries as missing:
                raise NodeError(f"tenant {self.index}: {missing}") from None
        return self._judge.verdict(time.monotonic_ns())

    def clock(self) -> tuple[int, int, float]:
        """This host's own clocks: the scrapes have errors of their own."""
        return time.monotonic_ns(), time.time_ns(), 0.0

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        assert iterations is None, "a user program runs no jobs"
        if start_ns <= time.monotonic_ns():
            return False
        self._window = (start_ns, end_ns)
        self._edges = AtEdges(self._look, start_ns, end_ns)
        return True

    def _look(self) -> tuple[Scrape, float]:
        return self._scrape(LATE_SECONDS), self.outside.cpu_seconds()

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """What the scrapes at the window's ends tell.

        Raises TenantUnreachable when one was not answered, NodeError when the series is gone or began again.
        """
        assert self._edges is not None
        start_ns, end_ns = self._window
        left_seconds = max(ahead_seconds, (end_ns - time.monotonic_ns()) / NS)
        try:
            seen = self._edges.seen(left_seconds + deadline_seconds + LATE_SECONDS)
            if seen is None:
                raise TenantUnreachable("its metrics were not answered at the window's ends")
            (first, cpu_before), (last, cpu_after) = seen
            found = between(first, last)
        except (MissingSeries, NodeError) as failure:
            raise NodeError(f"tenant {self.index}: {failure}") from None
        inside_seconds = (min(last.begun_ns, end_ns) - max(first.ended_ns, start_ns)) / NS
        uppers = [None if math.isinf(upper) else upper for upper in found.upper_seconds]
        return {
            **unmeasured(self.index, self.workload["name"]),
            "measured_by": "scrape",
            "startup": {
                # From outside the parts cannot be distinguished.
                "process_seconds": 0.0,
                "import_seconds": 0.0,
                "context_seconds": 0.0,
                "load_seconds": self._load_seconds or 0.0,
                "warmup_seconds": self._warmup_seconds,
            },
            "steady": None,
            "count": found.count,
            "sum_seconds": found.sum_seconds,
            "foreign_histogram": {"upper_seconds": uppers, "count": list(found.counts)} if uppers else None,
            "scrape": {
                "offset_seconds": (found.begun_ns - start_ns) / NS,
                "seconds": found.seconds,
                "seconds_error": found.seconds_error,
                "longest_seconds": found.longest_seconds,
                "rate_error_ratio": found.rate_error_ratio,
                "mean_error_ratio": found.mean_error_ratio,
            },
            "load": {
                "arrival": "own",
                "planned_rate_hz": None,
                "achieved_rate_hz": found.rate_hz,
                "delay_p99_seconds": None,
                "in_flight_mean": None,
                "drops": 0,
                "censored": 0,
            },
            "coverage_ratio": min(1.0, max(0.0, inside_seconds / ((end_ns - start_ns) / NS))),
            "cpu": self.outside.cpu_use(cpu_after - cpu_before),
            "memory_bytes": self.outside.peak_resident_bytes(),
            "outside": self.outside.seen(),
            "output_digest": None,
            "environment": environment(),
        }

    def output_digest(self, deadline_seconds: float) -> None:
        """None: what a program computes is not known."""


class ServedEndpoint(HttpEndpoint):
    """The driver's client and the server that it asks: the client's record, with the server's own use of the host.

    `outside` is None for an external server, which the host does not see.
    """

    def __init__(self, port: int, token: str, outside: ProcessTree | None) -> None:
        super().__init__("127.0.0.1", port, token)
        self.outside = outside
        self._edges: AtEdges[float] | None = None

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        """Announce the window, and look at the server's CPU time at its ends."""
        taken = super().set_window(start_ns, end_ns, iterations)
        if taken and self.outside is not None:
            self._edges = AtEdges(self.outside.cpu_seconds, start_ns, end_ns)
        return taken

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The client's record; `cpu` and `memory_bytes` are the server's, `generator` has what the client used."""
        report = super().record(deadline_seconds, ahead_seconds)
        report["measured_by"] = "client"
        report["cpu"] = report["memory_bytes"] = report["work"] = report["outside"] = None
        if self.outside is not None:
            seen = self._edges.seen(LATE_SECONDS) if self._edges is not None else None
            if seen is None:
                raise TenantUnreachable("its server could not be looked at")
            report["cpu"] = self.outside.cpu_use(seen[1] - seen[0])
            report["memory_bytes"] = self.outside.peak_resident_bytes()
            report["outside"] = self.outside.seen()
        return report

    def output_digest(self, deadline_seconds: float) -> None:
        """None: what a server answers may differ each time."""
