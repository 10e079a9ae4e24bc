"""The measuring jobs of the DAG: facts of the node, calibration, the strategy's gate, and the cell.

Each runs inside a run that owns the node (`sharebench.run.ownership`), writes its outputs atomically, and turns what
went wrong into one line.
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from sharebench.cell.calibration import CalibrationError, alone, calibrated
from sharebench.cell.cell import Course, MeasuredCell, run_cell
from sharebench.cell.fault import FaultCourse
from sharebench.cell.prometheus.course import PrometheusCourse, settings_of
from sharebench.cell.queue import run_queue
from sharebench.core import console, run_record
from sharebench.core.capabilities import NODE_KINDS
from sharebench.core.files import DamagedFile, read_json, replace_atomically, write_json
from sharebench.core.spec import parse_spec, tenant_workload
from sharebench.gates.verdict import window_seconds
from sharebench.nodes.contract import NodeError, Settings, State, TenantUnreachable, Unrecoverable
from sharebench.nodes.node import Node
from sharebench.records import record
from sharebench.records.references import identity, on_device, read_calibration, read_device
from sharebench.records.telemetry import to_csv
from sharebench.records.types import Record
from sharebench.run import ownership, placement
from sharebench.run.plan import progress
from sharebench.study.cells import Cell
from sharebench.study.study import Study
from tenant.contract import Environment

# Failures with a line that says it all.
HARNESS_FAILURES = (NodeError, TenantUnreachable, OSError, record.RecordError, DamagedFile)


class JobFailed(Exception):
    """The job cannot be done; one line."""


class Run:
    """The run that a job belongs to, as the run record says: its study, its node and where its results go."""

    def __init__(self, results: Path, record: run_record.RunRecord) -> None:
        self.results, self.record = results, record
        self.started_epoch_seconds = time.time()
        self.devices = record.get("devices", [])
        """Where the study is measured on several at the same time."""
        number = os.environ.get(run_record.DEVICE_VARIABLE)
        self.number = None if number is None else int(number)
        """The one of them that the job is about."""

    def take(self, number: int) -> None:
        """Be about one of several devices, on its cores, with all that is started. Raises OwnershipError."""
        entry = self.devices[number]
        if entry["down"]:
            raise ownership.OwnershipError(f"not tried, device {entry['number']} is down: {entry['down']}")
        self.number = number
        os.environ[run_record.DEVICE_VARIABLE] = str(number)
        if entry["cores"] is not None:
            os.sched_setaffinity(0, entry["cores"])

    @property
    def is_about_all(self) -> bool:
        """Whether the job is about several devices and has to be done on each."""
        return bool(self.devices) and self.number is None

    def on_each(self, out: Path) -> None:
        """Do this job on each of the devices, by a process for each; what the others made is in the file of the first.

        One on which it fails is left out. Raises JobFailed when it fails on all.
        """
        parts = [out.with_name(f".{out.stem}-{number}.json") for number in range(len(self.devices))]
        processes = []
        try:
            for number, part in enumerate(parts):
                words = [str(part) if Path(word) == out else word for word in sys.argv]
                about = {run_record.DEVICE_VARIABLE: str(number)}
                processes.append(subprocess.Popen([sys.executable, *words], env=os.environ | about))
            codes = [process.wait() for process in processes]
            made = [read_json(part) for code, part in zip(codes, parts, strict=True) if not code]
        finally:
            for process in processes:
                process.terminate()
                process.wait()
            for part in parts:
                part.unlink(missing_ok=True)
        if not made:
            raise JobFailed("it failed on every device; see the log")
        write_json(out, made[0] | {"others": {identity(each["node"]): each for each in made[1:]}})

    @cached_property
    def study(self) -> Study:
        return Study(self.record["config"])

    @cached_property
    def node(self) -> Node:
        """The study's node, or that of the device that the job is about."""
        return placement.nodes_of(self.study, self.results, self.devices)[self.number or 0]

    def origin(self) -> dict[str, Any]:
        """What every file of a job says of the run and the commit that made it."""
        return {
            "run_id": self.record["run_id"],
            "started_epoch_seconds": self.started_epoch_seconds,
            "git_commit": self.record["git_commit"],
            "git_dirty": self.record["git_dirty"],
        }


def in_words(failure: BaseException) -> str:
    """What failed; where cleaning up failed too, what had failed before it comes first."""
    text, before = str(failure) or type(failure).__name__, failure.__context__
    is_after = isinstance(before, NodeError | TenantUnreachable) and not failure.__suppress_context__
    return f"{in_words(before)}; then {text}" if before is not None and is_after else text


@contextlib.contextmanager
def of_run(results: Path) -> Iterator[Run]:
    """A measuring job of the run that owns `results`; a failure ends the process with one line.

    Harness failures count for the circuit breaker; an interrupt leaves no output. Raises SystemExit.
    """
    console.accept_any_text()
    try:
        with ownership.interruptible():
            run = Run(results, ownership.verify(results))
            try:
                if run.number is not None:
                    run.take(run.number)
                yield run
            # Whoever lost the results to another run has nothing to note in its record.
            except (JobFailed, ownership.OwnershipError):
                raise
            except Exception as failure:
                if not isinstance(failure, HARNESS_FAILURES):
                    # Unforeseen: the log gets all there is to know.
                    traceback.print_exc()
                line = f"{type(failure).__name__}: {in_words(failure)}"
                ownership.report(results, line, isinstance(failure, Unrecoverable), run.number)
                raise JobFailed(in_words(failure)) from failure
            ownership.report(results, None, number=run.number)
    except (JobFailed, ownership.OwnershipError, OSError) as failure:
        # On a full disk not even the run record can be written: that OSError ends here, too.
        sys.exit(console.report_failure(f"failed: {failure}"))
    except ownership.Interrupted as signal:
        print(f"interrupted by {signal}", file=sys.stderr)
        sys.exit(130)


def _provenance(run: Run, environment: Environment | None) -> dict[str, Any]:
    here = f"{platform.system()} {platform.machine()}"
    return run.origin() | (environment or Environment(python=platform.python_version(), platform=here, packages={}))


def _settings(study: Study, cell_folder: str) -> Settings:
    return {"timeouts": study.config["timeouts"], "cell_folder": cell_folder}


def characterise_node(run: Run, out: Path) -> None:
    """Write the node's facts, its idle power and its peaks to `out` (nodes/device.json)."""
    if run.is_about_all:
        run.on_each(out)
        return
    write_json(out, {"node": run.node.facts()} | run.node.characterise())


def calibrate(run: Run, workload: str, spec: str, code: str, device: Path, out: Path) -> None:
    """Run the workload alone for a short closed loop: its capacity, output digest and work per iteration.

    `device` is nodes/device.json; its idle power and peaks are copied to `out`, so that a cell has one reference file.
    On several devices the others' are in it too. Raises JobFailed when the workload does not even run alone.
    """
    if run.is_about_all:
        run.on_each(out)
        return
    study, node = run.study, run.node
    cell = study.calibration_cell(workload)
    block = min(study.block(other) for other in study.cells)
    here = node.identity
    load = study.config["workload_catalogue"][workload]["load"]
    strategy = alone(study.strategies, study.config["strategies"], node, tenant_workload(parse_spec(spec), 0))
    where = "the exclusive device" if strategy.name == "exclusive" else f"one tenant's part under {strategy.name}"
    # `spec` names what the calibration depends on, this one what is done.
    done = parse_spec(study.under(spec, strategy.name))
    seconds = max(done["window_seconds"], study.config["window_seconds"])

    def measure(is_long: bool) -> MeasuredCell:
        text = json.dumps(done | {"window_seconds": seconds} if is_long else done)
        return run_cell(node, strategy, text, block, _settings(study, cell.folder), {})[0]

    try:
        print(f"calibrating {workload} on {where}{of_device(run)}", flush=True)
        measured, taken = calibrated(workload, measure, load.get("rate_of_capacity") is not None)
    except CalibrationError as failure:
        raise JobFailed(str(failure)) from None
    facts = on_device(read_device(device), here)
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
            "roofs": facts["roofs"],
            "idle_power_watts": facts["idle_power_watts"],
            "node": measured["node"],
            "provenance": _provenance(run, measured["environment"]),
        },
    )


def configure_node(run: Run, strategy: str, out: Path) -> None:
    """Set the state of the strategy's first feasible cell, so that a strategy that cannot be set up fails once.

    Where the device for that is down, no state is set: the others measure, and each cell sets the state that it needs.
    """
    is_down = False
    if run.devices:
        number = placement.gate_number(run.study, strategy, run.devices)
        is_down = run.devices[number]["down"] is not None
        alive = (other for other, entry in enumerate(run.devices) if entry["down"] is None)
        run.take(next(alive, number) if is_down else number)
    study, node = run.study, run.node
    entry = study.strategies[strategy]
    cells = [cell for cell in study.cells if cell.strategy == strategy]
    reasons = {cell.replicas: node.infeasible(entry, cell.replicas) for cell in cells}
    began = time.monotonic()
    first = next((cell for cell in cells if reasons[cell.replicas] is None), None)
    if first is not None and not is_down:
        plot = study.plot(first)
        node.ensure(State(entry, plot.replicas, plot.block))
    write_json(
        out,
        {
            "strategy": strategy,
            "configure_seconds": time.monotonic() - began,
            "switch": node.switched,
            "changes": node.plan(entry),
            "infeasible": {str(n): reason for n, reason in sorted(reasons.items()) if reason is not None},
            "run_id": run.record["run_id"],
        },
    )


def measure_cell(run: Run, spec: str, code: str, calibrations: list[Path], raw: Path, telemetry: Path) -> None:
    """Measure one cell into raw.json and telemetry.csv; `calibrations` are the files of its tenants' workloads."""
    study, wanted = run.study, parse_spec(spec)
    strategy = study.strategies[wanted["strategy"]["name"]]
    cell = Cell(strategy.name, wanted["workload"]["name"], wanted["replicas"], wanted["repeat"])
    if run.devices:
        run.take(run.record["placement"][placement.key(study, cell)])
    node, block = run.node, study.block(cell)
    folder = str(raw.parent.relative_to(run.results))
    here = [on_device(read_calibration(path), node.identity) for path in calibrations]
    references = {found["workload"]: found for found in here}
    settings = _settings(study, folder)
    print(progress(ownership.count_cell(run.results), wanted, study, of_device(run)), flush=True)
    if strategy.is_queue:
        measured, rows = run_queue(node, strategy, spec, block, settings, references)
    else:
        course: type[Course] = FaultCourse if "fault" in wanted else Course
        if "prometheus" in wanted:
            course = PrometheusCourse
            settings = {**settings, **settings_of(study.config, folder)}
        measured, rows = run_cell(node, strategy, spec, block, settings, references, course)
    ownership.verify(run.results)
    kept = {key: value for key, value in measured.items() if key != "environment"}
    provenance = _provenance(run, measured["environment"])
    replace_atomically(telemetry, to_csv(rows))
    record.write(raw, cast(Record, kept | {"code": code, "provenance": provenance}))
    if measured["window"] is not None:
        wall = 0.0 if NODE_KINDS[study.node_kind].is_virtual else window_seconds(measured)
        ownership.add_overhead(run.results, time.time() - run.started_epoch_seconds - wall)


def restore(run: Run) -> None:
    """Bring the node back to its saved state, and print what was done."""
    restored = any([node.restore() for node in placement.nodes_of(run.study, run.results, run.devices)])
    print("the node is back in its original state" if restored else "nothing to restore", flush=True)


def of_device(run: Run) -> str:
    """What the terminal says of where a job is, if it may be on one of several devices."""
    return "" if run.number is None else f", on device {run.devices[run.number]['number']}"
