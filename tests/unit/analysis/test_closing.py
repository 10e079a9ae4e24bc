"""The last lines of a run."""

import csv
from pathlib import Path
from typing import Any

import pytest

from sharebench.read.closing import closing_lines


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def summary(results: Path, rows: list[dict[str, Any]]) -> None:
    """Write a summary.csv with these rows; other columns are blank."""
    group_columns = ("strategy", "workload", "tenant_workload", "replicas", "status")
    names = [*group_columns, "reason", "latency_mean_seconds", "slowdown", "throughput_total_hz", "label"]
    names += dict.fromkeys(name for row in rows for name in row if name not in (*names, "workload"))
    path = results / "tables" / "summary.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows({"workload": "matmul", "tenant_workload": "matmul", "status": "ok"} | row for row in rows)
    cells(results, [])


def cells(results: Path, rows: list[dict[str, Any]]) -> None:
    """Write a cells.csv with these rows: valid cells of one tenant, unless a row overrides that."""
    names = ("strategy", "workload", "replicas", "repeat", "tenant", "status", "valid", "reason", "warnings")
    with (results / "tables" / "cells.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        usual = {"strategy": "mps", "workload": "matmul", "replicas": 1, "tenant": 0, "status": "ok", "valid": True}
        writer.writerows(usual | row for row in rows)


def test_they_show_the_largest_number_of_tenants_of_each_strategy(results: Path) -> None:
    values = {"latency_mean_seconds": 0.0123456, "slowdown": 3.456, "throughput_total_hz": 324.04}
    rows = [
        {"strategy": "exclusive", "replicas": 1, "latency_mean_seconds": 0.0035},
        {"strategy": "mps", "replicas": 2, "latency_mean_seconds": 0.005},
        {"strategy": "mps", "replicas": 10} | values,
        {"strategy": "mig", "replicas": 2, "latency_mean_seconds": 0.004, "slowdown": 1.1},
        {"strategy": "mig", "replicas": 4, "status": "infeasible"},
    ]
    summary(results, rows)
    assert closing_lines(results) == [
        "matmul, exclusive × 1: 3.5 ms",
        "matmul, mps × 10: 12.35 ms, slowdown 3.46, 324/s in all",
        "matmul, mig × 2: 4 ms, slowdown 1.10",
        f"report: {results / 'report.html'}",
    ]


def test_they_show_ttft_and_tpot_of_streamed_answers(results: Path) -> None:
    values = {"latency_mean_seconds": 1.2, "slowdown": 1.5, "throughput_total_hz": 8.0, "ttft_p50_seconds": 0.0612}
    whole = {"tpot_p50_seconds": 0.0211, "output_tokens_total_hz": 812, "goodput_total_hz": 7.5}
    rows = [{"replicas": 2} | values | own for own in ({"strategy": "mps"} | whole, {"strategy": "mig"})]
    summary(results, rows)
    assert closing_lines(results)[:2] == [
        "matmul, mps × 2: median TTFT 61.2 ms, TPOT 21.1 ms, slowdown 1.50, 812 tokens/s in all, 7.5/s within the SLO",
        "matmul, mig × 2: median TTFT 61.2 ms, slowdown 1.50, 8/s in all",
    ], "answers of one token have no time per token"


def test_they_list_each_workload_of_a_mix(results: Path) -> None:
    mixed = {"workload": "matmul+memcopy", "replicas": 2}
    summary(
        results,
        [
            {"strategy": "exclusive", "replicas": 1, "latency_mean_seconds": 0.0035},
            mixed | {"strategy": "mps", "tenant_workload": "matmul", "latency_mean_seconds": 0.007, "slowdown": 2},
            mixed | {"strategy": "mps", "tenant_workload": "memcopy", "latency_mean_seconds": 0.03, "slowdown": 3},
        ],
    )
    assert closing_lines(results)[:3] == [
        "matmul in matmul+memcopy, mps × 2: 7 ms, slowdown 2.00",
        "memcopy in matmul+memcopy, mps × 2: 30 ms, slowdown 3.00",
        "matmul, exclusive × 1: 3.5 ms",
    ]


def test_they_show_the_label_and_why_a_mean_is_missing(results: Path) -> None:
    row = {"strategy": "mps", "replicas": 2, "label": "CPU stand-in, not a GPU", "reason": "cpu_stolen: 9 %"}
    summary(results, [row])
    lines = closing_lines(results)
    assert lines[:2] == ["CPU stand-in, not a GPU:", "matmul, mps × 2: no mean (cpu_stolen: 9 %)"]


def test_they_mention_a_strategy_without_a_result(results: Path) -> None:
    rows = [{"strategy": "mps", "replicas": n, "status": "killed", "reason": "ended by SIGKILL"} for n in (2, 4)]
    summary(results, [{"strategy": "mig", "replicas": 1}, *rows])
    assert closing_lines(results)[:2] == ["matmul, mig × 1: no mean", "matmul, mps × 4: killed (ended by SIGKILL)"]


def test_they_count_failed_excluded_and_warned_cells(results: Path) -> None:
    summary(results, [{"strategy": "mps", "replicas": 2}])
    hung = {"status": "hung", "valid": False, "reason": "1 of 2 tenants hung: not ready after 12 s", "replicas": 2}
    silent = {"valid": False, "reason": "nothing_finished: tenant 0: all of 7 requests failed; cpu_stolen: 9 %"}
    cells(
        results,
        [
            {"repeat": 1, "warnings": "foreign_cpu;drift"},
            {"repeat": 2, "warnings": "foreign_cpu"},
            *({"repeat": 1, "tenant": tenant} | hung for tenant in (0, 1)),
            {"repeat": 3, "replicas": 8, "status": "infeasible", "valid": False, "reason": "no room"},
            *({"repeat": repeat, "strategy": "mig"} | silent for repeat in (1, 2)),
            {"repeat": 1, "strategy": "mig", "workload": "memcopy"} | silent,
        ],
    )
    assert closing_lines(results)[1:] == [
        "1 of 7 cells hung: matmul, mps × 2: 1 of 2 tenants hung: not ready after 12 s",
        "3 of 7 cells excluded by nothing_finished 3, cpu_stolen 3: matmul, mig × 1 and 1 other: "
        "nothing_finished: tenant 0: all of 7 requests failed",
        f"2 of 7 cells carry a warning: foreign_cpu 2, drift 1; see {results / 'report.html'}",
        f"report: {results / 'report.html'}",
    ]
    cells(results, [{"repeat": 1, "warnings": "foreign_cpu"}])
    named = f"1 of 1 cells carry a warning: foreign_cpu 1; see {results / 'report.html'}"
    assert closing_lines(results)[1] == named
