"""The plan of a run, as text."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.studies import study_with

from sharebench.measure.nodes.simulated.node import SimulatedNode
from sharebench.measure.run.plan import count_switches, headline, pending_files, plan, progress_line
from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.config.load import ConfigError
from sharebench.study.cells import Cell
from sharebench.study.study import Study
from sharebench.study.wrong_answers import wrong_answer


def simulated_study(**changes: Any) -> Study:
    """The default study on the simulated node with one workload and some keys changed."""
    return study_with({"node": "simulated", "workloads": ["matmul"], "null_cells": False} | changes)


@pytest.mark.parametrize("order, expected", [("blocks", 12), ("strategy", 4)])
def test_a_whole_study_switches_once_for_each_state_and_block(order: str, expected: int) -> None:
    planned = simulated_study(order=order)
    assert count_switches(planned, planned.cells) == expected


def test_a_part_of_a_study_switches_only_for_what_is_left() -> None:
    planned = simulated_study()
    assert count_switches(planned, set()) == 0
    assert count_switches(planned, {Cell("mps", "matmul", 1, 1)}) == 1
    assert count_switches(planned, {Cell("mps", "matmul", n, 1) for n in (1, 2, 4)}) == 1
    assert count_switches(planned, {Cell("mps", "matmul", 1, repeat) for repeat in (1, 2, 3)}) == 3
    assert count_switches(planned, {Cell("mps", "matmul", 1, 1), Cell("mig", "matmul", 1, 1)}) == 2


def test_the_headline_counts_cells_switches_and_time() -> None:
    planned = simulated_study(window_seconds=2)
    cells = {cell for cell in planned.cells if cell.repeat == 1 and cell.strategy in ("mps", "exclusive")}
    line = headline(planned, {"overhead": {"cells": 4, "seconds": 2.0}}, cells, {"calibrate": 1})
    assert line == (
        f"4 of {len(planned.cells)} cells to measure on node simulated: exclusive 1, mps 3; 2 node switches; about 2 s"
    ), "virtual windows take no time"
    real = simulated_study(node="cpu", window_seconds=2)
    assert headline(real, {"overhead": {"cells": 4, "seconds": 2.0}}, cells, {}).endswith("about 10 s")


@pytest.mark.parametrize(
    ("done", "elapsed", "changes", "end"),
    [
        (1, 0, {}, "cell 1 of 3: mps × 2, matmul, repeat 1 on d · about 30 s left"),
        (2, 7, {}, "cell 2 of 3: mps × 2, matmul, repeat 1 on d · about 14 s left"),
        (3, 14, {}, "cell 3 of 3: mps × 2, matmul, repeat 1 on d · about 7 s left"),
        (3, 14, {"jobs": {"aggregate": 1}}, "about 15 s left"),
        (1, 0, {"overhead": None}, "about 28 s left"),
        (1, 0, {"first_cell_epoch_seconds": None}, "about 30 s left"),
        # Both of two devices begin at once.
        (2, 0, {"devices": [{}, {}]}, "cell 2 of 3: mps × 2, matmul, repeat 1 on d · about 10 s left"),
        (3, 10, {"devices": [{}, {}]}, "about 5 s left"),
        # Two cells were tried again.
        (5, 20, {}, "cell 5 of 5: mps × 2, matmul, repeat 1 on d · about 5 s left"),
    ],
)
def test_a_cells_line_has_its_number_and_what_is_left_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int, elapsed: float, changes: dict[str, Any], end: str
) -> None:
    measured = simulated_study(node="cpu", window_seconds=8)
    monkeypatch.setattr("time.time", lambda: 1000.0 + elapsed)
    run: Any = {"done": done, "planned": 3, "first_cell_epoch_seconds": 1000.0, "results": str(tmp_path), "jobs": {}}
    run |= {"overhead": {"cells": 2, "seconds": 4.0}} | changes
    line = progress_line(run, measured.spec(Cell("mps", "matmul", 2, 1)), measured, " on d")
    assert line.endswith(end) and line.startswith(f"cell {done} of ")


def test_pending_files_are_read_from_snakemakes_summary() -> None:
    head = "output_file\tdate\trule\tlog-file(s)\tstatus\tplan"
    rows = [
        "r/cells/mps/matmul/n1/r1/raw.json\t-\trun_cell\t-\tmissing\tupdate pending",
        "r/cells/mps/matmul/n1/r1/telemetry.csv\t-\trun_cell\t-\tmissing\tupdate pending",
        "r/cells/mps/matmul/n1/r2/raw.json\tSun Nov 22\trun_cell\t-\tok\tno update",
        "r/report.html\tSun Nov 22\treport\t-\tupdated input files\tupdate pending",
    ]
    assert pending_files("\n".join(["Building DAG of jobs...", head, *rows])) == {
        "run_cell": [row.split("\t")[0] for row in rows[:2]],
        "report": ["r/report.html"],
    }
    assert pending_files(head) == {}


def test_the_plan_lists_the_cells_and_changes_of_each_strategy(tmp_path: Path) -> None:
    planned = simulated_study(strategies=["mps", "mig"], replicas=[1, 9], repeats=2)
    raw = [cell.raw for cell in planned.cells if cell != Cell("mps", "matmul", 1, 1)]
    first, *rest = plan(planned, tmp_path, {"run_cell": raw}).splitlines()
    assert first.startswith("9 of 10 cells to measure on node simulated: exclusive 2, mps 3, mig 4; 6 node switches")
    text = "\n".join(rest)
    assert max(map(len, rest)) <= 100
    assert "3 of 4 cells  replicas 1, 9\n" in text
    assert "4 of 4 cells  replicas 1, 9  (infeasible here: 9)\n" in text
    assert "changes nothing" in text
    assert "order: blocks" in text and "sharebench restore" in text
    assert not (tmp_path / ".sharebench").exists(), "a plan writes nothing"
    made = {"report": ["report.html"], "decide": ["a.csv", "b.csv"]}
    assert plan(planned, tmp_path, made).startswith("no cell to measure; files to make: decide 2, report 1\n")
    assert plan(planned, tmp_path, {}).startswith("no cell to measure; files to make: none\n")


def test_a_plan_for_another_host_needs_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharebench.model.config.nodes.has_nvidia_gpu", lambda: False)
    asked = {"node": "nvidia", "strategies": ["mps"], "workloads": ["matmul"], "replicas": [1, 2], "repeats": 1}
    with pytest.raises(ConfigError, match="a plan for another host: --config measured_elsewhere=true"):
        study_with(asked)
    planned = study_with(asked | {"measured_elsewhere": True, "null_cells": False})
    first, *_, last = plan(planned, tmp_path, {"run_cell": [cell.raw for cell in planned.cells]}).splitlines()
    assert first.startswith("3 of 3 cells to measure on node nvidia: exclusive 1, mps 2; 2 node switches; about ")
    assert last.endswith("for another host: whether it can do all of this is not known here")


def test_the_plan_says_what_a_node_adds_to_a_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedNode, "additions", lambda _, each: "adds a user" if each.name == "matmul" else None)
    planned = simulated_study(workloads=["matmul", "detector"], repeats=2)
    assert [line for line in plan(planned, tmp_path, {}).splitlines() if "adds" in line] == ["  matmul: adds a user"]


def test_the_plan_lists_workloads_that_the_node_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        SimulatedNode,
        "infeasible",
        lambda _, s, n, w=(): "no" if len(w) == n == 2 and w[0].name == "matmul" else None,
    )
    monkeypatch.setattr(SimulatedNode, "not_attempted", lambda _, s, w: "never" if s.name == "streams" else None)
    study = {"strategies": ["mps", "streams"], "workloads": ["matmul", "detector"], "replicas": [1, 2], "repeats": 1}
    planned = simulated_study(**study)
    lines = re.sub(r"\n {10,}", " ", plan(planned, tmp_path, {})).splitlines()
    said = {line.split()[0]: line.partition("replicas 1, 2")[2].strip() for line in lines if "replicas 1, 2" in line}
    assert said == {
        "mps": "(infeasible here: 2 of matmul)",
        "streams": "(infeasible here: 2 of matmul; not measured: 1; 2 of detector)",
    }


def test_the_plan_warns_of_shares_with_wrong_answers_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = simulated_study(
        workloads=["mine"],
        workload_catalogue={"mine": {"simulated": {"serial_seconds": 0.002, "parallel_sm_seconds": 0.5}}},
        strategies=["mps", "mps-limited", "mps-limited-200"],
        replicas=[2, 3, 4, 8],
        repeats=1,
    )
    assert "cuBLAS" not in plan(planned, tmp_path, {}), "a simulated GPU computes nothing"
    gpu = replace(NODE_KINDS["simulated"], has_gpus=True)
    monkeypatch.setattr("sharebench.measure.run.plan.NODE_KINDS", {**NODE_KINDS, "simulated": gpu})
    text = " ".join(plan(planned, tmp_path, {}).split())
    warned = re.findall(
        r"(\S+), (\d) tenants: with ([\d.]+) % of the SMs cuBLAS 13.1 .*?; in half precision give each (.*?), or check",
        text,
    )
    assert warned == [
        (
            "mps-limited",
            "3",
            "33.3",
            "the share of 4 tenants (NVIDIA's plugin: `replicas: 4`; measure it: --config 'replicas=[4]')",
        ),
        ("mps-limited-200", "3", "66.7", "the share of 4 tenants (measure it: --config 'replicas=[4]')"),
    ]
    assert text.count("cuBLAS") == len(warned)
    fixed = planned.strategies["mps-limited"].changed(thread_percent=30.0)
    assert "; in half precision take another share, or check" in wrong_answer(fixed, 2)
