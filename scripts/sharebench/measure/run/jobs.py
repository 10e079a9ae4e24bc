"""The measuring jobs of the DAG: facts of the node, calibration, setting up a strategy, and the cell.

Each runs inside a run that owns the node (`ownership.py`), writes its outputs atomically, and reports a
failure in one line.
"""

import contextlib
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from sharebench.core import console, run_names
from sharebench.core.files import DamagedFile, read_json, replace_atomically, write_json
from sharebench.measure.cell import conformance
from sharebench.measure.cell.calibration import CalibrationError, measure_reference, pick_strategy, reference_answers
from sharebench.measure.cell.cell import CellProcedure, CellRun, MeasuredCell
from sharebench.measure.cell.fault import FaultProcedure
from sharebench.measure.cell.prometheus.procedure import PrometheusProcedure, watch_settings
from sharebench.measure.cell.queue import run_queue
from sharebench.measure.cell.sweep import measure_sweep
from sharebench.measure.nodes.contract import (
    NodeError,
    Settings,
    State,
    TenantUnreachable,
    UnrecoverableNodeError,
    WorkloadError,
)
from sharebench.measure.nodes.node import Node
from sharebench.measure.run import leftovers, ownership, placement
from sharebench.measure.run.plan import progress_line
from sharebench.model import run_record
from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.records import record
from sharebench.model.records.references import device_identity, part_for_device, read_calibration, read_device
from sharebench.model.records.telemetry import to_csv
from sharebench.model.records.types import Calibration, Record
from sharebench.model.spec import Spec
from sharebench.study.cells import Cell, cell_from_path
from sharebench.study.study import Study
from tenant.contract import Environment

# Foreseen failures, whose message is enough: any other exception gets a traceback in the log.
HARNESS_FAILURES = (NodeError, TenantUnreachable, OSError, record.RecordError, DamagedFile)


class JobFailed(Exception):
    """The job cannot be done; the message is one line."""


class Run:
    """The run that a job belongs to, from the run record: its study, its node and its results folder."""

    def __init__(self, results: Path, record: run_record.RunRecord) -> None:
        self.results, self.record = results, record
        self.started_epoch_seconds = time.time()
        self._unlock = contextlib.ExitStack()
        self.output: Path | None = None
        """The job's first output, which is another one for every job but a retry."""
        self.devices = record.get("devices", [])
        """The devices of a study on several; empty on one device."""
        number = os.environ.get(run_names.DEVICE_VARIABLE)
        self.number = None if number is None else int(number)
        """Index in `devices` of the job's device; None on one device, and for a job that concerns all devices."""

    def use_device(self, number: int) -> None:
        """Use one of several devices, on its cores, for the job and all that it starts. Raises OwnershipError."""
        entry = self.devices[number]
        if entry["down"]:
            raise ownership.OwnershipError(f"not tried, device {entry['number']} is down: {entry['down']}")
        self.number = number
        os.environ[run_names.DEVICE_VARIABLE] = str(number)
        if entry["cores"] is not None:
            os.sched_setaffinity(0, entry["cores"])
        self.lock(entry)

    def lock(self, device: run_record.DeviceEntry | None = None) -> None:
        """Let no other job use the node, or that one of several devices, until this one ends; waits for one that does.

        Raises OwnershipError.
        """
        line = "another job uses this device: waiting for its end"
        path = placement.node_folder(self.results, device) / "job.lock"
        if (lock := ownership.acquire(path, partial(print, line, flush=True))) is not None:
            self._unlock.callback(lock.close)
        self.started_epoch_seconds = time.time()

    def unlock(self) -> None:
        self._unlock.close()

    @property
    def is_for_all_devices(self) -> bool:
        return bool(self.devices) and self.number is None

    def run_on_each_device(self, out: Path) -> None:
        """Run this job on each device, in a process for each; the first output gets the other devices' outputs too.

        A device on which the job fails is left out. Raises JobFailed when it fails on all.
        """
        parts = [out.with_name(f".{out.stem}-{number}.json") for number in range(len(self.devices))]
        processes = []
        try:
            for number, part in enumerate(parts):
                argv = [str(part) if Path(word) == out else word for word in sys.argv]
                device = {run_names.DEVICE_VARIABLE: str(number)}
                processes.append(subprocess.Popen([sys.executable, *argv], env=os.environ | device))
            codes = [process.wait() for process in processes]
            outputs = [read_json(part) for code, part in zip(codes, parts, strict=True) if not code]
        finally:
            for process in processes:
                process.terminate()
                process.wait()
            for part in parts:
                part.unlink(missing_ok=True)
        if not outputs:
            raise JobFailed("it failed on every device; see the log")
        write_json(out, outputs[0] | {"others": {device_identity(each["node"]): each for each in outputs[1:]}})

    @cached_property
    def study(self) -> Study:
        return Study(self.record["config"])

    @cached_property
    def node(self) -> Node:
        """The study's node, or the node of the job's device."""
        return placement.open_nodes(self.study, self.results, self.devices)[self.number or 0]

    def provenance(self) -> dict[str, Any]:
        """The run and the commit that wrote a file, for its `provenance`."""
        return {
            "run_id": self.record["run_id"],
            "started_epoch_seconds": self.started_epoch_seconds,
            "git_commit": self.record["git_commit"],
            "git_dirty": self.record["git_dirty"],
        }


def failure_text(failure: BaseException) -> str:
    """The failure's message; when cleaning up failed too, the original failure comes first."""
    text, before = str(failure) or type(failure).__name__, failure.__context__
    is_after = isinstance(before, NodeError | TenantUnreachable) and not failure.__suppress_context__
    return f"{failure_text(before)}; then {text}" if before is not None and is_after else text


@contextlib.contextmanager
def measuring_job(results: Path) -> Iterator[Run]:
    """A measuring job of the run that owns `results`; a failure ends the process with one line.

    Harness failures count for the circuit breaker; an interrupt leaves no output. Raises SystemExit.
    """
    console.accept_any_text()
    try:
        with ownership.interruptible():
            run = Run(results, ownership.verify(results))
            leftovers.end_strays(run.record["pid"])
            try:
                if run.number is not None:
                    run.use_device(run.number)
                elif not run.devices:
                    run.lock()
                yield run
            # A job that lost the results to another run must not write into that run's record.
            except (JobFailed, ownership.OwnershipError):
                raise
            except Exception as failure:
                if not isinstance(failure, HARNESS_FAILURES):
                    traceback.print_exc()
                line = f"{type(failure).__name__}: {failure_text(failure)}"
                if not isinstance(failure, WorkloadError):
                    is_final = isinstance(failure, UnrecoverableNodeError)
                    ownership.record_outcome(results, line, str(run.output), is_final, run.number)
                raise JobFailed(failure_text(failure)) from failure
            finally:
                run.unlock()
            ownership.record_outcome(results, None, number=run.number)
    except (JobFailed, ownership.OwnershipError, DamagedFile, OSError) as failure:
        # On a full disk not even the run record can be written: that OSError ends here, too.
        sys.exit(console.report_failure(f"failed: {failure}"))
    except ownership.Interrupted as signal:
        print(f"interrupted by {signal}", file=sys.stderr)
        sys.exit(130)


def _provenance(run: Run, environment: Environment | None) -> dict[str, Any]:
    here = f"{platform.system()} {platform.machine()}"
    return run.provenance() | (environment or Environment(python=platform.python_version(), platform=here, packages={}))


def _settings(study: Study, cell_folder: str) -> Settings:
    return {"timeouts": study.config["timeouts"], "cell_folder": cell_folder}


def characterise_node(run: Run, out: Path) -> None:
    """Write the node's facts, its idle power and its peaks to `out` (nodes/device.json)."""
    run.output = out
    if run.is_for_all_devices:
        run.run_on_each_device(out)
        return
    write_json(out, {"node": run.node.facts()} | run.node.characterise())


def calibrate(run: Run, workload: str, code: str, device: Path, out: Path) -> None:
    """Run the workload alone for a short closed loop: its capacity, output digest and work per iteration.

    `device` is nodes/device.json; its idle power and peaks are copied to `out`, so that a cell has one reference file.
    On several devices `out` holds the results of all. Raises JobFailed when the workload does not run alone.
    """
    run.output = out
    if run.is_for_all_devices:
        run.run_on_each_device(out)
        return
    study, node = run.study, run.node
    cell = study.calibration_cell(workload)
    block = min(study.block(other) for other in study.cells)
    spec = study.calibration_spec(workload)
    strategy = pick_strategy(study.strategies, study.config["strategies"], node, spec.workloads[0])
    where = "the exclusive device" if strategy.name == "exclusive" else f"one tenant's part under {strategy.name}"
    # `spec` decides when a calibration is stale, `own` is what runs.
    own = spec.changed(strategy=strategy.for_tenants(1))
    long_seconds = max(own.window_seconds, study.config["window_seconds"])

    def measure(is_long: bool) -> MeasuredCell:
        run_spec = own.changed(window_seconds=long_seconds) if is_long else own
        return CellRun(node, strategy, run_spec, block, _settings(study, cell.folder), {}).measure()[0]

    try:
        print(f"calibrating {workload} on {where}{device_suffix(run)}", flush=True)
        measured, taken = measure_reference(workload, measure)
        answers = reference_answers(own.workloads[0], measured["tenants"][0])
    except CalibrationError as failure:
        raise JobFailed(str(failure)) from None
    facts = part_for_device(read_device(device), node.identity)
    write_json(
        out,
        {
            "workload": workload,
            "spec": spec.text,
            "code": code,
            "strategy": strategy.name,
            "switch": measured["switch"],
            **taken,
            "answers": answers,
            "work": measured["tenants"][0]["work"],
            "roofs": facts["roofs"],
            "idle_power_watts": facts["idle_power_watts"],
            "node": measured["node"],
            "provenance": _provenance(run, measured["environment"]),
        },
    )


def configure_node(run: Run, strategy: str, out: Path) -> None:
    """Set the state of the strategy's first feasible cell, so that a strategy that cannot be set up fails once.

    When the device for that is down, no state is set: each cell sets the state that it needs on its own device.
    """
    run.output = out
    is_down = False
    if run.devices:
        number = placement.setup_device_number(run.study, strategy, run.devices)
        is_down = run.devices[number]["down"] is not None
        alive = (other for other, entry in enumerate(run.devices) if entry["down"] is None)
        run.use_device(next(alive, number) if is_down else number)
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


def measure_cells(run: Run, raw: list[str], code: str, calibrations: list[Path]) -> None:
    """Measure the cells with these records: one, or those of a sweep's loads, with one start of their tenants.

    `calibrations` are the files of the tenants' workloads. Records are written when all cells are measured.
    """
    study = run.study
    cells = study.in_order(map(cell_from_path, raw))
    specs = list(map(study.spec, cells))
    run.output = run.results / cells[0].raw
    if run.devices:
        run.use_device(run.record["placement"][placement.placement_key(study, cells[0])])
    identity = run.node.identity
    on_this_device = [part_for_device(read_calibration(path), identity) for path in calibrations]
    references = {calibration["workload"]: calibration for calibration in on_this_device}
    if any(device_identity(each["node"]) != identity for each in on_this_device):
        # A device that the config has got since then takes the calibration of the first.
        facts = part_for_device(read_device(run.results / "nodes/device.json"), identity)
        if run.devices and device_identity(facts["node"]) == identity:
            raise JobFailed("a calibration failed on this device; see logs/calibration")
    began: list[float] = []

    def begin(spec: Spec) -> None:
        began.append(time.time() if began else run.started_epoch_seconds)
        print(progress_line(ownership.count_cell(run.results), spec, study, device_suffix(run)), flush=True)

    if study.strategies[cells[0].strategy].is_queue:
        begin(specs[0])
        queue = run.node, study.strategies[cells[0].strategy], specs[0], study.block(cells[0])
        measured = [run_queue(*queue, _settings(study, cells[0].folder), references)]
    else:
        runs = [_cell_run(run, cell, spec, references) for cell, spec in zip(cells, specs, strict=True)]
        measured = measure_sweep(runs, lambda each: begin(each.spec))
    ownership.verify(run.results)
    for cell, (result, rows), started_epoch_seconds in zip(cells, measured, began, strict=True):
        kept = {key: value for key, value in result.items() if key != "environment"}
        provenance = _provenance(run, result["environment"]) | {"started_epoch_seconds": started_epoch_seconds}
        replace_atomically(run.results / cell.folder / "telemetry.csv", to_csv(rows))
        record.write(run.results / cell.raw, cast(Record, kept | {"code": code, "provenance": provenance}))
    if windows := [record.window_seconds(result) for result, _ in measured if result["window"] is not None]:
        wall = 0.0 if NODE_KINDS[study.node_kind].is_virtual else sum(windows)
        ownership.add_overhead(run.results, time.time() - run.started_epoch_seconds - wall, len(windows))


def _cell_run(run: Run, cell: Cell, spec: Spec, references: Mapping[str, Calibration]) -> CellRun:
    study, settings = run.study, _settings(run.study, cell.folder)
    procedure: type[CellProcedure] = FaultProcedure if spec.fault else CellProcedure
    if procedure is CellProcedure and spec.workloads[0].module == conformance.MODULE:
        procedure = conformance.ConformanceProcedure
    if spec.prometheus:
        procedure = PrometheusProcedure
        settings = {**settings, **watch_settings(study.config["prometheus"], cell.folder)}
    strategy = study.strategies[cell.strategy]
    return CellRun(run.node, strategy, spec, study.block(cell), settings, references, procedure)


def restore(run: Run) -> None:
    """Restore every node of the run to its saved state, and print whether anything changed."""
    for device in run.devices:
        run.lock(device)
    restored = any([node.restore() for node in placement.open_nodes(run.study, run.results, run.devices)])
    print("the node is back in its original state" if restored else "nothing to restore", flush=True)


def device_suffix(run: Run) -> str:
    """The device of a job for its line on the terminal; empty on one device."""
    return "" if run.number is None else f", on device {run.devices[run.number]['number']}"
