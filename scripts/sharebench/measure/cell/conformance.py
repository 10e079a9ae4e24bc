"""A cell that measures what a strategy promises: its tenants do the tasks of tenant/tasks.py.

The window, with all tenants busy, is that of every cell. After it come short windows of other modes, and tasks between
iterations. What is measured is not judged here. Evidence of a limit that the strategy grants is kept as a number: in
such a cell evidence shows only that the strategy was set up.
"""

import contextlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, cast

from sharebench.core.units import NS
from sharebench.measure.cell.cell import CellProcedure, MeasuredCell, Observation, cell_status
from sharebench.measure.cell.window import announce_window
from sharebench.measure.nodes.contract import Endpoint, Grant, State, Tenants, TenantsFailed, TenantUnreachable
from sharebench.measure.nodes.limits import GRANTED
from sharebench.model.records.types import PhaseTenant, PhaseWindow, Promises, TenantRecord

MODULE = "conformance"
PHASE_SECONDS = 1.0
TASK_SECONDS = 120.0
# Memory that a tenant holds while NVML is asked how much it has.
HELD_BYTES = 256 << 20
PATTERN_BITS = 32
SHARED_ROUNDS = 200
END_SECONDS = 10.0
POLL_SECONDS = 0.1


class TaskEndpoint(Endpoint, Protocol):
    """The endpoint of a tenant that does tasks."""

    def task(self, name: str, params: Mapping[str, object], deadline_seconds: float) -> Mapping[str, Any]:
        """The result of a task. Raises TenantUnreachable."""


class ConformanceProcedure(CellProcedure):
    """Fills the record's `promises`; a tenant that fails after the window ends the phases, and is the cell's status."""

    ends_tenants = True

    def observe(self, tenants: Tenants, grants: Sequence[Grant]) -> Observation:
        since_seconds = time.time()
        observed = super().observe(tenants, grants)
        self._promises: Promises = {
            "granted": [item for item in observed.evidence if item["name"] in GRANTED],
            "visible": self.node.visible_processes(tenants.pids(), since_seconds),
            "windows": {},
            "tasks": {},
            "failure": None,
        }
        observed.evidence[:] = [item for item in observed.evidence if item["name"] not in GRANTED]
        self._ended: int | None = None
        pool = ThreadPoolExecutor(len(grants))
        try:
            self._run_phases(tenants, pool)
        except (TenantsFailed, TenantUnreachable) as failure:
            self._promises["failure"] = str(failure)
        finally:
            pool.shutdown(wait=False)
        return observed

    def _run_phases(self, tenants: Tenants, pool: ThreadPoolExecutor) -> None:
        endpoints = cast(Sequence[TaskEndpoint], tenants.endpoints())
        everyone = range(len(endpoints))
        neighbours = everyone[1:]

        def ask(who: Iterable[int], name: str, **params: object) -> list[Mapping[str, Any]]:
            return list(pool.map(lambda index: endpoints[index].task(name, params, TASK_SECONDS), who))

        def window(name: str, **modes: Sequence[int]) -> None:
            """Measure a window with these tenants in each mode, the others being idle."""
            ask(everyone, "mode", mode="idle")
            for mode, who in modes.items():
                ask(who, "mode", mode=mode)
            self._promises["windows"][name] = self._window(tenants, pool)

        def do(name: str, who: Iterable[int], task: str | None = None, **params: object) -> None:
            results = [(index, ask([index], task or name, **params)[0]) for index in who]
            self._promises["tasks"][name] = [{"tenant": index, **result} for index, result in results]

        ask(everyone, "agree", pattern=secrets.randbits(PATTERN_BITS) | 1)
        for index in everyone:
            window(f"alone-{index}", busy=[index])
        window("light-alone", light=[0])
        if neighbours:
            window("light-next-to-busy", light=[0], busy=neighbours)
        ask(everyone, "mode", mode="idle")
        ask(everyone, "hold", size_bytes=HELD_BYTES)
        self._promises["holding"] = self.node.visible_processes(tenants.pids(), time.time())
        ask(everyone, "hold", size_bytes=0)
        do("largest_allocation", everyone)
        results = ask(everyone, "answers")
        self._promises["tasks"]["answers"] = [{"tenant": index, **results[index]} for index in everyone]
        if not neighbours:
            return
        last = everyone[-1]
        do("write", [last])
        do("look_after_free", [0], "look")
        ask(neighbours, "mode", mode="pattern")
        do("look_shared", [0], rounds=SHARED_ROUNDS)
        if not self.strategy.is_one_process:
            self._end(tenants, endpoints[last], last)
            do("look_after_end", [0], "look")

    def _window(self, tenants: Tenants, pool: ThreadPoolExecutor) -> PhaseWindow:
        start_ns, end_ns = announce_window(tenants, pool, PHASE_SECONDS, self.deadline_seconds)
        tenants.sleep_until(end_ns)
        reports = list(pool.map(lambda endpoint: endpoint.record(self.deadline_seconds), tenants.endpoints()))
        each: list[PhaseTenant] = [
            {"count": report["count"], "sum_seconds": report["sum_seconds"], "histogram": report["histogram"]}
            for report in reports
        ]
        return {"seconds": (end_ns - start_ns) / NS, "tenants": each}

    def _end(self, tenants: Tenants, endpoint: TaskEndpoint, index: int) -> None:
        """Have a tenant end without freeing its memory. Raises TenantsFailed where it does not."""
        self._ended = index
        # Its answer never comes.
        with contextlib.suppress(TenantUnreachable):
            endpoint.task("end", {}, TASK_SECONDS)
        deadline = time.monotonic() + END_SECONDS
        while tenants.outcomes()[index]["status"] == "ok":
            if time.monotonic() > deadline:
                raise TenantsFailed("a tenant did not end when it was asked to")
            time.sleep(POLL_SECONDS)

    def complete(
        self, record: MeasuredCell, observed: Observation | None, state: State, grants: Sequence[Grant]
    ) -> MeasuredCell:
        """The record with `promises`; the tenant that ended when it was asked to is as good as the others."""
        if observed is None:
            return super().complete(record, observed, state, grants)
        tenants: list[TenantRecord] = [
            {**each, "status": "ok", "exit": None} if each["index"] == self._ended else each
            for each in record["tenants"]
        ]
        status, reason = cell_status(tenants, record["reason"])
        return {**record, "tenants": tenants, "status": status, "reason": reason, "promises": self._promises}
