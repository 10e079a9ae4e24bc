"""The plan of a run: its first line, the whole plan, and the progress line of each cell."""

import csv
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import dropwhile, groupby
from operator import itemgetter
from pathlib import Path

from sharebench.core import console
from sharebench.core.console import format_count, format_duration
from sharebench.core.files import REPOSITORY, Refusal
from sharebench.measure.nodes.node import Node
from sharebench.measure.run import placement
from sharebench.measure.run.placement import Placement, cells_by_device
from sharebench.measure.run.progress import seconds_after
from sharebench.model import run_record
from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.config import programs
from sharebench.model.spec import Spec
from sharebench.study.cells import Cell, cell_from_path
from sharebench.study.study import Study
from sharebench.study.wrong_answers import wrong_answer_lines


def count_switches(study: Study, cells: Collection[Cell], places: Placement | None = None) -> int:
    """How often the node changes state while these cells run in order: once for each sequence of equal plots."""
    ordered = [cell for cell in study.cells if cell in cells]
    by_device = cells_by_device(ordered, places)
    return sum(1 for device_cells in by_device.values() for _ in groupby(device_cells, key=study.plot))


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
    longest = max(map(len, cells_by_device(cells, places).values()))
    left = format_duration((longest + jobs.get("calibrate", 0)) * seconds_per_cell(study, run))
    devices = f", {format_count(len(places.devices), 'device', 'devices at once')}" if places else ""
    return (
        f"{len(cells)} of {len(study.cells)} cells to measure on node {study.node_kind}{devices}: {parts}; "
        f"{format_count(count_switches(study, cells, places), 'node switch', 'node switches')}; about {left}"
    )


def remarks(study: Study) -> list[str]:
    """Lines on what the config may mean otherwise."""
    catalogue = study.config["workload_catalogue"]
    names = [name for name in study.calibrated_workloads() if name in catalogue]
    lines = (line for name in names for line in programs.remarks(f"workload_catalogue.{name}", catalogue[name]))
    return [part for line in lines for part in console.wrap_text(f"note: {line}")]


def pending_files(summary: str) -> dict[str, list[str]]:
    """The files that Snakemake would build, by rule, from the output of `snakemake --summary`."""
    lines = dropwhile(lambda line: not line.startswith("output_file\t"), summary.splitlines())
    rows = csv.DictReader(lines, delimiter="\t")
    files: dict[str, list[str]] = {}
    for row in rows:
        if row["plan"] == "update pending":
            files.setdefault(row["rule"], []).append(row["output_file"])
    return files


def _unmeasured_parts(node: Node, study: Study, strategy: str) -> list[str]:
    """The strategy's cells that start no tenant, as text: the reason, the numbers of tenants and the workloads."""
    entry, cells = study.strategies[strategy], [cell for cell in study.cells if cell.strategy == strategy]
    combinations = {(cell.replicas, cell.workload): study.spec(cell).workloads for cell in cells}
    infeasible = {key for key, loads in combinations.items() if node.infeasible(entry, key[0], loads) is not None}
    not_attempted = {key for key, loads in combinations.items() if node.not_attempted(entry, loads) is not None}
    texts = []
    for label, keys in (("infeasible here", infeasible), ("not measured", not_attempted - infeasible)):
        sizes: dict[int, list[str]] = {}
        for replicas, workload in sorted(keys):
            sizes.setdefault(replicas, []).append(workload)
        parts = []
        for names, group in groupby(sizes.items(), key=itemgetter(1)):
            numbers = [replicas for replicas, _ in group]
            is_all = all(set(names) == {workload for n, workload in combinations if n == size} for size in numbers)
            parts.append(", ".join(map(str, numbers)) + ("" if is_all else f" of {', '.join(names)}"))
        texts += [f"{label}: {'; '.join(parts)}"] if parts else []
    return texts


def show_plan(study: Study, words: Sequence[str]) -> str:
    """The plan of the study that `words` name to Snakemake, by its own account of what is stale. Raises Refusal."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(REPOSITORY / "Snakefile"), *words, "--summary"]
    summary = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if summary.returncode != 0:
        raise Refusal("no plan: `snakemake --summary` with the same options has failed")
    return plan(study, Path(study.config["results"]), pending_files(summary.stdout))


def plan(study: Study, results: Path, files: Mapping[str, Sequence[str]]) -> str:
    """The whole plan: the headline, and what each strategy changes on the node. Raises NodeError.

    `files` are those that Snakemake would build, by rule.
    """
    is_here = not study.config["measured_elsewhere"]
    places = placement.run_placement(study, results, placement.study_placement(study, results)) if is_here else None
    node = placement.open_nodes(study, results, places.devices if places else ())[0] if is_here else None
    outputs = [path for rule, paths in files.items() if rule.startswith("run_cell") for path in paths]
    cells = {cell_from_path(path) for path in outputs}
    if cells:
        jobs = {"calibrate": len(files.get("calibrate", ()))}
        lines = console.wrap_text(headline(study, run_record.last_run(results), cells, jobs, places))
        if places:
            lines += console.wrap_text(places.shares(cells), "  devices at the same time  ", "    ")
    else:
        counts = ", ".join(f"{rule} {len(paths)}" for rule, paths in sorted(files.items()))
        lines = [f"no cell to measure; files to make: {counts or 'none'}"]
    lines += remarks(study)
    width = max(len(name) for name in study.strategies)
    changes: dict[str, list[str]] = {}
    for name in sorted({cell.strategy for cell in study.cells}, key=list(study.strategies).index):
        strategy_cells = [cell for cell in study.cells if cell.strategy == name]
        sizes = sorted({cell.replicas for cell in strategy_cells})
        unmeasured = _unmeasured_parts(node, study, name) if node else []
        count = f"  {name:{width}}  {sum(cell in cells for cell in strategy_cells):4d} of {len(strategy_cells)} cells  "
        replicas = f"replicas {', '.join(map(str, sizes))}" + (f"  ({'; '.join(unmeasured)})" if unmeasured else "")
        lines += console.wrap_text(replicas, count, " " * len(count))
        if node:
            changes.setdefault(node.plan(study.strategies[name]), []).append(name)
    swept: dict[str, list[float]] = {}
    for name, entry in study.config["workload_catalogue"].items():
        if (sweep := entry.sweep) is not None and name in study.calibrated_workloads():
            swept.setdefault(f"  {sweep.of} by {sweep.by}: ", []).append(sweep.value)
    for label, values in swept.items():
        lines += console.wrap_text(", ".join(map(str, sorted(values))), label, "    ")
    for change, names in changes.items():
        lines += console.wrap_text(f"{', '.join(names)}: {change}", "  ", "    ")
    workloads = {each.name: each for cell in study.cells for each in study.spec(cell).workloads}
    for name, workload in workloads.items():
        if node and (added := node.additions(workload)) is not None:
            lines += console.wrap_text(f"{name}: {added}", "  ", "    ")
    if NODE_KINDS[study.node_kind].has_gpus:
        lines += [part for line in wrong_answer_lines(study) for part in console.wrap_text(line, "  ", "    ")]
    end = (
        "`sharebench restore` brings the node back at any time"
        if node
        else "for another host: whether it can do all of this is not known here"
    )
    lines.append(f"  order: {study.order}; {end}")
    return "\n".join(lines)


def progress_line(run: run_record.RunRecord, spec: Spec, study: Study, device_suffix: str = "") -> str:
    """The cell's line on the terminal: its number, its name and device, and an estimate of the run's time left."""
    number, at_once = run["done"], max(1, len(run.get("devices", [])))
    # A retry begins a cell once more.
    planned = max(number, run["planned"])
    name = f"{spec.strategy.name} × {spec.replicas}, {spec.workload.name}"
    # Before the first cell ends, the estimate comes from earlier runs; afterwards from this run's pace.
    elapsed = time.time() - (run["first_cell_epoch_seconds"] or time.time())
    pace = elapsed / (number - 1) if number > at_once else seconds_per_cell(study, run) / at_once
    left = format_duration((planned - number + 1) * pace + seconds_after(Path(run["results"]), run["jobs"]))
    return f"cell {number} of {planned}: {name}, repeat {spec.repeat}{device_suffix} · about {left} left"


def seconds_per_cell(study: Study, run: run_record.RunRecord) -> float:
    """Expected duration of a cell: its window and the mean overhead of the cells measured here so far.

    Before the first one, an overhead is expected of each start.
    """
    kind = NODE_KINDS[study.node_kind]
    starts = len({study.start_of(cell) for cell in study.cells})
    first = {"cells": len(study.cells), "seconds": starts * kind.first_overhead_seconds}
    overhead = run.get("overhead") or first
    window_seconds = 0.0 if kind.is_virtual else float(study.config["window_seconds"])
    return window_seconds + overhead["seconds"] / overhead["cells"]
