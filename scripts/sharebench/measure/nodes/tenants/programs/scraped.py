"""A program that measures itself: its readiness, and the report from a window's two pages."""

import contextlib
import math
import time
from collections.abc import Sequence
from urllib.parse import urlencode

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import NodeError, TenantsFailed, TenantUnreachable, own_load_report
from sharebench.measure.nodes.metrics import MissingSeries, Scrape, parse_page, restart_sign, subtract_scrapes
from sharebench.measure.nodes.tenants.endpoint import Connect
from sharebench.measure.nodes.tenants.programs.endpoints import ClientEndpoint, ExitEndpoint, ObservedProgram
from sharebench.model.workload import Workload
from tenant.contract import (
    BATCH_SECONDS,
    NO_OUTPUTS,
    BatchComparison,
    Environment,
    Outputs,
    Steadiness,
    SteadinessRule,
    TenantReport,
)
from tenant.contract.requests import Page


class MeansJudge(BatchComparison):
    """Judges steadiness by the means of batches between scrapes, in place of medians."""

    _first: Scrape | None = None

    def add(self, now: Scrape) -> None:
        """Add a scrape; it ends a batch that is long enough and has enough iterations."""
        first = self._first
        if first is None or restart_sign(first, now):
            self._first = now
            return
        count = now.count - first.count
        is_long_enough = now.middle_ns - first.middle_ns >= BATCH_SECONDS * NS
        if self.final_verdict is None and is_long_enough and count >= self.batch_iterations:
            self.close_batch((now.sum_seconds - first.sum_seconds) / count * NS)
            self._first = now


class ScrapedEndpoint(ClientEndpoint):
    """A program that measures itself: the client next to it fetches its metrics pages, which are parsed here."""

    offset_ns = 0
    """Lead of the pages' clock over this process's."""

    def __init__(self, program: ObservedProgram, port: int, token: str, connect: Connect | None = None) -> None:
        super().__init__(program, port, token, connect)
        self.index, self.workload = program.index, program.workload
        self._rule = SteadinessRule(**program.spec.warmup_rule)
        self._begun_ns = time.monotonic_ns()
        self._load_seconds: float | None = None
        self._warmup_seconds = 0.0
        self._judge: MeansJudge | None = None
        self._asked_ns = 0

    def page(self, path: str) -> Page:
        """A page of the program, now."""
        page: Page = self._get_json("GET", f"/page?{urlencode({'path': path})}")
        self.offset_ns = self.offset_ns or page["ended_ns"] - time.monotonic_ns()
        return page

    def _scrape(self) -> Scrape:
        return parse_page(self.page(self.workload.metrics.path), self.workload.metrics)

    def _has_started(self) -> bool:
        """Whether the workload's `ready` rule holds and the series exists. Raises TenantUnreachable."""
        rule = self.workload.ready
        if rule.log is not None and not self.program.has_printed(rule.log):
            self.waiting_for = f"its log has no {rule.log!r}"
            return False
        if rule.path is not None and (why := self.page(rule.path)["failure"]) is not None:
            self.waiting_for = f"GET {rule.path}: {why}"
            return False
        try:
            count = self._scrape().count
        except MissingSeries as missing:
            self.complaint = f"tenant {self.index}: {missing}"
            return False
        except TenantUnreachable as unreachable:
            self.waiting_for = str(unreachable)
            raise
        self.complaint = None
        required = rule.count or 1
        self.waiting_for = f"its metrics count {count} of {required} iterations"
        return count >= required

    def ready(self) -> bool:
        if self._load_seconds is None:
            if not self._has_started():
                return False
            self._load_seconds = (time.monotonic_ns() - self._begun_ns) / NS
            self.waiting_for = "its warm-up has not ended"
        if self.steadiness(self._begun_ns + self.offset_ns) is None:
            return False
        self._warmup_seconds = (time.monotonic_ns() - self._begun_ns) / NS - self._load_seconds
        return True

    def steadiness(self, since_ns: int | None) -> Steadiness | None:
        if self._judge is None or since_ns not in (None, self._judge.since_ns):
            self._judge = MeansJudge(self._rule, self._begun_ns + self.offset_ns if since_ns is None else since_ns)
        now_ns = time.monotonic_ns()
        # A scrape costs the program time.
        if now_ns - self._asked_ns >= BATCH_SECONDS * NS:
            self._asked_ns = now_ns
            try:
                self._judge.add(self._scrape())
            except MissingSeries as missing:
                raise NodeError(f"tenant {self.index}: {missing}") from None
        return self._judge.verdict(time.monotonic_ns() + self.offset_ns)

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        """The record from the pages at the window's edges, with the CPU time and memory that the client has seen.

        Raises TenantsFailed if the program does not answer its client, NodeError when the series is gone or restarted.
        """
        answer = self._get_and_wait("/record", deadline_seconds, ahead_seconds)
        try:
            report = self.report(answer["pages"], self.window, answer["environment"])
        except TenantUnreachable as silence:
            # Its end, if any, may show late; without one, it hangs.
            with contextlib.suppress(NodeError):
                self.program.ending()
            raise TenantsFailed(f"a tenant does not answer: {silence}") from silence
        # Without a shared process namespace, the client does not see the program's devices.
        return {
            **report,
            "cpu": answer["cpu"],
            "memory_bytes": answer["memory_bytes"],
            "outside": answer["outside"],
            "view": answer.get("view"),
        }

    def outputs(self, deadline_seconds: float) -> Outputs:
        return NO_OUTPUTS

    def report(self, pages: Sequence[Page], window: tuple[int, int], environment: Environment) -> TenantReport:
        """The report from the pages at the window's ends, without CPU time and memory.

        Raises TenantUnreachable when there is no page, NodeError when the series is gone or has restarted.
        """
        start_ns, end_ns = window
        try:
            before, after = (parse_page(page, self.workload.metrics) for page in pages)
            totals = subtract_scrapes(before, after)
        except (MissingSeries, NodeError) as failure:
            raise NodeError(f"tenant {self.index}: {failure}") from None
        inside_seconds = (min(after.begun_ns, end_ns) - max(before.ended_ns, start_ns)) / NS
        uppers = [None if math.isinf(upper) else upper for upper in totals.upper_seconds]
        return {
            **own_load_report(self.index, self.workload.name, totals.rate_hz, environment),
            "measured_by": "scrape",
            "startup": {
                # The parts cannot be distinguished from outside.
                "process_seconds": self.process_seconds or 0.0,
                "import_seconds": 0.0,
                "context_seconds": 0.0,
                "load_seconds": self._load_seconds or 0.0,
                "warmup_seconds": self._warmup_seconds,
            },
            "count": totals.count,
            "sum_seconds": totals.sum_seconds,
            "foreign_histogram": {"upper_seconds": uppers, "count": list(totals.counts)} if uppers else None,
            "scrape": {
                "offset_seconds": (totals.begun_ns - start_ns) / NS,
                "seconds": totals.seconds,
                "seconds_error": totals.seconds_error,
                "longest_seconds": totals.longest_seconds,
                "rate_error_ratio": totals.rate_error_ratio,
                "mean_error_ratio": totals.mean_error_ratio,
            },
            "coverage_ratio": min(1.0, max(0.0, inside_seconds / ((end_ns - start_ns) / NS))),
        }


def endpoint_class(workload: Workload) -> type[ClientEndpoint]:
    """The endpoint of a user program."""
    if workload.runs_until_exit:
        return ExitEndpoint
    return ScrapedEndpoint if workload.kind == "command" else ClientEndpoint
