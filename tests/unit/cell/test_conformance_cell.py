"""A conformance cell: its phases, and what its record has where a strategy does not keep a promise."""

from pathlib import Path
from typing import Any

import pytest
from unit import factories
from unit.fake_node import CALIBRATION, MPS, SETTINGS, FakeNode
from unit.fakes import FakeTenants, ended

from sharebench.measure.cell.cell import CellRun
from sharebench.measure.cell.conformance import ConformanceProcedure
from sharebench.measure.nodes.contract import NodeError, TenantUnreachable, item
from sharebench.model.strategy import Strategy

STREAMS = Strategy(name="streams", mechanism=("streams",))


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    node = FakeNode(tmp_path / "node", FakeTenants(3))
    ends_when_asked(node)
    return node


def ends_when_asked(node: FakeNode) -> None:
    """Have each tenant end when it does the task `end`, which is then not answered."""
    for fake in node.fakes.fakes:
        fake.raises["task end"] = TenantUnreachable("connection reset")
    outcomes = node.fakes.outcomes

    def with_ended() -> Any:
        asked = {index for _, name, index, _ in node.fakes.calls if name == "task end"}
        return [ended("crashed", 0) if index in asked else each for index, each in enumerate(outcomes())]

    node.fakes.outcomes = with_ended  # type: ignore[method-assign]


def run(node: FakeNode, strategy: Strategy = MPS, replicas: int = 3) -> dict[str, Any]:
    """The cell's record, checked against the schema."""
    workload = {"name": "matmul", "module": "conformance"}
    spec = factories.spec(workload, strategy=strategy.spec(), replicas=replicas)
    references = {"matmul": CALIBRATION}
    measured, _ = CellRun(node, strategy, spec, 1, SETTINGS, references, ConformanceProcedure).measure()
    return factories.write_and_read(node.folder / "raw.json", measured)


def modes(node: FakeNode) -> list[tuple[int, str]]:
    """The modes that the tenants were set to, in order, without idle ones."""
    asked = [(index, given["mode"]) for _, name, index, given in node.fakes.calls if name == "task mode"]
    return [each for each in asked if each[1] != "idle"]


def test_the_phases_of_a_cell_and_a_tenant_that_ends_when_it_is_asked_to(node: FakeNode) -> None:
    record = run(node)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert [tenant["status"] for tenant in record["tenants"]] == ["ok"] * 3
    promises = record["promises"]
    windows = ["alone-0", "alone-1", "alone-2", "light-alone", "light-next-to-busy"]
    assert list(promises["windows"]) == sorted(windows)
    assert [tenant["count"] for tenant in promises["windows"]["alone-0"]["tenants"]] == [100] * 3
    busy = [(index, "busy") for index in range(3)]
    assert modes(node) == [*busy, (0, "light"), (0, "light"), *busy[1:], (1, "pattern"), (2, "pattern")]
    asked = {name: [each["tenant"] for each in results] for name, results in promises["tasks"].items()}
    assert asked["answers"] == asked["largest_allocation"] == [0, 1, 2]
    assert asked["write"] == [2]
    assert asked["look_after_free"] == asked["look_after_end"] == asked["look_shared"] == [0]
    assert (promises["failure"], promises["visible"]) == (None, None)


def test_tenants_of_one_process_are_not_asked_to_end(node: FakeNode) -> None:
    promises = run(node, STREAMS)["promises"]
    assert "look_after_free" in promises["tasks"] and "look_after_end" not in promises["tasks"]
    assert not node.fakes.asked("task end")


def test_a_tenant_alone_has_no_neighbour_to_look_for(tmp_path: Path) -> None:
    node = FakeNode(tmp_path / "node", FakeTenants(1))
    promises = run(node, replicas=1)["promises"]
    assert list(promises["windows"]) == ["alone-0", "light-alone"]
    assert set(promises["tasks"]) == {"largest_allocation", "answers"}


def test_a_refuted_limit_is_a_number_and_a_strategy_that_was_not_set_up_a_failure(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuted = item("SMs", "at most 42 of 132", 132, "tenant 0", False)
    monkeypatch.setattr(FakeNode, "evidence", lambda *_: [refuted, item("device", "a", "a", "tenant 0")])
    record = run(node)
    assert record["promises"]["granted"] == [refuted]
    assert [each["name"] for each in record["evidence"]] == ["device"]
    monkeypatch.setattr(FakeNode, "evidence", lambda *_: [item("our MPS daemons", 1, 0, "node")])
    with pytest.raises(NodeError, match="mps was not active: our MPS daemons"):
        run(node)


def test_what_was_measured_before_a_tenant_failed_is_kept(node: FakeNode) -> None:
    node.fakes.fakes[1].raises["task answers"] = TenantUnreachable("connection reset")
    node.fakes.statuses = [*node.fakes.statuses[:1], ended("crashed", 1), *node.fakes.statuses[2:]]
    record = run(node)
    assert record["status"] == "crashed"
    assert record["promises"]["failure"] == "connection reset"
    assert "largest_allocation" in record["promises"]["tasks"] and "answers" not in record["promises"]["tasks"]
