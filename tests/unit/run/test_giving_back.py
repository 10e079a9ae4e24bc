"""A cluster's node is given back when the last job that needs it has ended, not when the report is written."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from unit.studies import study_with

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.run import giving_back, lifecycle
from sharebench.measure.run.giving_back import GivingBack

JOBS = {"characterise_node": 1, "calibrate": 1, "run_cell": 2, "export_histograms": 1, "aggregate": 1, "report": 1}


class Claim:
    """The part of a run's claim that is read."""

    results = Path("results")
    record: ClassVar = {"jobs": JOBS}


class Node:
    kind = "simulated"
    lease_failure: Exception | None = None

    def __init__(self, calls: list[str], failure: Exception | None = None) -> None:
        self.calls, self.failure = calls, failure

    def restore(self) -> None:
        self.calls.append("restore")
        if self.failure:
            raise self.failure

    def release(self) -> None:
        self.calls.append("release")
        if self.lease_failure:
            raise self.lease_failure


def made(monkeypatch: pytest.MonkeyPatch, kind: str, *nodes: Node) -> GivingBack:
    monkeypatch.setattr(giving_back, "open_nodes", lambda *_: list(nodes))
    claim: Any = Claim()
    return GivingBack(study_with({"node": kind}), claim)


def measure(giving: GivingBack) -> None:
    for rule in ("characterise_node", "calibrate", "run_cell", "export_histograms", "run_cell", "aggregate", "report"):
        giving.started(rule)


def test_the_node_is_back_once_the_tables_are_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []
    giving = made(monkeypatch, "kubernetes", Node(calls), Node(calls))
    for rule in ("characterise_node", "calibrate", "run_cell", "export_histograms", "run_cell"):
        giving.started(rule)
    assert not giving.is_back(True) and not calls, "the last cell may still run"
    giving.started("aggregate")
    giving.started("figures")
    assert giving.is_back(True)
    assert calls == ["restore", "restore", "release", "release"]
    assert "the node is back as it was" in capsys.readouterr().err


def test_a_run_that_only_reads_does_not_touch_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Claim, "record", {"jobs": {"aggregate": 1, "report": 1}})
    giving = made(monkeypatch, "kubernetes", Node(calls))
    giving.started("aggregate")
    assert not giving.is_back(True) and not calls


def test_a_node_that_could_not_be_given_back_is_left_to_the_end_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []
    giving = made(monkeypatch, "kubernetes", Node(calls), Node(calls, NodeError("its label cannot be written")))
    measure(giving)
    assert not giving.is_back(True)
    assert calls == ["restore", "restore"], "all Leases are kept"
    assert "the node could not be given back yet: its label cannot be written" in capsys.readouterr().err


def test_nodes_that_are_back_are_not_restored_again_where_a_lease_could_not_be_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Node, "lease_failure", NodeError("the API server is away"))
    giving = made(monkeypatch, "kubernetes", Node(calls), Node(calls))
    measure(giving)
    assert giving.is_back(True), "another run may have them by now"
    assert calls == ["restore", "restore", "release", "release"]


def test_a_host_keeps_its_state_until_the_end_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    giving = made(monkeypatch, "cpu", Node(calls))
    measure(giving)
    assert not giving.is_back(True) and not calls


@pytest.mark.parametrize("is_back", [True, False])
def test_the_end_of_a_run_restores_what_is_not_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_back: bool
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(lifecycle, "_restore_nodes", lambda *_: tried.append("restore") or ([], []))
    study = study_with({"node": "simulated", "workloads": ["matmul"]})
    claim = lifecycle.begin(study, tmp_path / "results", {"run_cell": []}, ["snakemake"], "")
    assert lifecycle.finish(claim, study, None, lambda _: [], lambda _: is_back)
    assert tried == ([] if is_back else ["restore"])
