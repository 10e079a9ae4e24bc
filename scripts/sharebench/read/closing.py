"""The last lines of a run: what was measured, and what is wrong with it."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from sharebench.core.console import format_count
from sharebench.model.promises import closing_line
from sharebench.model.spec import workload_label
from sharebench.model.strategies import is_control

# A gate's name in the reason of an excluded cell.
GATE_PATTERN = re.compile(r"(?:^|; )([a-z_]+): ")


def _counts_text(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common())


def ending_lines(tables: Path, where: Path) -> list[str]:
    """A line for each kind of problem in a study's cells.csv: bad endings, excluded cells, and warnings.

    The warnings' line refers to the file `where`, which shows the cells.
    """
    with (tables / "cells.csv").open(newline="") as file:
        # A cell has a row for each tenant; all of them repeat the cell's own columns.
        cells = {
            tuple(row[key] for key in ("strategy", "workload", "replicas", "repeat")): row
            for row in csv.DictReader(file)
        }
    problems: dict[str, list[tuple[str, ...]]] = {}
    for cell, row in cells.items():
        if row["status"] not in ("ok", "infeasible"):
            problems.setdefault(row["status"], []).append(cell)
        elif row["status"] == "ok" and row["valid"] != "True":
            problems.setdefault("excluded", []).append(cell)
    lines = []
    for problem, affected in problems.items():
        strategy, workload, replicas, _ = affected[0]
        kinds = len({cell[:3] for cell in affected})
        others = f" and {format_count(kinds - 1, 'other', 'others')}" if kinds > 1 else ""
        reason = cells[affected[0]]["reason"].split("; ")[0]
        first = f"{workload}, {strategy} × {replicas}{others}"
        if problem == "excluded":
            gates = (name for cell in affected for name in GATE_PATTERN.findall(cells[cell]["reason"]))
            problem += f" by {_counts_text(gates)}"
        lines.append(f"{len(affected)} of {len(cells)} cells {problem}: {first}: {reason}")
    if warned := [row["warnings"].split(";") for row in cells.values() if row["warnings"]]:
        names = _counts_text(name for warnings in warned for name in warnings)
        lines.append(f"{len(warned)} of {len(cells)} cells carry a warning: {names}; see {where}")
    return lines


def _result_text(row: Mapping[str, str]) -> str:
    """A row of the summary as text: latency, slowdown and throughput, or the reason why there are none."""
    missing = "no mean" if row["status"] == "ok" else row["status"]
    missing += f" ({row['reason'].split('; ')[0]})" if row["reason"] else ""

    def text(metric: str, template: str, factor: float = 1.0) -> str:
        return template.format(factor * float(row[metric])) if row.get(metric) else ""

    times = text("ttft_p50_seconds", "median TTFT {:.4g} ms", 1e3), text("tpot_p50_seconds", "TPOT {:.4g} ms", 1e3)
    mean = text("latency_mean_seconds", "{:.4g} ms", 1e3)
    rate = text("output_tokens_total_hz", "{:.4g} tokens/s in all")
    parts = (
        ", ".join(filter(None, times)) or mean or missing,
        text("slowdown", "slowdown {:.2f}"),
        rate or text("throughput_total_hz", "{:.4g}/s in all"),
        text("goodput_total_hz", "{:.4g}/s within the SLO"),
    )
    return ", ".join(filter(None, parts))


def closing_lines(results: Path) -> list[str]:
    """The last lines of a finished run: results at the largest number of tenants, problems, and the report's path.

    Workloads that only ran alone, such as the baselines of pairs, come last.
    """
    with (results / "tables" / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    compared: list[str] = []
    alone: list[str] = []
    for workload, tenant in dict.fromkeys((row["workload"], row["tenant_workload"]) for row in rows):
        by_strategy: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            if (row["workload"], row["tenant_workload"]) == (workload, tenant) and not is_control(row["strategy"]):
                by_strategy.setdefault(row["strategy"], []).append(row)
        for name, strategy_rows in by_strategy.items():
            # The largest number of tenants that ended well represents the strategy.
            row = max(strategy_rows, key=lambda each: (each["status"] == "ok", int(each["replicas"])))
            line = f"{workload_label(workload, tenant)}, {name} × {row['replicas']}: {_result_text(row)}"
            (alone if len(by_strategy) == 1 and row["replicas"] == "1" else compared).append(line)
    lines = compared + alone
    shown = lines[:4]
    more = f" ({len(lines) - len(shown)} more in tables/summary.md)" if len(lines) > len(shown) else ""
    label = rows[0].get("label", "") if rows else ""
    return [
        *([f"{label}:"] if label else []),
        *shown,
        *ending_lines(results / "tables", results / "report.html"),
        f"report: {results / 'report.html'}{more}",
        *_promises_line(results / "tables" / "conformance.csv"),
    ]


def _promises_line(table: Path) -> list[str]:
    """The number of broken promises, of a study that tests them."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return [closing_line(row["verdict"] for row in csv.DictReader(file))]


def table_failed_run(results: Path) -> str:
    """Make tables of what a failed run did measure. Returns lines about them, empty if there are none."""
    # Imported late: the closing lines of a finished run need no library of tables.
    from sharebench.read.aggregate import write_partial_tables

    partial = results / "partial"
    made = write_partial_tables(results)
    return "\n".join([made, *ending_lines(partial, partial / "cells.csv")]) if made else ""
