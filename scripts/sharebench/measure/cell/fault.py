"""A cell with a fault: one tenant fails on purpose, to see what happens to the others and to the node.

The steps are those of every cell (cell.py) until all tenants are steady. A short rehearsal without the fault follows,
which delivers the cell's evidence, since a tenant that dies delivers none. Then comes the window, in the middle of
which the aggressor fails (tenant/workloads/fault.py); the window continues whoever dies. After all tenants have ended,
one more is started, to measure how long the node takes to recover.
"""

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from sharebench.core.units import NS
from sharebench.measure.cell.cell import CellProcedure, MeasuredCell, Observation, cell_status, common_environment
from sharebench.measure.cell.window import announce_window, read_clock, stopping_sampler_on_failure, window_record
from sharebench.measure.nodes.contract import (
    Endpoint,
    Grant,
    State,
    Tenants,
    TenantsFailed,
    TenantUnreachable,
    UnrecoverableNodeError,
)
from sharebench.model.records.types import Exit, FaultOutcome, Outcome
from sharebench.model.spec import FaultSpec
from tenant.contract import FAULTS, NO_OUTPUTS, TenantReport

T = TypeVar("T")
REHEARSAL_SECONDS = 0.2
# An aggressor whose iteration has not ended by then, after the window, counts as hung.
HANG_SECONDS = 1.0
# Allowance beyond a deadline, for the transfer of the answer.
ANSWER_SECONDS = 0.5
# Attempts to start a new tenant; the state is set up again before the second.
ATTEMPTS = 2
SILENT: Exit = {"code": None, "reason": "did not deliver its record within the deadline", "log_tail": ""}


class FaultProcedure(CellProcedure):
    """One tenant, the aggressor, fails at a set moment of the window; the others are its victims."""

    ends_tenants = True

    @property
    def fault(self) -> FaultSpec:
        assert self.spec.fault is not None
        return self.spec.fault

    def observe(self, tenants: Tenants, grants: Sequence[Grant]) -> Observation:
        """Rehearse, then run the window. Raises like `CellProcedure.observe`, except for deaths in the window."""
        aggressor, deadline = self.fault.aggressor, self.deadline_seconds
        endpoints = tenants.endpoints()
        clocks = [read_clock(endpoint) for endpoint in endpoints]
        sampler = tenants.sampler()
        pool = ThreadPoolExecutor(len(endpoints))
        try:
            _, end_ns = announce_window(tenants, pool, REHEARSAL_SECONDS, deadline, last=aggressor)
            tenants.sleep_until(end_ns)
            rehearsed = list(pool.map(lambda endpoint: endpoint.record(deadline), endpoints))
            evidence = self.node.evidence(self.strategy, grants, rehearsed)
            start_ns, end_ns = announce_window(tenants, pool, self.spec.window_seconds, deadline, last=aggressor)
            sampler.start()
            with stopping_sampler_on_failure(tenants, sampler, start_ns):
                ended = {i: (at_ns - start_ns) / NS for i, at_ns in tenants.watch_until(end_ns).items()}
            rows, telemetry = sampler.stop(start_ns / NS, end_ns / NS)
            measured = self._records(pool, endpoints, aggressor)
            if aggressor not in ended and FAULTS[self.fault.kind] != "hung":
                # The aggressor should have ended, and is late.
                tenants.watch_until(end_ns + int(HANG_SECONDS * NS))
        finally:
            pool.shutdown(wait=False)
        window = window_record(start_ns, end_ns, clocks)
        environment = common_environment([report["environment"] for report in rehearsed])
        return Observation(window, measured, rows, telemetry, evidence, environment, ended)

    def _records(
        self, pool: ThreadPoolExecutor, endpoints: Sequence[Endpoint], aggressor: int
    ) -> list[TenantReport | None]:
        """The report of each tenant, None for a dead or silent one. A hung aggressor is not waited for."""
        waits = [HANG_SECONDS if i == aggressor else self.deadline_seconds for i in range(len(endpoints))]
        asked = [pool.submit(each.record, wait) for each, wait in zip(endpoints, waits, strict=True)]
        records = [_result_or_none(future, wait + ANSWER_SECONDS) for future, wait in zip(asked, waits, strict=True)]
        # A digest is work for the device, so it must wait until no tenant measures.
        answered = {i: pool.submit(endpoints[i].outputs, waits[i]) for i, each in enumerate(records) if each}
        outputs = {i: _result_or_none(each, waits[i] + ANSWER_SECONDS) or NO_OUTPUTS for i, each in answered.items()}
        for i, record in enumerate(records):
            if record is not None:
                record["output_digest"] = outputs[i]["output_digest"]
        return records

    def complete(
        self, record: MeasuredCell, observed: Observation | None, state: State, grants: Sequence[Grant]
    ) -> MeasuredCell:
        """The record with the victims' status, after the start of a new tenant. Raises UnrecoverableNodeError."""
        fault, tenants = self.fault, record["tenants"]
        if observed is not None:
            silent: Outcome = {"status": "hung", "exit": SILENT}
            tenants = [{**each, **silent} if each["status"] == "not-measured" else each for each in tenants]
        victims = [each for each in tenants if observed is None or each["index"] != fault.aggressor]
        status, reason = cell_status(victims, record["reason"])
        new_tenant_seconds, recovery_seconds, refused = self._new_tenant(state, grants)
        outcome: FaultOutcome = {
            "kind": fault.kind,
            "aggressor": fault.aggressor,
            "at_seconds": fault.at_fraction * self.spec.window_seconds,
            "happened": observed is not None and tenants[fault.aggressor]["status"] != "ok",
            "ended_seconds": [observed.ended.get(each["index"]) if observed else None for each in tenants],
            "new_tenant_seconds": new_tenant_seconds,
            "recovery_seconds": recovery_seconds,
            "set_up_again": self.node.switched is not None,
            "refused_tenants": refused,
        }
        return {**record, "tenants": tenants, "status": status, "reason": reason, "fault": outcome}

    def _new_tenant(self, state: State, grants: Sequence[Grant]) -> tuple[float, float, int]:
        """Seconds until a new tenant is ready, from its launch and from now, and the number of failed attempts.

        After a failed attempt the state is set up again, if the node needs that.
        """
        began = time.monotonic()
        self.node.switched = None
        for attempt in range(ATTEMPTS):
            self.node.ensure(state)
            launched = time.monotonic()
            new_tenant_seconds = self._new_tenant_seconds(grants)
            # Damage to the state by a fault or a failed start may not show at once.
            self.node.mark_dirty()
            if new_tenant_seconds is not None:
                return new_tenant_seconds, launched - began + new_tenant_seconds, attempt
        seconds = self.settings["timeouts"]["start_seconds"]
        raise UnrecoverableNodeError(
            f"no new tenant could start within {seconds:g} s after the fault {self.fault.kind}; "
            "its owner may have to reset the device: see the kernel's log (dmesg)"
        )

    def _new_tenant_seconds(self, grants: Sequence[Grant]) -> float | None:
        """Time from the launch of one more victim until it is warm; None when it is not warm in time."""
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


def _result_or_none(future: Future[T], seconds: float) -> T | None:
    try:
        return future.result(seconds)
    except (TenantUnreachable, TimeoutError):
        return None
