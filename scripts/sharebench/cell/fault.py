"""A cell in which one tenant goes wrong on purpose: what becomes of the others, and of the node.

The steps are those of every cell (cell.py) until all are steady. Then comes a short rehearsal, in which all are well:
its evidence is the cell's, because a tenant that dies delivers none. Then the window, in whose middle the
aggressor goes wrong (tenant/workloads/fault.py); whoever dies in it, it runs to its end. Once the tenants are gone, one
more is started: how long that takes is what the fault cost the node.
"""

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from sharebench.cell.cell import CellProcedure, MeasuredCell, Observation, cell_status, common_environment
from sharebench.cell.window import announce_window, read_clock, stopping_sampler_on_failure, window_record
from sharebench.core.units import NS
from sharebench.nodes.contract import (
    Endpoint,
    Grant,
    MortalTenants,
    State,
    Tenants,
    TenantsFailed,
    TenantUnreachable,
    UnrecoverableNodeError,
)
from sharebench.records.types import Exit, FaultOutcome, Outcome
from tenant.contract import FAULTS, TenantReport

T = TypeVar("T")
REHEARSAL_SECONDS = 0.2
# An aggressor that has not ended its iteration so long after the window hangs; it is not waited for any longer.
HANG_SECONDS = 1.0
# Beyond a deadline, for the way of the answer.
ANSWER_SECONDS = 0.5
# Starts of a new tenant; before the second, the state is set up again.
ATTEMPTS = 2
SILENT: Exit = {"code": None, "reason": "did not deliver its record within the deadline", "log_tail": ""}


class FaultProcedure(CellProcedure):
    """One tenant, the aggressor, goes wrong at a set moment of the window; the others are its victims."""

    def observe(self, tenants: Tenants, grants: Sequence[Grant]) -> Observation:
        """Rehearse, then run the window to its end. Raises as `Course.observe`, but not for who dies in the window."""
        assert isinstance(tenants, MortalTenants)
        aggressor, deadline = self.spec["fault"]["aggressor"], self.deadline_seconds
        endpoints = tenants.endpoints()
        clocks = [read_clock(endpoint) for endpoint in endpoints]
        sampler = self.node.sampler(tenants)
        pool = ThreadPoolExecutor(len(endpoints))
        try:
            _, end_ns = announce_window(tenants, pool, REHEARSAL_SECONDS, deadline, last=aggressor)
            tenants.sleep_until(end_ns)
            rehearsed = list(pool.map(lambda endpoint: endpoint.record(deadline), endpoints))
            evidence = self.node.evidence(self.strategy, grants, rehearsed)
            start_ns, end_ns = announce_window(tenants, pool, self.spec["window_seconds"], deadline, last=aggressor)
            sampler.start()
            with stopping_sampler_on_failure(tenants, sampler, start_ns):
                ended = {i: (at_ns - start_ns) / NS for i, at_ns in tenants.watch_until(end_ns).items()}
            rows, telemetry = sampler.stop(start_ns / NS, end_ns / NS)
            measured = self._records(pool, endpoints, aggressor)
            if aggressor not in ended and FAULTS[self.spec["fault"]["kind"]] != "hung":
                # It was to end, and is late.
                tenants.watch_until(end_ns + int(HANG_SECONDS * NS))
        finally:
            pool.shutdown(wait=False)
        window = window_record(start_ns, end_ns, clocks)
        environment = common_environment([report["environment"] for report in rehearsed])
        return Observation(window, measured, rows, telemetry, evidence, environment, ended)

    def _records(
        self, pool: ThreadPoolExecutor, endpoints: Sequence[Endpoint], aggressor: int
    ) -> list[TenantReport | None]:
        """The record of each tenant, None for one that is dead or silent. An aggressor that hangs is not waited for."""
        waits = [HANG_SECONDS if i == aggressor else self.deadline_seconds for i in range(len(endpoints))]
        asked = [pool.submit(each.record, wait) for each, wait in zip(endpoints, waits, strict=True)]
        records = [_answer(future, wait + ANSWER_SECONDS) for future, wait in zip(asked, waits, strict=True)]
        # Only now does no tenant measure any more.
        answered = {i: pool.submit(endpoints[i].output_digest, waits[i]) for i, each in enumerate(records) if each}
        digests = {i: _answer(future, waits[i] + ANSWER_SECONDS) for i, future in answered.items()}
        for i, record in enumerate(records):
            if record is not None:
                record["output_digest"] = digests[i]
        return records

    def complete(
        self, record: MeasuredCell, seen: Observation | None, state: State, grants: Sequence[Grant]
    ) -> MeasuredCell:
        """The record with the victims' status for the cell's, after a new tenant on the node. Raises Unrecoverable."""
        fault, tenants = self.spec["fault"], record["tenants"]
        if seen is not None:
            silent: Outcome = {"status": "hung", "exit": SILENT}
            tenants = [{**each, **silent} if each["status"] == "not-measured" else each for each in tenants]
        judged = [each for each in tenants if seen is None or each["index"] != fault["aggressor"]]
        status, reason = cell_status(judged, record["reason"])
        new_tenant_seconds, recovery_seconds, refused = self._new_tenant(state, grants)
        outcome: FaultOutcome = {
            "kind": fault["kind"],
            "aggressor": fault["aggressor"],
            "at_seconds": fault["at_fraction"] * self.spec["window_seconds"],
            "happened": seen is not None and tenants[fault["aggressor"]]["status"] != "ok",
            "ended_seconds": [seen.ended.get(each["index"]) if seen else None for each in tenants],
            "new_tenant_seconds": new_tenant_seconds,
            "recovery_seconds": recovery_seconds,
            "set_up_again": self.node.switched is not None,
            "refused_tenants": refused,
        }
        return {**record, "tenants": tenants, "status": status, "reason": reason, "fault": outcome}

    def _new_tenant(self, state: State, grants: Sequence[Grant]) -> tuple[float, float, int]:
        """Seconds until the node has a new tenant ready, from its launch and from now, and how many were refused.

        After a refused one the state is set up again, if that is what the node needs.
        """
        began = time.monotonic()
        self.node.switched = None
        for attempt in range(ATTEMPTS):
            self.node.ensure(state)
            launched = time.monotonic()
            new_tenant_seconds = self._new_tenant_seconds(grants)
            # What a fault, or a start that failed, did to the state need not show at once.
            self.node.mark_dirty()
            if new_tenant_seconds is not None:
                return new_tenant_seconds, launched - began + new_tenant_seconds, attempt
        seconds = self.settings["timeouts"]["start_seconds"]
        raise UnrecoverableNodeError(
            f"no new tenant could start within {seconds:g} s after the fault {self.spec['fault']['kind']}; "
            "it may need a reset by its owner: see the kernel's log (dmesg)"
        )

    def _new_tenant_seconds(self, grants: Sequence[Grant]) -> float | None:
        """Time from the launch of one more victim until it is warm; None when it does not get there in time."""
        tenants = self.node.tenants(self.spec, self.settings)
        began = time.monotonic()
        try:
            tenants.start(grants[:1])
            with contextlib.suppress(TenantsFailed):
                tenants.wait_ready()
                return time.monotonic() - began
            return None
        finally:
            tenants.stop()


def _answer(future: Future[T], seconds: float) -> T | None:
    try:
        return future.result(seconds)
    except (TenantUnreachable, TimeoutError):
        return None
