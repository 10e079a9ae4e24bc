"""A node whose tenants are fakes, for tests of the driver."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unit import factories
from unit.fakes import FakeTenants

from sharebench.measure.nodes.contract import Evidence, Grant, Settings, State, Tenants
from sharebench.measure.nodes.node import Node
from sharebench.model.records.types import Host, NodeFacts
from sharebench.model.strategy import Strategy

MPS = Strategy(name="mps", mechanism=("mps",))
LIMITED = Strategy(name="mps-limited", mechanism=("mps",), thread_percent="100/N")
CALIBRATION = {
    "capacity_hz": 100.0,
    "conditions": factories.QUIET,
    "output_digest": [1.5, -2.0],
    "roofs": None,
    "idle_power_watts": None,
}
SETTINGS: Settings = {"timeouts": {"start_seconds": 60, "record_seconds": 30}, "cell_folder": "cells/mps/matmul/n2/r3"}


class FakeNode(Node):
    """A node whose tenants are passed in."""

    kind = "simulated"

    def __init__(self, folder: Path, fakes: FakeTenants) -> None:
        super().__init__({"cores": "auto", "devices": 1}, folder)
        self.fakes = fakes
        self.given: list[Mapping[str, Any]] = []
        self.cannot: str | None = None
        self.unattempted: str | None = None
        self.fails: Exception | None = None
        self.times_dirty = 0

    def facts(self) -> NodeFacts:
        return {
            "kind": self.kind,
            "device": "device-1",
            "product": "a CPU",
            "units": 2,
            "units_name": "cores",
            "memory_bytes": None,
            "is_gpu": False,
            "label": "not a GPU",
            "details": {},
        }

    def host_facts(self) -> Host:
        return {"machine": "machine-1", "boot": "boot-1", "cpu": "a CPU", "topology": "1 sockets"}

    def infeasible(self, strategy: Strategy, replicas: int, workloads: object = ()) -> str | None:
        return self.cannot

    def not_attempted(self, strategy: Strategy, workloads: object) -> str | None:
        return self.unattempted

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        return [Grant(index, 0) for index in range(replicas)]

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[Mapping[str, Any]]) -> Evidence:
        return [{"name": "mask", "expected": 1, "observed": 1, "holds": True, "source": "node"}]

    def tenants(self, spec: object, settings: Mapping[str, Any]) -> Tenants:
        self.given.append(settings)
        return self.fakes

    def switch(self, state: State | None) -> None:
        if self.fails is not None:
            raise self.fails

    def mark_dirty(self) -> None:
        self.times_dirty += 1

    def plan(self, strategy: Strategy) -> str:
        return "nothing"


def raising(failure: BaseException) -> Any:
    """A function that raises this exception."""

    def fail(*_: object) -> None:
        raise failure

    return fail


def load_of(censored: int, arrival: str) -> dict[str, Any]:
    """The load of a tenant's record."""
    numbers = {"planned_rate_hz": None if arrival == "closed" else 50.0, "achieved_rate_hz": 50.0}
    rest = {"delay_p99_seconds": None, "in_flight_mean": 0.25, "drops": 0, "censored": censored}
    return {"load": {"arrival": arrival} | numbers | rest}
