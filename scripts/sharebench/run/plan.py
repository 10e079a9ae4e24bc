"""What a run will do: its first line, and the whole plan."""

import csv
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import dropwhile, groupby
from operator import itemgetter
from pathlib import Path

from sharebench.core import console, run_record
from sharebench.core.capabilities import NODE_KINDS
from sharebench.core.console import format_count, format_duration
from sharebench.core.files import Refusal
from sharebench.core.spec import Spec, tenant_workloads
from sharebench.core.study_config import StudyConfig
from sharebench.nodes.contract import NodeError
from sharebench.nodes.node import Node
from sharebench.run import placement
from sharebench.run.placement import Placement, by_device
from sharebench.study.cells import Cell, cell_of
from sharebench.study.study import Study


def switches(study: Study, cells: Collection[Cell], places: Placement | None = None) -> int:
    """How often the node changes state while these cells run in their order: once for each run of equal plots."""
    in_order = [cell for cell in study.cells if cell in cells]
    return sum(1 for own in by_device(in_order, places).values() for _ in groupby(own, key=study.plot))


def headline(
    study: Study,
    run: run_record.RunRecord,
    cells: Collection[Cell],
    jobs: Mapping[str, int],
    places: Placement | None = None,
) -> str:
    """The plan in one line: cells by strategy, switches, time."""
    if not cells:
        others = ", ".join(f"{name} {count}" for name, count in sorted(jobs.items()) if count and name != "all")
        return f"no cell to measure; to do: {others or 'nothing'}"
    by_strategy = Counter(cell.strategy for cell in cells)
    parts = ", ".join(f"{name} {by_strategy[name]}" for name in study.strategies if name in by_strategy)
    longest = max(map(len, by_device(cells, places).values()))
    left = format_duration((longest + jobs.get("calibrate", 0)) * seconds_per_cell(study, run))
    on = f", {format_count(len(places.devices), 'device', 'devices at once')}" if places else ""
    return (
        f"{len(cells)} of {len(study.cells)} cells to measure on node {study.node_kind}{on}: {parts}; "
        f"{format_count(switches(study, cells, places), 'node switch', 'node switches')}; about {left}"
    )


def pending(summary: str) -> dict[str, list[str]]:
    """The files that Snakemake would make, by rule, from what `snakemake --summary` prints."""
    lines = dropwhile(lambda line: not line.startswith("output_file\t"), summary.splitlines())
    rows = csv.DictReader(lines, delimiter="\t")
    files: dict[str, list[str]] = {}
    for row in rows:
        if row["plan"] == "update pending":
            files.setdefault(row["rule"], []).append(row["output_file"])
    return files


def _without_tenants(node: Node, study: Study, strategy: str) -> list[str]:
    """What of the strategy's cells will start no tenant: by kind, the numbers of tenants, of which workloads."""
    entry, cells = study.strategies[strategy], [cell for cell in study.cells if cell.strategy == strategy]
    once = {(cell.replicas, cell.workload): tenant_workloads(study.spec_of(cell)) for cell in cells}
    never = {key for key, workloads in once.items() if node.infeasible(entry, key[0], workloads) is not None}
    untried = {key for key, workloads in once.items() if node.not_attempted(entry, workloads) is not None} - never
    found = []
    for words, keys in (("infeasible here", never), ("not measured", untried)):
        sizes: dict[int, list[str]] = {}
        for replicas, workload in sorted(keys):
            sizes.setdefault(replicas, []).append(workload)
        parts = []
        for of, group in groupby(sizes.items(), key=itemgetter(1)):
            numbers = [replicas for replicas, _ in group]
            is_all = all(set(of) == {workload for n, workload in once if n == size} for size in numbers)
            parts.append(", ".join(map(str, numbers)) + ("" if is_all else f" of {', '.join(of)}"))
        found += [f"{words}: {'; '.join(parts)}"] if parts else []
    return found


def planned(config: StudyConfig, results: Path, argv: Sequence[str]) -> str:
    """`plan` of what the command `argv` would do, as Snakemake itself sees it. Raises Refusal."""
    # What is stale only Snakemake knows: the same command, of everything in place of the plan.
    command = [sys.executable, "-m", "snakemake", *(word for word in argv if word != "plan"), "--summary"]
    asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        raise Refusal("failed: `snakemake --summary` with the same options fails; see the log")
    try:
        return plan(Study(config), results, pending(asked.stdout))
    except NodeError as error:
        raise Refusal(f"failed: {error}") from None


def plan(study: Study, results: Path, files: Mapping[str, Sequence[str]]) -> str:
    """The whole plan, for `snakemake plan`: the headline, and what each strategy changes on the node.

    `files` are those that Snakemake would make, by rule.
    """
    places = placement.of_run(study, results, placement.of_study(study, results))
    node = placement.nodes_of(study, results, places.devices if places else ())[0]
    cells = {cell_of(path) for path in files.get("run_cell", ())}
    if cells:
        jobs = {"calibrate": len(files.get("calibrate", ()))}
        lines = console.wrap_text(headline(study, run_record.read_run(results), cells, jobs, places))
        if places:
            lines += console.wrap_text(places.shares(cells), "  devices at the same time  ", "    ")
    else:
        made = ", ".join(f"{rule} {len(paths)}" for rule, paths in sorted(files.items()))
        lines = [f"no cell to measure; files to make: {made or 'none'}"]
    width = max(len(name) for name in study.strategies)
    changes: dict[str, list[str]] = {}
    for name in sorted({cell.strategy for cell in study.cells}, key=list(study.strategies).index):
        mine = [cell for cell in study.cells if cell.strategy == name]
        sizes = sorted({cell.replicas for cell in mine})
        without = _without_tenants(node, study, name)
        count = f"  {name:{width}}  {sum(cell in cells for cell in mine):4d} of {len(mine)} cells  "
        of_sizes = f"replicas {', '.join(map(str, sizes))}" + (f"  ({'; '.join(without)})" if without else "")
        lines += console.wrap_text(of_sizes, count, " " * len(count))
        changes.setdefault(node.plan(study.strategies[name]), []).append(name)
    swept: dict[str, list[float]] = {}
    for name, entry in study.config["workload_catalogue"].items():
        if (sweep := entry["sweep"]) is not None and name in study.calibrated():
            swept.setdefault(f"  {sweep['of']} by {sweep['by']}: ", []).append(sweep["value"])
    for sweep_of, values in swept.items():
        lines += console.wrap_text(", ".join(map(str, sorted(values))), sweep_of, "    ")
    for change, names in changes.items():
        lines += console.wrap_text(f"{', '.join(names)}: {change}", "  ", "    ")
    lines.append(f"  order: {study.order}; `snakemake restore` brings the node back at any time")
    return "\n".join(lines)


def progress(run: run_record.RunRecord, wanted: Spec, study: Study, where: str = "") -> str:
    """The cell's line on the terminal: which of how many, what and `where`, and how long the rest will take."""
    number, planned = run["done"], run["planned"]
    name = f"{wanted['strategy']['name']} × {wanted['replicas']}, {wanted['workload']['name']}"
    # The first cell is timed by what is known of earlier runs, the others by this run's pace.
    elapsed = time.time() - (run["first_cell_epoch_seconds"] or time.time())
    each = elapsed / (number - 1) if number > 1 else seconds_per_cell(study, run) / max(1, len(run.get("devices", [])))
    left = format_duration((planned - number + 1) * each)
    return f"cell {number} of {planned}: {name}, repeat {wanted['repeat']}{where} · about {left} left"


def seconds_per_cell(study: Study, run: run_record.RunRecord) -> float:
    """What a cell takes: its window and the mean overhead of these results' cells so far."""
    kind = NODE_KINDS[study.node_kind]
    overhead = run.get("overhead") or {"cells": 1, "seconds": kind.first_overhead_seconds}
    window_seconds = 0.0 if kind.is_virtual else float(study.config["window_seconds"])
    return window_seconds + overhead["seconds"] / overhead["cells"]
