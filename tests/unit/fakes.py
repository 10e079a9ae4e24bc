"""Tenants with a fake clock that record every call, for tests of the driver."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from unit import factories

from sharebench.measure.nodes.contract import Endpoint, Grant, Settings, TenantsFailed, TenantUnreachable
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, Row, Telemetry
from sharebench.model.records.types import Outcome, TenantStatus
from sharebench.model.spec import Spec
from tenant.contract import CompletedJob, Outputs, Steadiness, TenantReport

NS = 1_000_000_000
OK: Outcome = {"status": "ok", "exit": None}
STEADY: Steadiness = {"is_steady": True, "batches": 2, "change_percent": 0.5}
# Keys of a tenant's entry in raw.json that the driver adds to the tenant's own report.
NOT_ITS_OWN = ("status", "exit", "steady", "output_digest")
ENVIRONMENT = {"python": "3.11.7", "platform": "Linux", "packages": {"numpy": "2.4.6"}}


class FakeTenants:
    """`count` tenants whose clock moves only when the driver sleeps or asks (an answer takes `answer_seconds`)."""

    are_local = False

    def __init__(self, count: int = 2, answer_seconds: float = 0.001) -> None:
        self.clock_ns = 50 * NS
        self.answer_ns = int(answer_seconds * NS)
        self.lock = threading.Lock()
        self.calls: list[tuple[int, str, int, Any]] = []
        """Time in ns, name of the call, index of the tenant, argument."""
        self.fakes = [FakeEndpoint(self, index) for index in range(count)]
        self.statuses: list[Outcome] = [OK] * count
        self.dies_at_ns: int | None = None
        """When tenant 0 is killed."""
        self.ends: dict[int, tuple[float, Outcome]] = {}
        """Tenants that end while they are watched: seconds until then, and the outcome."""
        self.life: list[str] = []
        """The driver's steps with the tenants, in order."""
        self.on: dict[str, Callable[[], None]] = {}
        """Called in a step, by its name."""

    def _live(self, step: str) -> None:
        self.life.append(step)
        self.on.get(step, lambda: None)()

    def sweep(self) -> None:
        self._live("sweep")

    def start(self, grants: Sequence[Grant]) -> None:
        self._live(f"start {len(grants)}")

    def change_load(self, spec: Spec, settings: Settings) -> None:
        self._live(f"change_load {spec.workload.name}")

    def wait_ready(self) -> None:
        self._live("wait_ready")

    def endpoints(self) -> Sequence[Endpoint]:
        return self.fakes

    def outcomes(self) -> list[Outcome]:
        self._live("outcomes")
        return self.statuses

    def now_ns(self) -> int:
        return self.clock_ns

    def sleep_until(self, monotonic_ns: int) -> None:
        if self.dies_at_ns is not None and self.dies_at_ns <= max(monotonic_ns, self.clock_ns):
            self.clock_ns = max(self.clock_ns, self.dies_at_ns)
            self.statuses = [ended("killed", -9), *self.statuses[1:]]
            raise TenantsFailed("a tenant ended early")
        self.clock_ns = max(self.clock_ns, monotonic_ns)

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        began_ns, self.clock_ns = self.clock_ns, max(self.clock_ns, monotonic_ns)
        self._live("watch_until")
        for index, (_, outcome) in self.ends.items():
            self.statuses = [outcome if i == index else each for i, each in enumerate(self.statuses)]
            self.fakes[index].raises["record"] = TenantUnreachable("connection refused")
        return {index: began_ns + int(seconds * NS) for index, (seconds, _) in self.ends.items()}

    def pids(self) -> list[int]:
        return []

    def sampler(self) -> "FakeSampler":
        return FakeSampler(self)

    def metrics_addresses(self) -> list[str]:
        return [f"127.0.0.1:{index}" for index in range(len(self.fakes))]

    def stop(self) -> None:
        self._live("stop")

    def asked(self, what: str) -> list[int]:
        """The times in ns of this call."""
        return [at for at, name, _, _ in self.calls if name == what]


class FakeEndpoint:
    """One of the fake tenants; its answers can be set."""

    def __init__(self, tenants: FakeTenants, index: int) -> None:
        self.tenants = tenants
        self.index = index
        self.settles_after_ns = 0
        self.verdict: Steadiness = STEADY
        self.round_trips = [0.001]
        self.refuses = 0
        """Number of windows that it refuses at first."""
        self.holds: int | None = None
        """End in ns of the window that it has not closed yet."""
        self.latencies: list[float] = [0.005] * 100
        self.changes: dict[str, Any] = {}
        """Changed keys of its report."""
        self.raises: dict[str, Exception] = {}
        self.digest: list[float | None] | None = [1.5, -2.0]
        self.job_ns = NS
        """Duration of its job."""
        self.job: CompletedJob | None = None
        self.results: dict[str, dict[str, Any]] = {}
        """Results of tasks by name."""

    def _asked(self, what: str, given: Any = None) -> None:
        with self.tenants.lock:
            self.tenants.calls.append((self.tenants.clock_ns, what, self.index, given))
            self.tenants.clock_ns += self.tenants.answer_ns
        if what in self.raises:
            raise self.raises[what]

    def steadiness(self, since_ns: int | None) -> Steadiness | None:
        self._asked("steadiness", since_ns)
        if since_ns is None:
            return self.verdict
        return self.verdict if self.tenants.clock_ns >= since_ns + self.settles_after_ns else None

    def clock(self) -> tuple[int, int, float]:
        self._asked("clock")
        reading = len([1 for _, what, index, _ in self.tenants.calls if (what, index) == ("clock", self.index)])
        round_trip = self.round_trips[(reading - 1) % len(self.round_trips)]
        return self.tenants.clock_ns, self.tenants.clock_ns + 10**18, round_trip

    def task(self, name: str, params: Mapping[str, object], deadline_seconds: float) -> Mapping[str, Any]:
        self._asked(f"task {name}", dict(params))
        return self.results.get(name, {})

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        self._asked("window", (start_ns, end_ns) if iterations is None else (start_ns, end_ns, iterations))
        self.job = None
        if self.refuses:
            self.refuses -= 1
            return False
        if self.holds is not None or start_ns < self.tenants.clock_ns:
            return False
        self.holds = end_ns
        if iterations is not None:
            took_ns = min(self.job_ns, end_ns - start_ns)
            is_done = took_ns == self.job_ns
            self.holds = start_ns + took_ns
            self.job = {
                "iterations": iterations,
                "completed": iterations if is_done else iterations // 2,
                "start_delay_seconds": 0.0,
                "completion_seconds": took_ns / NS if is_done else None,
            }
        return True

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        self._asked("record", deadline_seconds)
        assert self.holds is not None
        with self.tenants.lock:
            self.tenants.clock_ns = max(self.tenants.clock_ns, self.holds)
        self.holds = None
        entry = factories.tenant(self.index, factories.back_to_back(self.latencies))
        given = {key: value for key, value in entry.items() if key not in NOT_ITS_OWN}
        return cast(TenantReport, given | {"environment": ENVIRONMENT, "job": self.job} | self.changes)

    def outputs(self, deadline_seconds: float) -> Outputs:
        self._asked("digest", deadline_seconds)
        return {"output_digest": self.digest}


class FakeSampler:
    """A sampler that records when it started and stopped."""

    def __init__(self, tenants: FakeTenants) -> None:
        self.tenants = tenants
        self.ran: list[int] = []

    def start(self) -> None:
        self.ran.append(self.tenants.clock_ns)

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        self.ran.append(self.tenants.clock_ns)
        rows: list[Row] = [{"t_seconds": window_end_seconds - window_start_seconds}]
        return rows, {**UNKNOWN_TELEMETRY, "samples": 1}


def ended(status: TenantStatus, code: int | None, reason: str = "the reason") -> Outcome:
    """The outcome of a tenant that ended badly."""
    return {"status": status, "exit": {"code": code, "reason": reason, "log_tail": "last words"}}
