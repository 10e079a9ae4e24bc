"""The simulated node: its models against published numbers and formulas, and its states."""

import json
import math
import random
from collections import defaultdict
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import numpy as np
import pytest
import yaml
from unit import factories
from unit.studies import CONFIG, study_with

from sharebench.measure.cell.cell import CellRun
from sharebench.measure.nodes.contract import NodeError, State
from sharebench.measure.nodes.simulated import load
from sharebench.measure.nodes.simulated.load import iteration_seconds, lognormal
from sharebench.measure.nodes.simulated.node import SimulatedNode
from sharebench.measure.run.plan import plan
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Model
from sharebench.study.cells import Cell
from sharebench.study.study import Study

# Mean latency in seconds of the nos benchmark (YOLOS-small on an A100 80 GB) by strategy and number of tenants:
# https://github.com/nebuly-ai/nos/tree/main/demos/gpu-sharing-comparison, the table of its README.
PUBLISHED = {
    ("time-slicing", 1): 0.08815,
    ("time-slicing", 3): 0.29314,
    ("time-slicing", 5): 0.48895,
    ("time-slicing", 7): 0.68488,
    ("mps", 1): 0.08796,
    ("mps", 3): 0.16400,
    ("mps", 5): 0.24086,
    ("mps", 7): 0.31982,
    ("mig", 1): 0.34237,
    ("mig", 3): 0.34131,
    ("mig", 5): 0.34533,
    ("mig", 7): 0.34425,
}
SILENT = {
    "cell_cv": 0,
    "iteration_cv": 0,
    "autocorrelation": 0,
    "drift": 0,
    "straggler_ratio": 0,
    "straggler_factor": 10,
}


def simulated_study(**changes: Any) -> Study:
    """The study of config/simulated.yaml with some keys changed."""
    file = yaml.safe_load((CONFIG / "simulated.yaml").read_text())
    noise = file.pop("simulated")["noise"]
    return study_with(file | {"simulated.noise": noise} | changes)


def measure(planned: Study, cell: Cell, folder: Path) -> dict[str, Any]:
    """The cell's record, as the job would write it, read back from disk."""
    node = SimulatedNode(planned.config["simulated"], folder / "node")
    settings = {"timeouts": planned.config["timeouts"], "cell_folder": cell.folder}
    reference = {"output_digest": [1.0], "roofs": None, "idle_power_watts": None}
    calibration = reference | {"capacity_hz": 10.0, "conditions": factories.QUIET}
    calibrations = dict.fromkeys(planned.components(cell), calibration)
    strategy = planned.strategies[cell.strategy]
    measured, rows = CellRun(node, strategy, planned.spec(cell), planned.block(cell), settings, calibrations).measure()
    assert rows == []
    return factories.write_and_read(folder / cell.raw, measured)


def mean_latency(of_cell: dict[str, Any]) -> float:
    """Mean latency over all iterations of all tenants, in seconds."""
    tenants = of_cell["tenants"]
    return sum(t["sum_seconds"] for t in tenants) / sum(t["count"] for t in tenants)


def published_means(tmp_path: Path, **changes: Any) -> dict[tuple[str, int], float]:
    """Geometric mean over the repeats of the mean latency, where the benchmark published one."""
    planned = simulated_study(strategies=["time-slicing", "mps", "mig"], baseline="none", **changes)
    means = defaultdict(list)
    for cell in planned.cells:
        means[cell.strategy, cell.replicas].append(mean_latency(measure(planned, cell, tmp_path)))
    return {point: geometric_mean(of_point) for point, of_point in means.items()}


def test_the_simulation_reproduces_the_published_table_without_noise(tmp_path: Path) -> None:
    means = published_means(tmp_path, repeats=1, **{"simulated.noise": SILENT})
    assert means == {point: pytest.approx(seconds, rel=0.012) for point, seconds in PUBLISHED.items()}


def test_clean_cells_of_every_strategy_are_valid_records_that_pass_their_gates(tmp_path: Path) -> None:
    planned = simulated_study(repeats=2)
    failed: list[str] = []
    judged = 0
    for cell in planned.cells:
        measured = measure(planned, cell, tmp_path)
        assert measured["status"] == "ok", (str(cell), measured["reason"])
        assert len(measured["tenants"]) == cell.replicas
        failed += [f"{cell}: {gate['name']}" for gate in measured["gates"] if not gate["passed"]]
        judged += len(measured["gates"])
    assert judged > 400
    assert failed == []


def test_a_mechanism_without_a_model_is_infeasible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tenants would not disturb each other."""
    monkeypatch.setattr(load, "AT_ONCE", ())
    planned = simulated_study(strategies=["mps"], replicas=[2], repeats=1, baseline="none")
    (cell,) = planned.cells
    measured = measure(planned, cell, tmp_path)
    assert (measured["status"], measured["reason"]) == ("infeasible", "the simulated node has no model of mps")
    assert "\n  mps: the simulated node has no model of mps\n" in plan(planned, tmp_path, {})


def test_cells_and_iterations_have_the_planted_spread(tmp_path: Path) -> None:
    noise = {"cell_cv": 0.1, "iteration_cv": 0.3}
    planned = simulated_study(strategies=["exclusive"], repeats=100, window_seconds=20, **{"simulated.noise": noise})
    means = [mean_latency(measure(planned, cell, tmp_path)) for cell in planned.requested]
    # 227 iterations a cell add 0.3 / sqrt(227) = 0.02 to the spread between cells.
    assert np.std(means) / fmean(means) == pytest.approx(math.hypot(0.1, 0.02), rel=0.2)
    assert fmean(means) == pytest.approx(0.05004 + 4.106 / 108, rel=0.03)
    draw = random.Random(1)
    factors = [lognormal(draw, 0.3) for _ in range(20_000)]
    assert fmean(factors) == pytest.approx(1, rel=0.01)
    assert np.std(factors) == pytest.approx(0.3, rel=0.03)
    assert lognormal(draw, 0) == 1


def test_the_same_seed_gives_the_same_record_and_another_repeat_another(tmp_path: Path) -> None:
    planned = simulated_study(window_seconds=10)

    def tenants(of_study: Study, cell: Cell) -> list[dict[str, Any]]:
        return list(measure(of_study, cell, tmp_path)["tenants"])

    cell = Cell("mps", "yolos", 3, 1)
    assert tenants(planned, cell) == tenants(planned, cell)
    others = [Cell("mps", "yolos", 3, 2), Cell("streams", "yolos", 3, 1)]
    assert all(tenants(planned, other)[0] != tenants(planned, cell)[0] for other in others)
    assert tenants(simulated_study(window_seconds=10, seed=2), cell) != tenants(planned, cell)


@pytest.mark.parametrize("window_seconds", [1e-6, 0.05])
def test_a_window_may_be_shorter_than_an_iteration(tmp_path: Path, window_seconds: float) -> None:
    short = {"workload_catalogue.yolos.min_window_seconds": 0, "window_seconds": window_seconds, "seed": 3}
    planned = simulated_study(strategies=["mps"], replicas=[3], repeats=1, **short)
    measured = measure(planned, Cell("mps", "yolos", 3, 1), tmp_path)
    assert measured["status"] == "ok"
    assert all(tenant["count"] <= 1 for tenant in measured["tenants"])
    assert any(tenant["count"] == 0 and tenant["min_seconds"] is None for tenant in measured["tenants"])


DEVICE = {"sms": 100, "mig_slices": 7, "mig_slice_sms": 10, "time_slicing_overhead": 0.25}
WORK = Model(serial_seconds=1, parallel_sm_seconds=60)


@pytest.mark.parametrize(
    "mechanisms, profile, percent, active, seconds",
    [
        (["exclusive"], None, None, 1, 1.6),  # a + w/S
        (["time-slicing"], None, None, 1, 1.6),  # no one to switch to
        (["time-slicing"], None, None, 4, 4 * 1.6 * 1.25),
        (["mps"], None, None, 1, 1.6),
        (["mps"], None, None, 4, 1.0 + 4 * 0.6),
        (["streams"], None, None, 4, 1.0 + 4 * 0.6),
        (["green-contexts"], None, 25.0, 4, 1.0 + 60 / 25),
        (["green-contexts"], None, 33.4, 1, 1.0 + 60 / 33),
        (["mps"], None, 25.0, 4, 1.0 + 4 * 0.6),  # the share is what crowding leaves anyway
        (["mps"], None, 25.0, 1, 1.0 + 60 / 25),
        (["mps"], None, 33.4, 1, 1.0 + 60 / 33),  # whole SMs only
        (["mps"], None, 50.0, 4, 1.0 + 4 * 0.6),
        (["mps"], None, 0.1, 1, 1.0 + 60 / 1),  # one SM at least
        (["mig"], "1g", None, 1, 1.0 + 60 / 10),
        (["mig"], "3g.40gb", None, 1, 1.0 + 60 / 30),
        (["mig", "time-slicing"], "3g", None, 1, 1.0 + 60 / 30),
        (["mig", "time-slicing"], "3g", None, 2, 2 * (1.0 + 60 / 30) * 1.25),
        (["mig", "mps"], "3g", None, 2, 1.0 + 2 * 60 / 30),
        (["mig", "mps"], "3g", 50.0, 1, 1.0 + 60 / 15),  # a share of the slice
    ],
)
def test_the_model_follows_its_formulas(
    mechanisms: list[str], profile: str | None, percent: float | None, active: int, seconds: float
) -> None:
    strategy = Strategy.model_construct(mechanism=mechanisms, profile=profile, instances=1, thread_percent=percent)
    assert iteration_seconds(strategy, active, DEVICE, WORK) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "strategy, replicas, slices, active",
    [
        # Two instances: tenants 0 and 2 alternate in one, tenant 1 has the other.
        ("mig-time-slicing", 3, [3, 3, 3], [2 * 1.1097, 1, 2 * 1.1097]),
        ("mig-unequal", 4, [3, 2, 1, 1], [1, 1, 1, 1]),
    ],
)
def test_tenants_are_slowed_only_by_their_own_instance_and_group(
    tmp_path: Path, strategy: str, replicas: int, slices: list[int], active: list[float]
) -> None:
    noise = {"simulated.noise": SILENT}
    planned = simulated_study(strategies=[strategy], replicas=[replicas], repeats=1, baseline="none", **noise)
    measured = measure(planned, planned.cells[0], tmp_path)
    means = [tenant["sum_seconds"] / tenant["count"] for tenant in measured["tenants"]]
    alone = [0.05004 + 4.106 / (each * 14) for each in slices]
    assert means == pytest.approx([factor * seconds for factor, seconds in zip(active, alone, strict=True)])


@pytest.mark.parametrize(
    "strategy, replicas, reason",
    [
        ("mig-unequal", 5, "5 tenants need 5 MIG instances, the strategy has 4"),
        ("mig", 7, None),
        ("mig", 8, "8 instances of 1 slice(s) do not fit into 7 slices"),
        ("mig-mps", 9, None),
        ("mps", 100, None),
    ],
)
def test_mig_runs_out_of_slices(tmp_path: Path, strategy: str, replicas: int, reason: str | None) -> None:
    planned = simulated_study(strategies=[strategy], replicas=[replicas], window_seconds=10)
    node = SimulatedNode(planned.config["simulated"], tmp_path / "node")
    assert node.infeasible(planned.strategies[strategy], replicas) == reason
    measured = measure(planned, Cell(strategy, "yolos", replicas, 1), tmp_path)
    assert (measured["status"], measured["reason"]) == (("ok", None) if reason is None else ("infeasible", reason))


def test_a_rate_may_be_a_share_of_capacity(tmp_path: Path) -> None:
    changes = {"workloads": ["matmul-light"], "strategies": ["mps"], "replicas": [2], "repeats": 1}
    planned = simulated_study(**changes, **{"simulated.noise": SILENT})
    measured = measure(planned, Cell("mps", "matmul-light", 2, 1), tmp_path)
    # `measure` calibrates every workload at 10 Hz.
    assert [tenant["load"]["planned_rate_hz"] for tenant in measured["tenants"]] == [2.0, 2.0]
    assert measured["calibration"]["capacity_hz"] == 10.0
    assert [gate["name"] for gate in measured["gates"] if not gate["passed"]] == []


def test_a_failed_switch_leaves_the_node_in_no_state(tmp_path: Path) -> None:
    planned = simulated_study()
    node = SimulatedNode(planned.config["simulated"], tmp_path)
    (tmp_path / "outage.json").write_text(json.dumps({"strategies": ["mig"]}))
    mps, mig = (State(planned.strategies[name], None, 1) for name in ("mps", "mig"))
    node.ensure(mps)
    with pytest.raises(NodeError):
        node.ensure(mig)
    assert node.current() not in (mps.key, mig.key, None)
    node.ensure(mps)
    assert node.current() == mps.key


def test_the_state_of_the_node_is_the_evidence(tmp_path: Path) -> None:
    planned = simulated_study()
    node = SimulatedNode(planned.config["simulated"], tmp_path)
    mps = planned.strategies["mps"]
    assert [item["holds"] for item in node.evidence(mps, [], [])] == [False]
    node.ensure(State(mps, None, 1))
    assert [item["holds"] for item in node.evidence(mps, [], [])] == [True]
    node.ensure(State(planned.strategies["mps-limited"], 3, 1))
    assert [item["holds"] for item in node.evidence(mps, [], [])] == [False]
