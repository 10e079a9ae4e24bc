"""The last lines of a run."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sharebench.core.files import REPOSITORY
from sharebench.read.closing import REMEDIES, closing_lines
from sharebench.read.promises import COLUMNS

MANUAL = REPOSITORY / "results/README.md"


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


def gates(results: Path, rows: list[dict[str, Any]]) -> None:
    """Write a gates.csv with these rows: failed gates that exclude a cell of MIG, unless a row overrides that."""
    names = ("strategy", "workload", "replicas", "repeat", "gate", "severity", "outcome", "message")
    usual = {"strategy": "mig", "workload": "matmul", "replicas": 1, "severity": "invalid", "outcome": "failed"}
    with (results / "tables" / "gates.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(usual | row for row in rows)


def test_a_run_that_made_nothing_has_none(results: Path) -> None:
    assert closing_lines(results) == []


def test_a_strategy_whose_every_cell_is_excluded_is_called_so(results: Path) -> None:
    summary(results, [{"strategy": "exclusive", "replicas": 1, "n": 0}, {"strategy": "mps", "replicas": 1, "n": 1}])
    assert closing_lines(results)[2].split("  ")[-1].strip() == "no mean"
    assert "excluded" in closing_lines(results)[2]


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
        "10 tenants    one alone    mps             mig",
        "------------  -----------  --------------  --------------",
        "matmul        3.50 ms      12.3 ms, 324/s  4.00 ms, (× 2)",
        f"report: {results / 'report.html'}",
    ]


def test_a_wide_table_has_a_line_for_each_number(results: Path) -> None:
    values = {"replicas": 7, "latency_mean_seconds": 0.0365, "throughput_total_hz": 191.6}
    strategies = ("time-slicing", "mps", "mps-limited", "mps-limited-200", "mig", "streams", "green-contexts")
    summary(results, [{"strategy": name} | values for name in strategies])
    table = closing_lines(results)[:-1]
    assert max(map(len, table)) <= 100 and sum(line.count("36.5 ms") for line in table) == len(strategies)
    assert table[-1].split() == ["192/s"] * len(strategies)


def test_they_name_what_to_take(results: Path) -> None:
    summary(results, [{"strategy": "mps", "replicas": 2}])
    answers = [{"workload": "matmul", "headline": "take mps on 1 GPU instead of 2"}]
    (results / "tables" / "advice.json").write_text(json.dumps({"answers": answers}))
    assert closing_lines(results)[-2] == "matmul: take mps on 1 GPU instead of 2"


def test_they_say_where_the_rest_of_many_answers_is(results: Path) -> None:
    summary(results, [{"strategy": "exclusive", "replicas": 1, "latency_mean_seconds": 0.0035}])
    answers = [{"workload": f"net-{index}", "headline": "take mps on 1 GPU"} for index in range(10)]
    (results / "tables" / "advice.json").write_text(json.dumps({"answers": answers}))
    said = closing_lines(results)
    assert "net-7: take mps on 1 GPU" in said and "2 more in tables/advice.md" in said
    assert not any("net-8" in line for line in said)


def test_every_warning_has_a_remedy() -> None:
    warnings = set(
        re.findall(r"^- `(\w+)`", MANUAL.read_text().split("Severity `warning`")[1].split("\n## ")[0], re.MULTILINE)
    )
    assert warnings == set(REMEDIES)


def test_they_show_ttft_and_tpot_of_streamed_answers(results: Path) -> None:
    values = {"latency_mean_seconds": 1.2, "slowdown": 1.5, "throughput_total_hz": 8.0, "ttft_p50_seconds": 0.0612}
    whole = {"tpot_p50_seconds": 0.0211, "output_tokens_total_hz": 812, "goodput_total_hz": 7.5}
    rows = [{"replicas": 2} | values | own for own in ({"strategy": "mps"} | whole, {"strategy": "mig"})]
    summary(results, rows)
    table = " ".join(closing_lines(results)[:-1])
    assert "TTFT 61.2 ms, TPOT 21.1 ms, 812 tokens/s, 7.50/s in the SLO" in table
    assert "TTFT 61.2 ms, 8.00/s" in table, "answers of one token have no time per token"


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
    assert [line.split() for line in closing_lines(results)[2:-1]] == [
        ["matmul", "in", "matmul+memcopy", "7.00", "ms"],
        ["memcopy", "in", "matmul+memcopy", "30.0", "ms"],
        ["matmul", "3.50", "ms"],
    ]


def test_they_show_the_label_and_why_a_mean_is_missing(results: Path) -> None:
    row = {"strategy": "mps", "replicas": 2, "label": "CPU stand-in, not a GPU", "reason": "cpu_stolen: 9 %"}
    summary(results, [row])
    lines = closing_lines(results)
    assert lines[0] == "CPU stand-in, not a GPU:" and lines[3].split() == ["matmul", "no", "mean"]


def test_they_mention_a_strategy_without_a_result(results: Path) -> None:
    rows = [{"strategy": "mps", "replicas": n, "status": "killed", "reason": "ended by SIGKILL"} for n in (2, 4)]
    summary(results, [{"strategy": "mig", "replicas": 1}, *rows])
    assert closing_lines(results)[2].split() == ["matmul", "no", "mean", "killed"]


def test_they_count_failed_excluded_and_warned_cells(results: Path) -> None:
    summary(results, [{"strategy": "mps", "replicas": 2}])
    hung = {"status": "hung", "valid": False, "reason": "1 of 2 tenants hung: not ready after 12 s", "replicas": 2}
    silent = {"valid": False, "reason": "as the gates say"}
    failed = "tenant 0: all of 7 requests failed; cause: refused"
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
    excluded = [{"repeat": 1}, {"repeat": 2}, {"repeat": 1, "workload": "memcopy"}]
    gates(
        results,
        [
            *({"gate": "nothing_finished", "message": failed} | cell for cell in excluded),
            *({"gate": "cpu_stolen", "message": "9 %"} | cell for cell in excluded),
            {"gate": "drift", "severity": "warning", "message": "slower", "repeat": 1},
            {"gate": "steady", "outcome": "passed", "repeat": 1},
        ],
    )
    assert closing_lines(results)[3:] == [
        "1 of 7 cells hung: matmul, mps × 2: 1 of 2 tenants hung: not ready after 12 s",
        "1 of 7 cells infeasible: matmul, mps × 8: no room",
        "3 of 7 cells excluded by nothing_finished 3, cpu_stolen 3: matmul, mig × 1 and 1 other: "
        f"nothing_finished: {failed}",
        f"2 of 7 cells with a warning: foreign_cpu 2, drift 1; see {results / 'report.html'}",
        f"  foreign_cpu: {REMEDIES['foreign_cpu']}",
        f"  drift: {REMEDIES['drift']}",
        f"report: {results / 'report.html'}",
    ]
    alone = {"valid": False, "reason": "no valid baseline on this device"}
    cells(results, [{"strategy": "mig", "repeat": 1} | alone])
    gates(results, [{"repeat": 1, "gate": "steady", "outcome": "passed"}])
    assert closing_lines(results)[3] == "1 of 1 cells excluded: matmul, mig × 1: no valid baseline on this device"
    cells(results, [{"repeat": 1, "warnings": "foreign_cpu"}])
    named = f"1 of 1 cells with a warning: foreign_cpu 1; see {results / 'report.html'}"
    assert closing_lines(results)[3] == named


def promises(results: Path, rows: list[dict[str, Any]]) -> None:
    """Write a conformance.csv with these rows, kept under MPS with two tenants unless a row overrides that."""
    names = (*COLUMNS, "repeat", "reason")
    usual = {"strategy": "mps", "replicas": 2, "measured": 1, "unit": "ratio", "limit": "at most 1.1", "repeat": 1}
    with (results / "tables" / "conformance.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(usual | {"verdict": "kept"} | row for row in rows)
    catalogue = {"promised": {"module": "conformance"}, "matmul": {"module": "matmul"}}
    (results / "manifest.json").write_text(json.dumps({"config": {"workload_catalogue": catalogue}}))


def test_a_study_of_promises_ends_with_what_is_broken_or_not_measured(results: Path) -> None:
    tested = {"workload": "promised", "tenant_workload": "promised"}
    summary(results, [{"strategy": "mps", "replicas": 2, "reason": "cpu_contention: 3 %"} | tested])
    excluded = {"valid": False, "reason": "as the gates say", "replicas": 2, "repeat": 1}
    crashed = excluded | {"status": "crashed", "reason": "1 of 1 tenants crashed"}
    cells(
        results,
        [
            excluded | {"workload": "promised", "warnings": "drift"},
            excluded | {"workload": "fault-oom+promised"},
            *(crashed | {"workload": f"fault-{kind}+promised"} for kind in ("killed", "illegal-address")),
        ],
    )
    gates(results, [])
    isolation = "strategy,fault,victim,failed\nmps,killed,promised,1\nmps,illegal-address,promised,0\n"
    (results / "tables" / "isolation.csv").write_text(isolation)
    waited = {"verdict": "not measured", "measured": "", "reason": "a tenant waited for a CPU"}
    fair = {"promise": "fair", "verdict": "broken", "measured": 1.2222222}
    number = {"promise": "light", "verdict": "not promised", "measured": 3}
    promises(results, [{"promise": "start"}, waited | {"promise": "share"}, fair, waited | {"promise": "x"}, number])
    assert closing_lines(results) == [
        "in 1 of 4 cells a fault ended its neighbours, which is a result: fault-killed+promised, mps × 2",
        "1 of 4 cells crashed: fault-illegal-address+promised, mps × 2: 1 of 1 tenants crashed",
        "broken: fair, mps × 2: 1.22 ratio, promised: at most 1.1",
        "not measured: share, mps × 2 and 1 other: a tenant waited for a CPU",
        f"report: {results / 'report.html'}",
        "1 promise broken, 2 not measured, 1 kept, 1 not promised",
    ]


def test_other_workloads_next_to_promises_keep_their_table(results: Path) -> None:
    tested = {"workload": "promised", "tenant_workload": "promised"}
    row = {"strategy": "mps", "replicas": 2, "latency_mean_seconds": 0.005}
    summary(results, [row, row | tested])
    excluded = {"valid": False, "reason": "no valid baseline", "replicas": 2, "repeat": 1}
    cells(results, [excluded, excluded | {"workload": "promised"}])
    gates(results, [{"strategy": "mps", "replicas": 2, "repeat": 1, "gate": "steady", "outcome": "passed"}])
    promises(results, [{"promise": "start"}])
    assert [line.split()[0] for line in closing_lines(results)[2:4]] == ["matmul", "1"]
    assert not any("promised," in line for line in closing_lines(results))
