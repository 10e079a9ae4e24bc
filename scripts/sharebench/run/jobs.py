"""The measuring jobs of the DAG: facts of the node, calibration, the strategy's gate, and the cell.

Each runs inside a run that owns the node (`sharebench.run.ownership`), writes its outputs atomically, and turns what
went wrong into one line.
"""

from __future__ import annotations

import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sharebench.cell.calibration import CalibrationError, alone, calibrated
from sharebench.cell.cell import Course, run_cell
from sharebench.cell.fault import FaultCourse
from sharebench.cell.queue import run_queue
from sharebench.core import console, run_record
from sharebench.core.files import Damaged, replace_atomically, write_json
from sharebench.gates.verdict import window_seconds
from sharebench.nodes import open_node
from sharebench.nodes.contract import NodeError, State, TenantUnreachable, Unrecoverable
from sharebench.nodes.node import Node
from sharebench.records import record
from sharebench.records.references import read_calibration, read_device
from sharebench.records.telemetry import to_csv
from sharebench.run import ownership
from sharebench.study.cells import Cell
from sharebench.study.study import Study

# Overhead of a cell, before any has been measured here.
FIRST_OVERHEAD_SECONDS = {"cpu": 1.5, "simulated": 0.2, "nvidia": 10.0, "kubernetes": 15.0}
# Failures with a line that says it all.
HARNESS_FAILURES = (NodeError, TenantUnreachable, OSError, record.RecordError, Damaged)


class JobFailed(Exception):
    """The job cannot be done; one line."""


def guarded(results: Path, job: Callable[[dict[str, Any]], None]) -> int:
    """Run a measuring job with the run record of its owner; returns the exit code.

    Harness failures are counted for the circuit breaker; an interrupt leaves no output.
    """
    console.accept_any_text()
    try:
        with ownership.interruptible():
            run = ownership.verify(results)
            try:
                job(run)
            except JobFailed:
                raise
            except Exception as failure:
                if not isinstance(failure, HARNESS_FAILURES):
                    # Unforeseen: the log gets all there is to know.
                    traceback.print_exc()
                line = f"{type(failure).__name__}: {failure}"
                ownership.report(results, line, is_final=isinstance(failure, Unrecoverable))
                raise JobFailed(str(failure) or type(failure).__name__) from failure
            ownership.report(results, None)
    except (JobFailed, ownership.OwnershipError, OSError) as failure:
        # Not even the run record can be written to a full disk: that OSError ends here, too.
        return console.failed(f"failed: {failure}")
    except ownership.Interrupted as signal:
        print(f"interrupted by {signal}", file=sys.stderr)
        return 130
    return 0


def node_of(study: Study, results: Path) -> Node:
    """The study's node; its state lives beside the results."""
    return open_node(study.node_kind, study.node_options(), run_record.state_folder(results) / "node")


def _provenance(run: Mapping[str, Any], environment: Mapping[str, Any], started: float) -> dict[str, Any]:
    return {
        "run_id": run["run_id"],
        "started_epoch_seconds": started,
        "python": environment.get("python", platform.python_version()),
        "platform": environment.get("platform", f"{platform.system()} {platform.machine()}"),
        "packages": environment.get("packages", {}),
        "git_commit": run["git_commit"],
        "git_dirty": run["git_dirty"],
    }


def _settings(study: Study, cell_folder: str) -> dict[str, Any]:
    return {"timeouts": study.config["timeouts"], "cell_folder": cell_folder}


def characterise_node(results: Path, out: Path) -> Callable[[dict[str, Any]], None]:
    """Job: the node's facts, idle power and roofs into nodes/device.json."""

    def job(run: dict[str, Any]) -> None:
        node = node_of(Study(run["config"]), results)
        write_json(out, {"node": node.facts()} | node.characterise())

    return job


def calibrate(
    results: Path, workload: str, spec: str, code: str, device: Path, out: Path
) -> Callable[[dict[str, Any]], None]:
    """Job: a short exclusive closed run of the workload; its capacity, output digest and work per iteration.

    What nodes/device.json (`device`) says of idle power and roofs is handed on, so that a cell has one reference file.

    Raises JobFailed when the workload does not even run alone.
    """

    def job(run: dict[str, Any]) -> None:
        study = Study(run["config"])
        started = time.time()
        cell = study.calibration_cell(workload)
        block = min(study.block(other) for other in study.cells)
        node = node_of(study, results)
        load = study.config["workload_catalogue"][workload]["load"]
        strategy = alone(study.strategies, study.config["strategies"], node, json.loads(spec)["workload"])
        where = "the exclusive device" if strategy.name == "exclusive" else f"one tenant's part under {strategy.name}"
        print(f"calibrating {workload} on {where}", flush=True)
        # What is done is in the spec; what the calibration depends on stays as it was.
        done = json.loads(study.under(spec, strategy.name))
        seconds = max(done["window_seconds"], study.config["window_seconds"])

        def measure(is_long: bool) -> dict[str, Any]:
            text = json.dumps(done | {"window_seconds": seconds} if is_long else done)
            return run_cell(node, strategy, text, block, _settings(study, cell.folder), {})[0]

        try:
            measured, taken = calibrated(workload, measure, load.get("rate_of_capacity") is not None)
        except CalibrationError as failure:
            raise JobFailed(str(failure)) from None
        known = read_device(device)
        write_json(
            out,
            {
                "workload": workload,
                "spec": spec,
                "code": code,
                "strategy": strategy.name,
                "switch": measured["switch"],
                **taken,
                "work": measured["tenants"][0]["work"],
                "roofs": known["roofs"],
                "idle_power_watts": known["idle_power_watts"],
                "node": measured["node"],
                "provenance": _provenance(run, measured["environment"], started),
            },
        )

    return job


def configure_node(results: Path, strategy: str, out: Path) -> Callable[[dict[str, Any]], None]:
    """Job: the gate of a strategy. Sets the state of its first feasible cell, so that a bad strategy fails once."""

    def job(run: dict[str, Any]) -> None:
        study = Study(run["config"])
        node = node_of(study, results)
        entry = study.strategies[strategy]
        cells = [cell for cell in study.cells if cell.strategy == strategy]
        reasons = {cell.replicas: node.infeasible(entry, cell.replicas) for cell in cells}
        began = time.monotonic()
        for cell in cells:
            if reasons[cell.replicas] is None:
                plot = study.plot(cell)
                node.ensure(State(entry, plot.replicas, plot.block))
                break
        write_json(
            out,
            {
                "strategy": strategy,
                "configure_seconds": time.monotonic() - began,
                "switch": node.switched,
                "changes": node.plan(entry),
                "infeasible": {str(n): reason for n, reason in sorted(reasons.items()) if reason is not None},
                "run_id": run["run_id"],
            },
        )

    return job


def measure_cell(
    results: Path, spec: str, code: str, calibrations: Sequence[Path], raw: Path, telemetry: Path
) -> Callable[[dict[str, Any]], None]:
    """Job: one cell into its raw.json and telemetry.csv; `calibrations` are the files of its tenants' workloads."""

    def job(run: dict[str, Any]) -> None:
        study = Study(run["config"])
        started = time.time()
        wanted = json.loads(spec)
        strategy = study.strategies[wanted["strategy"]["name"]]
        block = study.block(Cell(strategy.name, wanted["workload"]["name"], wanted["replicas"], wanted["repeat"]))
        print(progress(ownership.count_cell(results), wanted, study), flush=True)
        folder = str(raw.parent.relative_to(results))
        known = {calibration["workload"]: calibration for calibration in map(read_calibration, calibrations)}
        opened, settings = node_of(study, results), _settings(study, folder)
        if strategy.is_queue:
            measured, rows = run_queue(opened, strategy, spec, block, settings, known)
        else:
            course: type[Course] = FaultCourse if "fault" in wanted else Course
            if "prometheus" in wanted:
                # It is for such cells only.
                from sharebench.cell.prometheus.course import PrometheusCourse, settings_of

                course = PrometheusCourse
                settings |= settings_of(study.config, folder)
            measured, rows = run_cell(opened, strategy, spec, block, settings, known, course)
        ownership.verify(results)
        environment = measured.pop("environment")
        provenance = _provenance(run, environment, started)
        replace_atomically(telemetry, to_csv(rows))
        record.write(raw, measured | {"code": code, "provenance": provenance})
        if measured["window"] is not None:
            wall = 0.0 if study.node_kind == "simulated" else window_seconds(measured)
            ownership.add_overhead(results, time.time() - started - wall)

    return job


def progress(run: Mapping[str, Any], wanted: Mapping[str, Any], study: Study) -> str:
    """The cell's line on the terminal: which of how many, what, and how long the rest will take."""
    number, planned = run["done"], run["planned"]
    name = f"{wanted['strategy']['name']} × {wanted['replicas']}, {wanted['workload']['name']}"
    # The first cell is timed by what is known of earlier runs, the others by this run's pace.
    elapsed = time.time() - run["first_cell_epoch_seconds"]
    each = elapsed / (number - 1) if number > 1 else seconds_per_cell(study, run)
    left = duration((planned - number + 1) * each)
    return f"cell {number} of {planned}: {name}, repeat {wanted['repeat']} · about {left} left"


def wall_window_seconds(study: Study) -> float:
    """How long a window takes by the wall clock: no time on the simulator, whose time is virtual."""
    return 0.0 if study.node_kind == "simulated" else float(study.config["window_seconds"])


def seconds_per_cell(study: Study, run: Mapping[str, Any]) -> float:
    """What a cell takes: its window and the mean overhead of these results' cells so far."""
    overhead = run.get("overhead") or {"cells": 1, "seconds": FIRST_OVERHEAD_SECONDS[study.node_kind]}
    return float(wall_window_seconds(study) + overhead["seconds"] / overhead["cells"])


def duration(seconds: float) -> str:
    """A duration for people: `45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def restore(results: Path) -> Callable[[dict[str, Any]], None]:
    """Job: bring the node back to its original state, and say what was done."""

    def job(run: dict[str, Any]) -> None:
        restored = node_of(Study(run["config"]), results).restore()
        print("the node is back in its original state" if restored else "nothing to restore", flush=True)

    return job
