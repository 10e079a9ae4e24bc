"""The last lines of a run: what was measured, and what is wrong with it."""

import csv
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tabulate import tabulate

from sharebench.core.console import TERMINAL_COLUMNS, format_count
from sharebench.core.files import read_json
from sharebench.model.faults import workload_name
from sharebench.model.spec import workload_label
from sharebench.model.strategies import is_control
from sharebench.read import promises
from sharebench.read.grouping import group_by
from sharebench.read.harm import CellKey, Harm, brief, caution, harms, is_wrong
from sharebench.read.promises import first_of
from sharebench.read.quantity import format_quantity

MAX_WORKLOADS = 8
"""The most rows of the closing table."""
ONE_ALONE = {"exclusive": "one alone"}
REMEDIES = {
    "errors": "some requests failed; their causes are in the report",
    "steady": "a tenant was not steady when its window began; give it a longer warm-up",
    "drift": "latency changed within a window; let the machine rest, or take longer windows",
    "level_shift": "latency jumped between two levels; close other programs, or read the result as rough",
    "stall": "one iteration was far longer than the others; repeat it",
    "foreign_cpu": "other programs used the CPU; close them, or read the result as rough",
    "power_cap": "the GPU reached its power limit, as large matmuls do; compare at the same limit",
    "clock_variation": "the GPU's clock changed; lock it, or read small differences as none",
    "temperature_rising": "the GPU became warmer; begin with a warm one",
    "littles_law": "requests in flight do not fit their rate and latency; take longer windows",
    "load_achieved": "the planned rate was not reached; ask for less, or read it as overload",
    "outage": "most requests failed for a while; see the server's log",
    "new_connections": "the server closes connections, which costs latency; let it keep them",
    "generator_cost": "our client took much of the latency; give it more cores",
    "generator_gap": "our client made closed loads slower; give it cores, ask for more per request, or set rate_hz",
    "token_count": "the server counts other tokens than came with text; see usage in the record",
    "server_elsewhere": "the server runs elsewhere, so the strategy was not proved",
    "left_running": "processes of the program went on after its end; stop them there",
    "prometheus_counts": "Prometheus saw other counts than the tenant; check its scrapes",
    "prometheus_scrapes": "Prometheus missed scrapes; give it more resources",
}
"""What to do about each warning."""
FAULTS = "a fault ended its neighbours, which is a result"
CELL = ("strategy", "workload", "replicas", "repeat")


def _counts_text(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common())


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def _rows_by_cell(table: Path) -> dict[tuple[str, ...], list[dict[str, str]]]:
    return group_by(_rows(table), lambda row: tuple(row[key] for key in CELL))


def _ended_by_faults(table: Path) -> set[tuple[str, str]]:
    """Strategy and workload of the cells in which a fault ended neighbours, which is what they ask."""
    rows = _rows(table) if table.exists() else []
    return {(row["strategy"], workload_name(row["fault"], row["victim"])) for row in rows if row["failed"] != "0"}


def _failed_gates(tables: Path) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """The gates that exclude each cell."""
    return {
        cell: [row for row in rows if row["outcome"] == "failed" and row["severity"] == "invalid"]
        for cell, rows in _rows_by_cell(tables / "gates.csv").items()
    }


def ending_lines(tables: Path, where: Path, of_promises: Collection[str] = ()) -> list[str]:
    """A line for each kind of problem in a study's cells.csv: bad endings, excluded cells, and warnings.

    The warnings' line refers to the file `where`, which shows the cells. Gates of cells with a workload or a victim of
    `of_promises` count for means only, which the study does not ask for.
    """
    # A cell has a row for each tenant; all of them repeat the cell's own columns.
    cells = {cell: rows[0] for cell, rows in _rows_by_cell(tables / "cells.csv").items()}
    judged = {cell: row for cell, row in cells.items() if cell[1].rpartition("+")[2] not in of_promises}
    ended_by_faults = _ended_by_faults(tables / "isolation.csv")
    problems: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for cell, row in cells.items():
        if row["status"] != "ok":
            problems[FAULTS if cell[:2] in ended_by_faults else row["status"]].append(cell)
        elif cell in judged and row["valid"] != "True":
            problems["excluded"].append(cell)
    lines = []
    for problem, affected in problems.items():
        strategy, workload, replicas, _ = affected[0]
        reason = cells[affected[0]]["reason"].split("; ")[0]
        first = first_of(f"{workload}, {strategy} × {replicas}", len({cell[:3] for cell in affected}))
        if problem == FAULTS:
            lines.append(f"in {len(affected)} of {len(cells)} cells {problem}: {first}")
            continue
        if problem == "excluded":
            failed = _failed_gates(tables)
            gates = [gate["gate"] for cell in affected for gate in failed[cell]]
            # A cell without its partner on the same device fails no gate.
            problem += f" by {_counts_text(gates)}" if gates else ""
            reason = next(("{gate}: {message}".format_map(gate) for gate in failed[affected[0]]), reason)
        lines.append(f"{len(affected)} of {len(cells)} cells {problem}: {first}: {reason}")
    if warned := [row["warnings"].split(";") for row in judged.values() if row["warnings"]]:
        names = _counts_text(name for warnings in warned for name in warnings)
        lines.append(f"{len(warned)} of {len(cells)} cells with a warning: {names}; see {where}")
        found = dict.fromkeys(name for warnings in warned for name in warnings)
        lines += [f"  {name}: {REMEDIES[name]}" for name in found if name in REMEDIES]
    return lines


def _is_shown(row: Mapping[str, str], harms: Sequence[Harm]) -> bool:
    """Whether it has numbers that count; some of its repeats may have ended badly."""
    return (row["status"] == "ok" or bool(row.get("latency_mean_seconds"))) and not is_wrong(harms)


def _result_text(row: Mapping[str, str], largest: int, harms: Sequence[Harm]) -> list[str]:
    """A row of the summary in lines of a cell: latency and throughput, or why there are none."""
    if not row.get("latency_mean_seconds"):
        return [row["status"] if row["status"] != "ok" else "excluded" if row.get("n") == "0" else "no mean"]
    if is_wrong(harms):
        return [brief(harms)]

    def text(metric: str, template: str, factor: float = 1.0) -> str:
        return template.format(format_quantity(factor * float(row[metric]))) if row.get(metric) else ""

    times = text("ttft_p50_seconds", "TTFT {} ms", 1e3), text("tpot_p50_seconds", "TPOT {} ms", 1e3)
    parts = [*filter(None, times)] or [text("latency_mean_seconds", "{} ms", 1e3)]
    parts.append(text("output_tokens_total_hz", "{} tokens/s") or text("throughput_total_hz", "{}/s"))
    parts.append(text("goodput_total_hz", "{}/s in the SLO"))
    replicas = int(row["replicas"])
    parts.append(f"(× {replicas})" if replicas not in (1, largest) else "")
    return [*filter(None, [*parts, brief(harms)])]


def _results_table(rows: Sequence[Mapping[str, str]], known: Mapping[CellKey, Sequence[Harm]]) -> list[str]:
    """Mean latency and throughput of all: a row for each workload, a column for each strategy.

    The largest number of tenants that ended well represents a strategy. Workloads that only ran alone, such as the
    baselines of pairs, come last.
    """

    def harms_of(row: Mapping[str, str]) -> Sequence[Harm]:
        return known.get((row["strategy"], row["workload"], int(row["replicas"])), ())

    shown = [row for row in rows if not is_control(row["strategy"])]
    largest = max((int(row["replicas"]) for row in shown), default=1)
    strategies = list(dict.fromkeys(row["strategy"] for row in shown))
    by_workload: defaultdict[tuple[str, str], dict[str, Mapping[str, str]]] = defaultdict(dict)
    # The last row of a strategy stays: the largest number of tenants that ended well.
    for row in sorted(shown, key=lambda row: (_is_shown(row, harms_of(row)), int(row["replicas"]))):
        by_workload[row["workload"], row["tenant_workload"]][row["strategy"]] = row
    in_order = list(dict.fromkeys((row["workload"], row["tenant_workload"]) for row in shown))
    in_order.sort(key=lambda name: [row["replicas"] for row in by_workload[name].values()] == ["1"])
    lines = [
        [
            [workload_label(*name)],
            *(_result_text(best[each], largest, harms_of(best[each])) if each in best else [] for each in strategies),
        ]
        for name in in_order
        for best in [by_workload[name]]
    ]
    left_out = len(lines) - MAX_WORKLOADS
    header = [format_count(largest, "tenant", "tenants"), *(ONE_ALONE.get(name, name) for name in strategies)]
    for between in (", ", "\n"):
        body = [[between.join(cell) for cell in cells] for cells in lines[:MAX_WORKLOADS]]
        narrow = [name.replace("-", "-\n") if between == "\n" else name for name in header]
        table = tabulate(body, narrow, disable_numparse=True).splitlines()
        if max(map(len, table), default=0) <= TERMINAL_COLUMNS:
            break
    return [*table, *([f"{left_out} more in tables/summary.md"] if left_out > 0 else [])]


def _answers(path: Path) -> list[str]:
    """What to take for each workload."""
    if not path.is_file():
        return []
    answers = read_json(path, "answers")["answers"]
    shown, left_out = answers[:MAX_WORKLOADS], len(answers) - MAX_WORKLOADS
    lines = [f"{each['workload']}: {each['headline']}{caution(each.get('harm', ''))}" for each in shown]
    return lines + [f"{left_out} more in tables/advice.md"] * (left_out > 0)


def closing_lines(results: Path) -> list[str]:
    """The last lines of a finished run: results, what to take, problems, and the report's path.

    There are none where nothing was made, which is how `snakemake --touch` ends.
    """
    summary = results / "tables" / "summary.csv"
    if not summary.is_file():
        return []
    rows = _rows(summary)
    label = rows[0].get("label", "") if rows else ""
    tested, of_promises = None, set()
    if (results / "tables" / "conformance.csv").exists():
        tested = promises.read_promises(results / "tables")
        entries = read_json(results / "manifest.json", "config")["config"]["workload_catalogue"]
        of_promises = {name for name, entry in entries.items() if entry.get("module") == promises.MODULE}
    measured = [row for row in rows if row["workload"] not in of_promises]
    return [
        *([f"{label}:"] if label else []),
        *(_results_table(measured, harms(_rows(results / "tables" / "cells.csv"))) if measured else []),
        *_answers(results / "tables" / "advice.json"),
        *ending_lines(results / "tables", results / "report.html", of_promises),
        *(tested.problems if tested else []),
        f"report: {results / 'report.html'}",
        *([tested.closing_line] if tested else []),
    ]


def table_failed_run(results: Path) -> str:
    """Make tables of what a failed run did measure. Returns lines about them, empty if there are none."""
    # Imported late: the closing lines of a finished run need no library of tables.
    from sharebench.read.aggregate import write_partial_tables

    partial = results / "partial"
    made = write_partial_tables(results)
    return "\n".join([made, *ending_lines(partial, partial / "cells.csv")]) if made else ""
