"""One cell: its status, its record, and that its tenants always end."""

import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from unit import factories
from unit.fake_node import CALIBRATION, LIMITED, MPS, SETTINGS, FakeNode, load_of, raising
from unit.fakes import OK, STEADY, FakeTenants, ended

from sharebench.measure.cell.cell import CellRun
from sharebench.measure.nodes.contract import NodeError, TenantsFailed, TenantUnreachable
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node with two tenants that work well."""
    return FakeNode(tmp_path / "node", FakeTenants(2))


def spec(replicas: int = 2, **load: Any) -> Spec:
    """The spec of a cell."""
    workload = {"name": "matmul", "load": {"arrival": "closed"} | load, "output_tolerance": 1e-6}
    return factories.spec(workload, replicas=replicas, repeat=3)


def run(
    node: FakeNode,
    strategy: Strategy = MPS,
    of: Spec | None = None,
    calibrations: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The cell's record, checked against the schema."""
    own = (of or spec()).changed(strategy=strategy)
    measured, _ = CellRun(node, strategy, own, 3, SETTINGS, calibrations or {"matmul": CALIBRATION}).measure()
    return factories.write_and_read(node.folder / "raw.json", measured) | {"environment": measured["environment"]}


@pytest.mark.parametrize("observed, raises", [("exclusive", True), (None, False)])
def test_contradicting_evidence_fails_the_job_and_missing_evidence_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observed: str | None, raises: bool
) -> None:
    node = FakeNode(tmp_path / "node", FakeTenants(2))
    item = {"name": "state", "expected": "mps", "observed": observed, "holds": False, "source": "node"}
    monkeypatch.setattr(node, "evidence", lambda *_: [item])
    if raises:
        with pytest.raises(NodeError, match="mps was not active: state: expected mps, observed exclusive"):
            run(node)
    else:
        assert "evidence" in [gate["name"] for gate in run(node)["gates"] if not gate["passed"]]
    assert node.fakes.life[-1] == "stop"


def test_a_successful_cell_has_a_complete_record(node: FakeNode) -> None:
    measured = run(node)
    assert (measured["status"], measured["reason"]) == ("ok", None)
    assert measured["cell"] == {"strategy": "mps", "workload": "matmul", "replicas": 2, "repeat": 3, "block": 3}
    assert measured["spec"] == spec().text
    assert [tenant["steady"] for tenant in measured["tenants"]] == [STEADY, STEADY]
    assert [tenant["status"] for tenant in measured["tenants"]] == ["ok", "ok"]
    handed_on = {"output_digest": [1.5, -2.0], "roofs": None, "idle_power_watts": None}
    assert measured["calibration"] == handed_on | {"capacity_hz": None}
    assert measured["window"]["end_monotonic_seconds"] - measured["window"]["start_monotonic_seconds"] == 2
    assert measured["environment"]["packages"] == {"numpy": "2.4.6"}
    assert measured["evidence"][0]["holds"]
    assert [gate["name"] for gate in measured["gates"] if not gate["passed"]] == []
    assert node.fakes.life == ["sweep", "start 2", "wait_ready", "outcomes", "stop"]
    assert node.current() == "mps block 3"


def test_the_record_has_the_switch_only_if_the_cell_made_one(node: FakeNode) -> None:
    first = run(node)["switch"]
    assert first["from"] is None
    assert first["out_seconds"] is None, "this node does not note when it has left a state"
    assert first["in_seconds"] >= 0
    node.switched = None
    assert run(node)["switch"] is None
    assert run(node, LIMITED)["switch"]["from"] == "mps block 3"
    assert node.current() == "mps-limited n2 block 3", "replicas are named where they matter"


def test_the_time_of_a_cell_is_split_into_its_parts(node: FakeNode) -> None:
    node.fakes.on["wait_ready"] = lambda: time.sleep(0.05)
    node.fakes.on["stop"] = lambda: time.sleep(0.03)
    timing = run(node)["timing"]
    # At least the sleeps; how much more depends on the machine.
    assert timing["ready_seconds"] >= 0.05
    assert timing["stop_seconds"] >= 0.03
    parts = sum(seconds for part, seconds in timing.items() if part != "total_seconds")
    assert timing["total_seconds"] == pytest.approx(parts)


def test_an_infeasible_cell_is_recorded_and_touches_nothing(node: FakeNode) -> None:
    node.cannot = "there are only 2 cores"
    measured = run(node)
    assert (measured["status"], measured["reason"]) == ("infeasible", "there are only 2 cores")
    assert measured["tenants"] == measured["gates"] == []
    assert measured["window"] is None
    assert node.fakes.life == []
    assert node.current() is None


def test_a_cell_that_is_not_attempted_is_not_called_infeasible(node: FakeNode) -> None:
    node.unattempted = "threads would wait for the interpreter"
    measured = run(node)
    assert (measured["status"], measured["reason"]) == ("not-measured", node.unattempted)
    assert measured["tenants"] == measured["gates"] == node.fakes.life == []
    node.cannot = "there are only 2 cores"
    assert run(node)["status"] == "infeasible", "what the node cannot give comes first"


def fail_at_start(node: FakeNode, statuses: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of a cell whose tenants do not all become ready, with these outcomes."""
    node.fakes.statuses = statuses
    node.fakes.on["wait_ready"] = raising(TenantsFailed("not every tenant got ready"))
    return run(node, of=spec(len(statuses)))


@pytest.mark.parametrize(
    "outcomes, status, reason",
    [
        ([ended("oom", 12), OK, OK, ended("oom", 12)], "oom", "2 of 4 tenants fit into memory"),
        ([ended("oom", 12), ended("crashed", 1)], "oom", "1 of 2 tenants fit into memory"),
        ([OK, ended("crashed", 1, "exit code 1")], "crashed", "1 of 2 tenants crashed: exit code 1"),
        ([ended("killed", -9), ended("killed", -9)], "killed", "2 of 2 tenants killed: the reason"),
        ([ended("hung", None), ended("crashed", 3, "ended")], "crashed", "1 of 2 tenants crashed: ended"),
        ([OK, ended("hung", None, "not ready after 60 s")], "hung", "1 of 2 tenants hung: not ready after 60 s"),
        ([OK, OK], "hung", "not every tenant got ready"),
    ],
)
def test_the_status_of_a_cell_is_the_worst_of_its_tenants(
    node: FakeNode, outcomes: list[dict[str, Any]], status: str, reason: str
) -> None:
    measured = fail_at_start(node, outcomes)
    assert (measured["status"], measured["reason"]) == (status, reason)
    assert [tenant["status"] for tenant in measured["tenants"]] == [
        "not-measured" if outcome is OK else outcome["status"] for outcome in outcomes
    ]
    assert [tenant["exit"] for tenant in measured["tenants"]] == [outcome["exit"] for outcome in outcomes]
    assert all(tenant["count"] == 0 and tenant["histogram"] == {} for tenant in measured["tenants"])
    assert measured["window"] is measured["telemetry"] is None
    assert measured["gates"] == []
    assert measured["environment"] is None
    assert node.fakes.life[-1] == "stop"


def test_a_tenant_that_dies_in_the_window_has_no_latencies(node: FakeNode) -> None:
    node.fakes.dies_at_ns = node.fakes.clock_ns + 1_500_000_000
    measured = run(node)
    assert measured["status"] == "killed"
    assert [tenant["status"] for tenant in measured["tenants"]] == ["killed", "not-measured"]
    assert [tenant["count"] for tenant in measured["tenants"]] == [0, 0]
    assert node.fakes.life[-1] == "stop" and node.times_dirty


@pytest.mark.parametrize("question", ["steadiness", "clock", "window", "record"])
def test_a_living_tenant_that_does_not_answer_is_a_harness_failure(node: FakeNode, question: str) -> None:
    node.fakes.fakes[1].raises[question] = TenantUnreachable("timed out")
    with pytest.raises(TenantUnreachable):
        run(node)
    assert node.fakes.life[-1] == "stop"
    assert node.times_dirty, "it was ended in the middle of something"


def test_a_closed_loop_whose_iteration_never_ended_is_hung(node: FakeNode) -> None:
    node.fakes.fakes[1].changes = load_of(1, "closed")
    measured = run(node)
    assert measured["status"] == "hung"
    assert measured["reason"].startswith("1 of 2 tenants hung")
    assert [tenant["status"] for tenant in measured["tenants"]] == ["ok", "hung"]
    assert measured["tenants"][1]["exit"]["reason"]
    assert measured["gates"] == []
    assert node.times_dirty


def test_an_open_load_that_is_behind_is_not_hung(node: FakeNode) -> None:
    for fake in node.fakes.fakes:
        fake.changes = load_of(3, "poisson")
    measured = run(node)
    assert measured["status"] == "ok" and not node.times_dirty
    assert "censored" in [gate["name"] for gate in measured["gates"] if not gate["passed"]]


@pytest.mark.parametrize(
    "step, failure",
    [
        ("sweep", OSError("disk")),
        ("start 2", OSError("no more processes")),
        ("wait_ready", KeyboardInterrupt()),
        ("wait_ready", RuntimeError("a mistake")),
        ("outcomes", RuntimeError("a mistake")),
    ],
)
def test_tenants_are_stopped_whatever_goes_wrong(node: FakeNode, step: str, failure: BaseException) -> None:
    node.fakes.on[step] = raising(failure)
    with pytest.raises(type(failure)):
        run(node)
    assert node.fakes.life[-1] == "stop"


def test_the_used_capacity_is_recorded_and_reaches_the_tenants(node: FakeNode) -> None:
    for fake in node.fakes.fakes:
        fake.changes = load_of(0, "poisson")
    measured = run(node, of=spec(arrival="poisson", rate_of_capacity=0.5))
    assert measured["calibration"]["capacity_hz"] == 100.0
    assert [load["rate_hz"] for load in node.given[0]["loads"]] == [50.0, 50.0]
    assert node.given[0]["timeouts"] == SETTINGS["timeouts"]


def test_arrivals_differ_between_repeats_and_not_between_strategies(node: FakeNode) -> None:
    run(node)
    run(node, LIMITED)
    run(node, MPS, spec().changed(repeat=4))
    seeds = [settings["loads"][0]["seed"] for settings in node.given]
    assert seeds[0] == seeds[1] != seeds[2]


def test_a_tenant_has_the_same_arrivals_alone_and_in_a_mix(node: FakeNode) -> None:
    run(named(node), MPS, mix_spec(arrival="poisson", rate_of_capacity=0.5), BOTH)
    light, heavy = node.given[0]["loads"]
    assert (light["seed"], light["before"]) == (zlib.crc32(b"light/3"), 0)
    assert (heavy["seed"], heavy["before"]) == (zlib.crc32(b"heavy/3"), 1)


def mix_spec(**heavy: Any) -> Spec:
    """The spec of a cell with two tenants that run different workloads."""
    light = {"name": "light", "load": {"arrival": "closed"}, "output_tolerance": 1e-6}
    other = light | {"name": "heavy", "load": {"arrival": "closed"} | heavy, "output_tolerance": 0.5}
    of_all = {"name": "light+heavy", "tenants": [light, other]}
    return factories.spec(of_all, repeat=3)


HEAVY = CALIBRATION | {"capacity_hz": 10.0, "output_digest": [1.2, -2.0]}


BOTH = {"light": CALIBRATION, "heavy": HEAVY}


def named(node: FakeNode) -> FakeNode:
    """The node, whose two tenants report their workloads' names."""
    for fake, name in zip(node.fakes.fakes, BOTH, strict=True):
        fake.changes = {"workload": name}
    return node


def test_each_tenant_of_a_mix_has_its_own_load_and_reference(node: FakeNode) -> None:
    measured = run(named(node), MPS, mix_spec(arrival="poisson", rate_of_capacity=0.5), BOTH)
    assert [load.get("rate_hz") for load in node.given[0]["loads"]] == [None, 5.0]
    assert measured["cell"]["workload"] == "light+heavy"
    assert [tenant["workload"] for tenant in measured["tenants"]] == ["light", "heavy"]
    assert measured["calibration"] == {
        "output_digest": None,
        "capacity_hz": None,
        "roofs": None,
        "idle_power_watts": None,
        "workloads": {
            "light": {"output_digest": [1.5, -2.0], "capacity_hz": None},
            "heavy": {"output_digest": [1.2, -2.0], "capacity_hz": 10.0, "conditions": factories.QUIET},
        },
    }
    (digest,) = (gate for gate in measured["gates"] if gate["name"] == "output_digest")
    # The second digest is 1.5, alone it was 1.2, which its tolerance allows.
    assert digest["passed"] and digest["value"] == pytest.approx(0.2) and digest["limit"] == 0.5
