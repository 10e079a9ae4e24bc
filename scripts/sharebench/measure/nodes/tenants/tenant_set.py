"""The tenants of a cell on a host and in a cluster: started together or one after another, waited for, watched.

A launcher subclasses both classes here: `Unit` for one process or pod, `TenantSet` for all of a cell.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import (
    Grant,
    Sampler,
    Settings,
    TenantsFailed,
    TenantUnreachable,
    WorkloadError,
)
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from sharebench.model.records.types import Outcome, TenantStatus
from sharebench.model.spec import Spec
from tenant.contract import EXIT_USAGE

Ending = tuple[TenantStatus, str, int | None]
"""Status, reason and exit code of a tenant that has ended by itself."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Unit(ABC):
    """A process or a pod: one tenant, or several on streams of one process."""

    host = "127.0.0.1"
    """The address of its endpoints."""

    def __init__(self, spec: Spec, grants: Sequence[Grant]) -> None:
        self.grants = grants
        self.index = grants[0].index
        # Tenants of one process run the same workload.
        self.workload = spec.workloads[self.index]
        self.is_program = self.workload.is_program
        # Whether an exit is its normal end, and part of its report.
        self.ends_itself = self.workload.runs_until_exit
        self.connected: Sequence[HttpEndpoint] = ()

    @abstractmethod
    def connect(self) -> Sequence[HttpEndpoint]:
        """The endpoint of each of its tenants; empty as long as they are not known."""

    @abstractmethod
    def ending(self) -> Ending | None:
        """How it has ended by itself; None while it runs, and after an end that is its work's."""

    @abstractmethod
    def log_tail(self) -> str:
        """The end of what it has printed."""

    def is_ready(self) -> bool:
        self.connected = self.connected or self.connect()
        # The end of a dying tenant shows a moment later.
        with contextlib.suppress(TenantUnreachable):
            return bool(self.connected) and all(endpoint.ready() for endpoint in self.connected)
        return False

    def refuse_unavailable(self) -> None:  # noqa: B027
        """Raise NodeError where it cannot run for a reason that is not its own."""

    def complaint(self) -> str | None:
        """The error that keeps it from ever being ready, after the time-out; None where sharing may be the cause."""
        return next((each.complaint for each in self.connected if each.complaint is not None), None)

    def waiting_for(self) -> str | None:
        """The unmet condition of its readiness, where that is known."""
        return next((each.waiting_for for each in self.connected if each.waiting_for is not None), None)

    def overdue(self) -> str | None:
        return next((each.overdue for each in self.connected if each.overdue is not None), None)


AnyUnit = TypeVar("AnyUnit", bound=Unit)


def _is_only_short_of_memory(endings: Iterable[Ending]) -> bool:
    """Whether the other tenants are still waited for."""
    return all(status == "oom" for status, _, _ in endings)


class TenantSet(ABC, Generic[AnyUnit]):
    """The tenants of one cell (`contract.Tenants`)."""

    are_local: bool
    poll_seconds: float
    """How often it is asked whether the tenants are ready."""

    def __init__(self, spec: Spec, settings: Settings) -> None:
        self.spec = spec
        self.start_seconds = settings["timeouts"]["start_seconds"]
        self.units: list[AnyUnit] = []
        """Those that were launched, in order."""
        self._waiting: list[AnyUnit] = []
        self._hung: list[AnyUnit] = []
        self._deadline = 0.0

    # What a launcher does.

    @abstractmethod
    def sweep(self) -> None:
        """Remove what earlier cells left behind."""

    @abstractmethod
    def prepare(self, grants: Sequence[Grant]) -> list[AnyUnit]:
        """Make what all tenants need; returns one unit per process or pod, none of them launched. Raises NodeError."""

    @abstractmethod
    def launch(self, units: Sequence[AnyUnit]) -> None:
        """Launch these, and add each to `units`. Raises NodeError."""

    def refuse_unavailable(self) -> None:
        """Raise NodeError where a tenant cannot run for a reason that is not its own."""
        for unit in self.units:
            unit.refuse_unavailable()

    def call_for_each(self, call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return [call(each) for each in items]

    def on_ready(self) -> None:
        """Called when all tenants are warm. Raises NodeError."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Wait for this time, or less."""

    @abstractmethod
    def now_ns(self) -> int:
        """The node's monotonic clock."""

    @abstractmethod
    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Wait in the node's clock, even if tenants end; returns their ends in ns, by index."""

    @abstractmethod
    def sampler(self) -> Sampler:
        """Telemetry of their device. Raises NodeError."""

    @abstractmethod
    def stop(self) -> None:
        """Print the tenants' logs into this job's log, and remove them, in whatever state they are."""

    # The same for all launchers.

    def start(self, grants: Sequence[Grant]) -> None:
        """Launch one tenant per grant; `wait_ready` launches the staggered ones. Raises NodeError."""
        self._waiting = self.prepare(grants)
        self._start_next()

    def _start_next(self) -> None:
        """Launch the next waiting unit, and those after it up to the next staggered one."""
        staggered = (i for i, unit in enumerate(self._waiting) if i and unit.workload.start == "staggered")
        count = next(staggered, len(self._waiting))
        units, self._waiting = self._waiting[:count], self._waiting[count:]
        self.launch(units)
        self._deadline = time.monotonic() + self.start_seconds

    def _endings(self) -> dict[AnyUnit, Ending]:
        """The units that have ended by themselves. Raises NodeError as `refuse_unavailable` does."""
        self.refuse_unavailable()
        return {unit: end for unit in self.units if (end := unit.ending()) is not None}

    def wait_ready(self) -> None:
        """Wait until every tenant is warm. Raises TenantsFailed when one died or time ran out.

        After an out-of-memory the others are still waited for, since the number that fits is the result. Raises
        NodeError when a tenant refuses its arguments, as without its framework: sharing is not the cause.
        """
        waiting = self.units.copy()
        while waiting and time.monotonic() < self._deadline:
            ended = self._endings()
            if not _is_only_short_of_memory(ended.values()):
                break
            waiting = [unit for unit in waiting if unit not in ended]
            are_ready = self.call_for_each(lambda unit: unit.is_ready(), waiting)
            waiting = [unit for unit, is_ready in zip(waiting, are_ready, strict=True) if not is_ready]
            if waiting:
                self.pause(self.poll_seconds)
            elif self._waiting:
                first = len(self.units)
                self._start_next()
                waiting = self.units[first:]
        ended = self._endings()
        for unit, (_, _, code) in ended.items():
            if code == EXIT_USAGE and not unit.is_program:
                raise WorkloadError((unit.log_tail().strip() or "a tenant refused its arguments").splitlines()[-1])
        self._hung = waiting if _is_only_short_of_memory(ended.values()) else []
        for unit in self._hung:
            if complaint := unit.complaint():
                raise WorkloadError(complaint)
        if ended or waiting:
            raise TenantsFailed("not every tenant got ready")
        self.on_ready()

    def change_load(self, spec: Spec, settings: Settings) -> None:
        self.spec = spec
        watched_cell = settings.get("watched_cell") or ""
        for endpoint, workload, load in zip(self.endpoints(), spec.workloads, settings["loads"], strict=True):
            endpoint.set_load(workload.name, load, watched_cell)
        self._deadline = time.monotonic() + self.start_seconds

    def pids(self) -> list[int]:
        """Empty, as for processes that are not on this host."""
        return []

    def close(self) -> None:
        """Close the connections to the tenants, which are about to be removed."""
        for endpoint in self.endpoints():
            endpoint.close()

    def endpoints(self) -> Sequence[HttpEndpoint]:
        return [endpoint for unit in self.units for endpoint in unit.connected]

    def metrics_addresses(self) -> list[str]:
        return [f"{unit.host}:{endpoint.port}" for unit in self.units for endpoint in unit.connected]

    def outcomes(self) -> list[Outcome]:
        """`status` and `exit` of each tenant, in order; a running one is `ok`. Tenants of one process share both."""
        outcomes: list[Outcome] = []
        for unit in [*self.units, *self._waiting]:
            end = unit.ending()
            if end is None and (late := unit.overdue()) is not None:
                end = "hung", late, None
            elif end is None and unit in self._hung:
                lacking = unit.waiting_for()
                end = "hung", f"not ready after {self.start_seconds:g} s{f': {lacking}' if lacking else ''}", None
            outcome: Outcome = {"status": "ok", "exit": None}
            if end is not None:
                status, reason, code = end
                outcome = {"status": status, "exit": {"code": code, "reason": reason, "log_tail": unit.log_tail()}}
            outcomes += [outcome for _ in unit.grants]
        return outcomes

    def sleep_until(self, monotonic_ns: int) -> None:
        """Sleep, and check now and then that all tenants live. Raises TenantsFailed when one does not."""
        while (left_ns := monotonic_ns - self.now_ns()) > 0:
            self.pause(left_ns / NS)
            if any(not unit.ends_itself for unit in self._endings()):
                raise TenantsFailed("a tenant ended early")
