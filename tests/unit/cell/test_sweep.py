"""Cells with one start of their tenants: what runs once, and what a failure ends."""

from pathlib import Path
from typing import Any

import pytest
from unit import factories
from unit.fake_node import CALIBRATION, MPS, SETTINGS, FakeNode, raising
from unit.fakes import NS, FakeTenants, ended

from sharebench.measure.cell import conformance
from sharebench.measure.cell.cell import CellRun, MeasuredCell
from sharebench.measure.cell.conformance import ConformanceProcedure
from sharebench.measure.cell.sweep import measure_sweep
from sharebench.measure.nodes.contract import NodeError, TenantsFailed

NAMES = ("chat-1", "chat-2", "chat-3")
START = ["sweep", "start 2", "wait_ready", "outcomes"]


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path / "node", FakeTenants(2))


def cell(node: FakeNode, name: str, **keys: Any) -> CellRun:
    return CellRun(node, MPS, factories.spec({"name": name}), 3, SETTINGS, {name: CALIBRATION}, **keys)


def measure(node: FakeNode, **keys: Any) -> list[MeasuredCell]:
    return [record for record, _ in measure_sweep([cell(node, name, **keys) for name in NAMES], lambda _: None)]


def positions(records: list[MeasuredCell]) -> list[int | None]:
    return [record["start"] and record["start"]["position"] for record in records]


def test_tenants_are_started_once_and_change_their_load(node: FakeNode) -> None:
    records = measure(node)
    others = [step for name in NAMES[1:] for step in (f"change_load {name}", "wait_ready", "outcomes")]
    assert node.fakes.life == [*START, *others, "stop"]
    assert [record["cell"]["workload"] for record in records] == list(NAMES)
    assert positions(records) == [0, 1, 2]
    assert len({record["start"] and record["start"]["id"] for record in records}) == 1
    assert len({record["window"] and record["window"]["start_monotonic_seconds"] for record in records}) == 3
    assert [record["switch"] is None for record in records] == [False, True, True]
    assert [record["timing"]["stop_seconds"] > 0 for record in records] == [False, False, True]
    assert node.given[0]["windows"] == 3


@pytest.mark.parametrize("is_in_window", [True, False])
def test_after_a_failure_there_is_a_new_start(node: FakeNode, is_in_window: bool) -> None:
    """A failure in the window is a result; one before it may be the aftermath of the load before."""
    fakes, healthy = node.fakes, node.fakes.statuses

    def crash() -> None:
        if is_in_window:
            fakes.dies_at_ns = fakes.clock_ns + NS // 2
            return
        fakes.statuses = [ended("killed", -9), *healthy[1:]]
        raise TenantsFailed("a tenant ended early")

    def revive() -> None:
        fakes.statuses, fakes.dies_at_ns = healthy, None
        for fake in fakes.fakes:
            fake.holds = None

    fakes.on |= {"change_load chat-2": crash, "start 2": revive}
    records = measure(node)
    assert [record["status"] for record in records] == ["ok", "killed" if is_in_window else "ok", "ok"]
    assert positions(records) == ([0, 1, 0] if is_in_window else [0, 0, 1])
    assert fakes.life.count("stop") == 2 and fakes.life[-1] == "stop"


@pytest.mark.parametrize("step", ["change_load chat-2", "wait_ready", "outcomes"])
def test_a_failure_of_the_harness_ends_the_tenants(node: FakeNode, step: str) -> None:
    node.fakes.on[step] = raising(NodeError("no answer"))
    with pytest.raises(NodeError, match="no answer"):
        measure(node)
    assert node.fakes.life.count("stop") == 1 and node.fakes.life[-1] == "stop"


def test_an_interrupt_between_two_loads_ends_the_tenants(node: FakeNode) -> None:
    begun: list[CellRun] = []

    def begin(run: CellRun) -> None:
        begun.append(run)
        if len(begun) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_sweep([cell(node, name) for name in NAMES], begin)
    assert node.fakes.life == [*START, "stop"]


def test_tenants_that_are_not_fit_for_another_window_are_started_for_each(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fake tenants never end by themselves.
    monkeypatch.setattr(conformance, "END_SECONDS", 0)
    records = measure(node, procedure=ConformanceProcedure)
    assert positions(records) == [0, 0, 0]
    assert node.fakes.life.count("stop") == 3
