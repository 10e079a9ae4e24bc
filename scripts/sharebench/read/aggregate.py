"""From records to tables: check that all cells belong together, then write tables and the manifest."""

import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Set
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench.core.files import read_json, replace_atomically, write_json
from sharebench.datasets import dataset
from sharebench.model import run_record
from sharebench.model.records.references import device_name, read_device
from sharebench.model.records.types import Record
from sharebench.read import text
from sharebench.read.cells.metrics import study_kinds
from sharebench.read.cells.rows import reduce_record, split_by_workload
from sharebench.read.cells.slowdown import Baseline
from sharebench.read.checker import Checker, RecordsRefused, refusal_message
from sharebench.read.columns import TableRow, csv_text, table_frame
from sharebench.read.slo import limits_of
from sharebench.read.tables.cells import cells_table, prometheus_rows, stage_rows
from sharebench.read.tables.checks import COMMIT, LOCAL_CHANGES, UNKNOWN, evidence_rows, gate_rows, outcome_rows
from sharebench.read.tables.conformance import conformance_table, junit
from sharebench.read.tables.contrasts import contrasts_table
from sharebench.read.tables.devices import (
    closed_loop_workloads,
    device_remark,
    devices_table,
    pair_by_device,
    pair_jobs_by_device,
)
from sharebench.read.tables.isolation import VictimCase, isolation_table, victim_cases
from sharebench.read.tables.jobs import JobCell, job_cell, jobs_table
from sharebench.read.tables.registry import TABLES, table_names
from sharebench.read.tables.startup import Startup, Switches, cell_startups, startup_table
from sharebench.read.tables.summary import interference_table, summary_table
from sharebench.study.cells import Cell
from sharebench.study.public import public_command, public_config
from sharebench.study.study import Study

PACKAGES = ("snakemake", "numpy", "pandas", "matplotlib", "seaborn", "scipy", "prometheus-client")
ROWS = {"gates": gate_rows, "evidence": evidence_rows, "outcomes": outcome_rows, "prometheus": prometheus_rows}
"""Tables with what makes rows of each record."""
CONFOUNDED = "Each strategy was set up once, so differences between strategies are also differences in time."


def _manifest(checker: Checker, run: run_record.RunRecord) -> dict[str, Any]:
    study = checker.study
    return {
        "config": public_config(study.config),
        "node_kind": study.node_kind,
        "device_units": checker.units,
        "order": study.order,
        "requested": {key: study.config[key] for key in dataset.MATRIX_KEYS},
        "not_shown": run["not_shown"],
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in PACKAGES}},
        **_commit(checker, run),
        "argv": public_command(run["argv"], study.config),
        "run_id": run["run_id"],
        "provenance": checker.provenance,
        "created_epoch_seconds": run.get("created_epoch_seconds", time.time()),
    }


def _commit(checker: Checker, run: run_record.RunRecord) -> run_record.RunRecord:
    """The commit of the run that measured the study; of a joined study those of all records."""
    if not checker.study.config["measured_elsewhere"]:
        return {"git_commit": run["git_commit"], "git_dirty": run["git_dirty"]}
    measured_by = checker.provenance[COMMIT]
    commits = dict.fromkeys(each.removesuffix(LOCAL_CHANGES) for each in measured_by if not each.startswith(UNKNOWN))
    # Records of an archive of the code do not know whether it was changed.
    has_changes = any(each.endswith(LOCAL_CHANGES) for each in measured_by) or None
    return {"git_commit": ", ".join(commits) or None, "git_dirty": has_changes}


def aggregate(data: Path, results: Path, tabled: Path) -> None:
    """Write tables and manifest of the current run's study, then a marker, the only file in its folder.

    Raises RecordsRefused when the records do not belong together.
    """
    run = run_record.read_run(results)
    study = Study(run["config"])
    try:
        names = write_tables(study, data, results, run)
    except RecordsRefused:
        # Snakemake removes the tables of a job that fails, so that the report would be of none.
        (results / "report.html").unlink(missing_ok=True)
        raise
    # An earlier study in this folder may have had other optional tables.
    for name in TABLES.keys() - names:
        for leftover in (*results.glob(f"tables/{name}.*"), *results.glob(f"figures/{name}.*")):
            leftover.unlink(missing_ok=True)
    for outdated in (results / "partial", tabled.parent):
        shutil.rmtree(outdated, ignore_errors=True)
    tabled.parent.mkdir()
    tabled.touch()


def write_tables(study: Study, data: Path, results: Path, run: run_record.RunRecord) -> Set[str]:
    """Write `results`/tables and manifest.json from the records under `data`; `run` identifies their run.

    Returns the names of the tables. Raises RecordsRefused when the records do not belong together.
    """
    checker = Checker(study, data)
    tables = _build_tables(checker)
    refused = checker.refused | checker.mismatched()
    if refused:
        raise RecordsRefused(refusal_message(refused, results, measured_here=not study.config["from"]))
    devices = device_remark(tables["cells"]["device"].nunique())
    for line in (devices, checker.software_remark(), dataset.short_windows_note(study)):
        if line not in run["not_shown"]:
            run = run | {"not_shown": f"{run['not_shown']} {line}".strip()}
    _write(tables, checker, run, results / "tables", "")
    write_json(results / "manifest.json", _manifest(checker, run))
    return tables.keys()


def write_partial_tables(results: Path) -> str:
    """Write the cells that a failed run did measure to partial/. Returns a line about them, empty if there are none."""
    shutil.rmtree(results / "partial", ignore_errors=True)
    run = run_record.read_run(results)
    study = Study(run["config"])
    checker = Checker(study, results)
    tables = _build_tables(checker)
    sound = checker.sound_count
    if sound == 0 or checker.mismatched():
        return ""
    note = f"PARTIAL: {sound} of {len(study.cells)} cells. {dataset.short_windows_note(study)}".strip()
    _write(tables, checker, run, results / "partial", note)
    return f"{sound} of {len(study.cells)} cells are measured; their tables are in {results / 'partial'}"


def _build_tables(checker: Checker) -> dict[str, pd.DataFrame]:
    study = checker.study
    cells, by_tenants = [], []
    rows: defaultdict[str, list[TableRow]] = defaultdict(list)
    startups: list[Startup] = []
    victims: list[VictimCase] = []
    jobs: list[JobCell] = []
    switches = _switches(checker)
    slo = limits_of(study.config["slo"])
    kinds = study_kinds(study.config)
    conformance: list[Record] = []
    has = set(table_names(study.config))
    for record in checker.records(study.table_cells()):
        key = record["cell"]
        cell = Cell(key["strategy"], key["workload"], key["replicas"], key["repeat"])
        cells.append(reduce_record(record, limits=slo))
        startups += cell_startups(record)
        if "conformance" in has:
            conformance.append(record)
        switches.add(cell.strategy, record.get("switch"))
        for name, rows_of in ROWS.items():
            rows[name] += rows_of(record)
        if cell.workload in study.faults:
            victims += victim_cases(record)
        elif job := job_cell(record):
            jobs.append(job)
        if study.is_compared(cell):
            by_tenants += split_by_workload(record, cells[-1], slo)
            rows["stages"] += stage_rows(record)
    cells, by_tenants = (pair_by_device(some, study.baseline) for some in (cells, by_tenants))
    baseline = Baseline(cells, study.baseline)
    of_tenants = cells_table(cells, baseline, kinds)
    kinds.update(map(str, of_tenants))
    compared = filter(study.is_compared, study.table_cells())
    expected = [(cell, name) for cell in compared for name in study.components(cell)]
    summary = summary_table(by_tenants, expected, baseline, kinds, study.config["price_per_hour"])
    tables = {
        "cells": of_tenants,
        "summary": summary,
        "contrasts": contrasts_table(by_tenants, study, baseline, kinds),
        "devices": devices_table(by_tenants, baseline, closed_loop_workloads(study.config)),
        "startup": startup_table(startups, switches, [(cell.strategy, name, cell.replicas) for cell, name in expected]),
        **{name: table_frame(name, rows[name]) for name in ("stages", *ROWS) if name in has},
    }
    if "interference" in has:
        tables["interference"] = interference_table(summary, study.config["interference"])
    if "jobs" in has:
        queues = [strategy.name for strategy in study.strategies.values() if strategy.is_queue]
        jobs = pair_jobs_by_device(jobs, cells, queues)
        tables["jobs"] = jobs_table(jobs, (cell for cell in study.table_cells() if study.is_job(cell.workload)), queues)
    if "conformance" in has:
        tables["conformance"] = conformance_table(conformance)
    if "isolation" in has:
        faulty = [(cell.strategy, cell.workload) for cell in study.table_cells() if cell.workload in study.faults]
        repeats = study.config["fault_repeats"]
        tables["isolation"] = isolation_table(victims, faulty, study.faults, repeats)
    return tables


def _switches(checker: Checker) -> Switches:
    """The switches of the node outside of cells: those in nodes/ and in calibrations."""
    switches = Switches()
    for strategy in dataset.set_up_strategies(checker.study):
        gate = checker.data / "nodes" / f"{strategy}.json"
        if gate.exists():
            switches.add_node_file(read_json(gate, "strategy", "configure_seconds"))
    for calibration in filter(None, checker.calibrations.values()):
        switches.add(calibration.get("strategy", ""), calibration.get("switch"))
    return switches


def _write(
    tables: dict[str, pd.DataFrame], checker: Checker, run: run_record.RunRecord, folder: Path, note: str
) -> None:
    study, node = checker.study, read_device(checker.data / "nodes" / "device.json")["node"]
    confounded = CONFOUNDED if study.order == "strategy" else ""
    caption = text.caption(
        device=device_name(node),
        window_seconds=study.config["window_seconds"],
        repeats=text.repeats_text(study.config),
        remarks=(note, run["not_shown"], confounded),
    )
    # A row that is copied elsewhere must still say that it does not come from a GPU.
    labelled = {name: tables[name].copy().assign(label=node["label"]) for name in ("cells", "summary")}
    for name, table in (tables | labelled).items():
        replace_atomically(folder / f"{name}.csv", csv_text(table))
    if "conformance" in tables:
        replace_atomically(folder / "conformance.xml", junit(tables["conformance"]))
    replace_atomically(folder / "summary.md", text.summary_markdown(tables["summary"], caption))
