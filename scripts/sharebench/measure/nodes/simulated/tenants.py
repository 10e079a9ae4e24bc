"""Tenants in virtual time: a window of hours passes in milliseconds, with latencies drawn from a model."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sharebench.core.units import NS
from sharebench.measure.nodes.contract import Endpoint, Grant, NodeError, Settings, TenantsFailed
from sharebench.measure.nodes.simulated.load import (
    SimulatedTenant,
    iteration_seconds,
    lognormal,
    run_closed,
    run_jobs,
    run_open,
)
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, Row, Telemetry
from sharebench.model.records.types import Outcome, TenantStatus
from sharebench.model.spec import Spec
from sharebench.model.workload import Workload
from tenant.contract import Outputs, Steadiness, TenantReport

if TYPE_CHECKING:
    from sharebench.model.config_nodes import SimulatedOptions

START_SECONDS = 1.0


class SimulatedTenants:
    """The tenants of one cell in virtual time.

    `plant` is called with the folder of each cell, and returns the status with which tenant 0 ends in it, if any.
    """

    are_local = True

    def __init__(
        self, spec: Spec, settings: Settings, node: "SimulatedOptions", plant: Callable[[str], TenantStatus | None]
    ) -> None:
        self.node = node
        self.plant = plant
        self.grants: Sequence[Grant] = ()
        self.clock_ns = 0
        self.window: tuple[int, int] | None = None
        self.iterations: dict[int, int] = {}
        self.change_load(spec, settings)

    def change_load(self, spec: Spec, settings: Settings) -> None:
        self.spec, self.loads = spec, settings["loads"]
        self.failing = self.plant(settings["cell_folder"])
        self._measured: list[TenantReport] | None = None

    def sweep(self) -> None:
        """Nothing outlives a simulation."""

    def start(self, grants: Sequence[Grant]) -> None:
        self.grants = grants

    def wait_ready(self) -> None:
        """Start-up takes one virtual second. Raises TenantsFailed when a failure is planted."""
        self.clock_ns += int(START_SECONDS * NS)
        if self.failing is not None:
            raise TenantsFailed(f"tenant 0 ends: {self.failing}")

    def endpoints(self) -> Sequence[Endpoint]:
        return [SimulatedEndpoint(self, grant.index) for grant in self.grants]

    def outcomes(self) -> list[Outcome]:
        outcomes = [Outcome(status="ok", exit=None) for _ in self.grants]
        if self.failing is not None:
            outcomes[0] = {
                "status": self.failing,
                "exit": {"code": None, "reason": "planted in the simulation", "log_tail": ""},
            }
        return outcomes

    def now_ns(self) -> int:
        return self.clock_ns

    def sleep_until(self, monotonic_ns: int) -> None:
        self.clock_ns = max(self.clock_ns, monotonic_ns)

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """No virtual tenant ends in a window."""
        self.sleep_until(monotonic_ns)
        return {}

    def pids(self) -> list[int]:
        return []

    def sampler(self) -> "SimulatedSampler":
        return SimulatedSampler()

    def metrics_addresses(self) -> list[str]:
        raise NodeError("a simulated tenant has no metrics that Prometheus could scrape")

    def stop(self) -> None:
        """Nothing to remove."""

    def measured(self) -> list[TenantReport]:
        """The records of all tenants for the window, simulated once."""
        if self._measured is None:
            assert self.window is not None
            self._measured = self._simulate((self.window[1] - self.window[0]) / NS)
        return self._measured

    def _seconds(self, factor: float, group: int, workload: Workload, active: int) -> float:
        assert workload.simulated is not None
        return factor * iteration_seconds(self.spec.strategy, active, self.node, workload.simulated, group)

    def _simulate(self, seconds: float) -> list[TenantReport]:
        cell = [self.spec.node.options["seed"], self.spec.strategy.spec(), self.spec.workload.name]
        draw = random.Random(f"{cell}/{self.spec.replicas}/{self.spec.repeat}")
        noise = self.node["noise"]
        cell_factor = lognormal(draw, noise["cell_cv"])
        members: dict[int, list[int]] = {}
        for grant in self.grants:
            members.setdefault(grant.group, []).append(grant.index)
        workloads = self.spec.workloads
        tenants = [SimulatedTenant(load, seconds) for load in self.loads]
        for part, group in members.items():
            shares = [tenants[index] for index in group]
            models = [partial(self._seconds, cell_factor, part, workloads[index]) for index in group]
            if self.iterations:
                run_jobs(shares, [self.iterations[index] for index in group], models, noise["iteration_cv"], draw)
            elif all(share.load["arrival"] == "closed" for share in shares):
                run_closed(shares, [model(len(group)) for model in models], noise, draw)
            else:
                # There is no model for a mix of open loads: all tenants of the group run the same workload.
                per_active = [models[0](active) for active in range(1, len(group) + 1)]
                run_open(shares, per_active, noise, draw)
        return [
            tenant.report(index, workloads[index].name, START_SECONDS, self.iterations.get(index))
            for index, tenant in enumerate(tenants)
        ]


class SimulatedEndpoint:
    """The window contract of one virtual tenant."""

    def __init__(self, tenants: SimulatedTenants, index: int) -> None:
        self.tenants = tenants
        self.index = index

    def steadiness(self, since_ns: int | None) -> Steadiness:
        return {"is_steady": True, "batches": 2, "change_percent": 0.0}

    def clock(self) -> tuple[int, int, float]:
        return self.tenants.clock_ns, self.tenants.clock_ns, 0.0

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> bool:
        self.tenants.window = (start_ns, end_ns)
        if iterations is not None:
            self.tenants.iterations[self.index] = iterations
        return True

    def record(self, deadline_seconds: float, ahead_seconds: float = 0.0) -> TenantReport:
        return self.tenants.measured()[self.index]

    def outputs(self, deadline_seconds: float) -> Outputs:
        """The same digest for all, since nothing is computed."""
        return {"output_digest": [1.0]}


class SimulatedSampler:
    """Telemetry in virtual time, all of it blank: the model has no utilisation, memory or power."""

    def start(self) -> None:
        """Nothing to start."""

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], Telemetry]:
        return [], {**UNKNOWN_TELEMETRY, "reason": "a simulated GPU has no telemetry"}
