"""A cell with a fault: the window continues, the victims set its status, and the node must take a new tenant."""

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from unit import factories
from unit.fake_node import CALIBRATION, MPS, SETTINGS, FakeNode, raising
from unit.fakes import FakeTenants, ended

from sharebench.measure.cell import fault as fault_cell
from sharebench.measure.cell.cell import CellRun
from sharebench.measure.cell.fault import REHEARSAL_SECONDS, FaultProcedure
from sharebench.measure.nodes.contract import State, Tenants, TenantsFailed, TenantUnreachable, UnrecoverableNodeError
from sharebench.model.spec import Spec

NS = 1_000_000_000


class FaultNode(FakeNode):
    """A node whose first tenants are the cell's; of the later ones, `refused` do not become ready."""

    refused = 0
    loses_state = False

    def tenants(self, spec: Mapping[str, Any], settings: Mapping[str, Any]) -> Tenants:
        self.given.append(settings)
        if len(self.given) == 1:
            return self.fakes
        fresh = FakeTenants(1)
        self.fresh = [*getattr(self, "fresh", []), fresh]
        if len(self.fresh) <= self.refused:
            fresh.on["wait_ready"] = raising(TenantsFailed("not every tenant got ready"))
        return fresh

    def ensure(self, state: State) -> None:
        if self.given and self.loses_state:
            self._write_state("unknown")
        super().ensure(state)


@pytest.fixture
def node(tmp_path: Path) -> FaultNode:
    """A node with a victim and an aggressor, tenant 1, which is killed one second into the window."""
    node = FaultNode(tmp_path / "node", FakeTenants(2))
    node.fakes.ends = {1: (1.0, ended("killed", -9))}
    node.fakes.fakes[1].changes = {"workload": "fault-killed"}
    return node


def spec(kind: str = "killed") -> Spec:
    """The spec of a cell with that fault."""
    victim = {"name": "matmul"}
    workload = {"name": f"fault-{kind}+matmul", "tenants": [victim, victim | {"name": f"fault-{kind}"}]}
    fault = {"kind": kind, "at_fraction": 0.4, "aggressor": 1}
    return factories.spec(workload, fault=fault)


def run(node: FaultNode, kind: str = "killed") -> dict[str, Any]:
    """The cell's record, checked against the schema."""
    measured, _ = CellRun(node, MPS, spec(kind), 1, SETTINGS, {"matmul": CALIBRATION}, FaultProcedure).measure()
    return factories.write_and_read(node.folder / "raw.json", measured)


def test_a_victim_is_measured_to_the_end_of_the_window_and_sets_the_status(node: FaultNode) -> None:
    measured = run(node)
    assert (measured["status"], measured["reason"]) == ("ok", None)
    assert [tenant["status"] for tenant in measured["tenants"]] == ["ok", "killed"]
    assert [tenant["count"] for tenant in measured["tenants"]] == [100, 0]
    assert measured["tenants"][1]["exit"]["log_tail"] == "last words"
    assert measured["window"]["end_monotonic_seconds"] - measured["window"]["start_monotonic_seconds"] == 2
    assert [gate["name"] for gate in measured["gates"] if not gate["passed"]] == []
    assert measured["calibration"]["workloads"].keys() == {"matmul"}, "an aggressor has no calibration"
    fault = measured["fault"]
    assert (fault["kind"], fault["aggressor"], fault["happened"]) == ("killed", 1, True)
    assert fault["at_seconds"] == pytest.approx(0.8)
    assert fault["ended_seconds"][0] is None
    assert (fault["set_up_again"], fault["refused_tenants"]) == (False, 0)
    assert node.fakes.life[-1] == "stop" and node.times_dirty
    (fresh,) = node.fresh
    assert fresh.life == ["start 1", "wait_ready", "stop"], "when the others are gone"


def test_evidence_comes_from_the_rehearsal(node: FaultNode, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def evidence(_: object, grants: list[Any], records: list[Any]) -> list[dict[str, Any]]:
        seen.append(len(node.fakes.asked("window")))
        assert len(grants) == len(records) == 2
        return [{"name": "mask", "expected": 1, "observed": 1, "holds": True, "source": "node"}]

    monkeypatch.setattr(node, "evidence", evidence)
    run(node)
    windows = [given for _, what, _, given in node.fakes.calls if what == "window"]
    assert seen == [2]
    assert [end - start for start, end in windows] == [int(REHEARSAL_SECONDS * NS)] * 2 + [2 * NS] * 2


def test_the_aggressor_gets_the_window_after_its_victims_have_accepted(node: FaultNode) -> None:
    node.fakes.fakes[0].refuses = 1
    run(node)
    told = [index for _, what, index, _ in node.fakes.calls if what == "window"]
    assert told == [0, 0, 1, 0, 1]


def test_a_victim_that_dies_sets_the_status_of_the_cell(node: FaultNode) -> None:
    node.fakes.ends = {0: (1.1, ended("crashed", 1, "an error of the driver")), **node.fakes.ends}
    measured = run(node)
    assert (measured["status"], measured["reason"]) == ("crashed", "1 of 1 tenants crashed: an error of the driver")
    assert measured["gates"] == []
    assert None not in measured["fault"]["ended_seconds"]


def test_a_hung_aggressor_is_not_waited_for(node: FaultNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_cell, "HANG_SECONDS", 0.05)
    monkeypatch.setattr(fault_cell, "ANSWER_SECONDS", 0.05)
    node.fakes.ends = {}
    real = node.fakes.fakes[1].record
    asked: list[float] = []
    over = threading.Event()

    def silent(deadline_seconds: float) -> dict[str, Any]:
        asked.append(deadline_seconds)
        if len(asked) > 1:
            over.wait(600)
        return real(deadline_seconds)

    monkeypatch.setattr(node.fakes.fakes[1], "record", silent)
    began = time.monotonic()
    try:
        measured = run(node, "stopped")
    finally:
        over.set()
    assert time.monotonic() - began < 300
    assert [tenant["status"] for tenant in measured["tenants"]] == ["ok", "hung"]
    assert measured["status"] == "ok"
    assert measured["fault"]["ended_seconds"] == [None, None]


def test_a_lost_state_is_set_up_again_and_recorded(node: FaultNode) -> None:
    node.loses_state = True
    assert run(node)["fault"]["set_up_again"]


def test_a_second_new_tenant_is_started_after_setting_the_state_up_again(node: FaultNode) -> None:
    node.refused = 1
    fault = run(node)["fault"]
    assert fault["refused_tenants"] == 1
    assert fault["recovery_seconds"] >= fault["new_tenant_seconds"]


def test_a_device_that_takes_no_new_tenant_is_unrecoverable(node: FaultNode) -> None:
    node.refused = 2
    with pytest.raises(UnrecoverableNodeError, match="no new tenant could start within 60 s after the fault killed"):
        run(node)
    assert [fresh.life[-1] for fresh in node.fresh] == ["stop", "stop"]


def test_a_living_victim_without_a_record_is_hung(node: FaultNode) -> None:
    real = node.fakes.fakes[0].record

    def silent(deadline_seconds: float) -> dict[str, Any]:
        if len(node.fakes.asked("window")) > 2:
            raise TenantUnreachable("timed out")
        return real(deadline_seconds)

    node.fakes.fakes[0].record = silent  # type: ignore[method-assign]
    measured = run(node)
    assert measured["status"] == "hung"
    assert "within the deadline" in measured["reason"]
    assert json.loads(measured["spec"])["fault"]["kind"] == "killed"
