"""From records to tables: check that all cells belong together, then write tables and the manifest."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench.analysis import text
from sharebench.analysis.calibrations import Calibration, Provenanced
from sharebench.analysis.cells.baseline import Baseline
from sharebench.analysis.cells.gpu_columns import device_units
from sharebench.analysis.cells.rows import by_workload, reduced
from sharebench.analysis.pairing import jobs_by_device, paired_by_device, remark
from sharebench.analysis.tables.cells import cells_table
from sharebench.analysis.tables.contrasts import contrasts_table
from sharebench.analysis.tables.devices import always_busy, devices_table
from sharebench.analysis.tables.interference import interference_table
from sharebench.analysis.tables.isolation import Case, cases, isolation_table
from sharebench.analysis.tables.jobs import JobCell, job_cell, jobs_table
from sharebench.analysis.tables.prometheus import prometheus_rows, prometheus_table
from sharebench.analysis.tables.stages import stage_rows, stages_table
from sharebench.analysis.tables.startup import Start, Switches, starts, startup_table
from sharebench.analysis.tables.summary import summary_table
from sharebench.core import prometheus_options, run_record
from sharebench.core.files import Damaged, read_json, replace_atomically, write_json
from sharebench.core.spec import has_jobs, reference
from sharebench.datasets import dataset
from sharebench.gates.judged import read
from sharebench.records.record import RecordError, RecordMismatch, check
from sharebench.records.references import read_device
from sharebench.records.tables import TableRow
from sharebench.records.types import NodeFacts, Record
from sharebench.study.cells import Cell
from sharebench.study.study import Study

PACKAGES = ("snakemake", "numpy", "pandas", "matplotlib", "seaborn", "scipy", "prometheus-client")
# The most files that a refusal names; the list that its command reads has all.
NAMED = 5
# Published in place of a cluster's own names.
NEUTRAL_CLUSTER = {"context": None, "node": "auto", "namespace": "sharebench", "priority_class": None}
REFERENCES = ("output_digest", "capacity_hz", "roofs", "idle_power_watts")
"""What cells use of a calibration."""
CONFOUNDED = "Each strategy was set up once, so differences between strategies are also differences in time."


class Refused(Exception):
    """The records must not be tabled together; the message says which, why, and the command that mends it."""


Identity = dict[str, str | None]
"""What must be the same in everything that a table comes from: the product, its driver, and the frameworks."""
Block = tuple[int, str]
"""A block, and a workload in it."""


def _identity(record: Provenanced | Record) -> Identity:
    packages = {f"package {name}": text for name, text in record["provenance"]["packages"].items()}
    return {"product": record["node"]["product"], "driver": record["node"]["details"].get("driver"), **packages}


class Checker:
    """Reads calibrations at once and records one by one, and collects why some of them are refused."""

    def __init__(self, study: Study, data: Path) -> None:
        self.study = study
        self.data = data
        self.sound = 0
        self.units: int | None = None
        """Of the device, as far as the sound records tell."""
        self.refused: dict[Path, str] = {}
        self.identities: dict[Path, tuple[float, Identity]] = {}
        """By file: when it was started, and its identity."""
        self.devices: dict[Path, tuple[list[Block], str]] = {}
        """By file: the blocks that it belongs to (none of a calibration), and its device."""
        self.elsewhere: dict[tuple[str, str], Mapping[str, object]] = {}
        """By workload and device what its first cell used, on devices that calibration/ is not of."""
        self.calibrations = {workload: self._calibration(workload) for workload in study.calibrated()}

    def _note(self, path: Path, record: Provenanced | Record) -> None:
        self.identities[path] = (record["provenance"]["started_epoch_seconds"], _identity(record))
        self.devices[path] = ([], record["node"]["device"])

    def _calibration(self, workload: str) -> Calibration | None:
        path = self.data / "calibration" / f"{workload}.json"
        try:
            calibration: Calibration = read_json(path)
            if not self.study.config["from"]:
                check(calibration, self.study.calibration_spec(workload), self.study.code(workload))
            self._note(path, calibration)
            if missing := [key for key in REFERENCES if key not in calibration]:
                raise KeyError(missing[0])
            return calibration
        except RecordMismatch as mismatch:
            self.refused[path] = str(mismatch)
        except Damaged as damage:
            self.refused[path] = str(damage).removeprefix(f"{path}: ")
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.refused[path] = f"not a calibration, missing or damaged ({type(error).__name__}: {error})"
        return None

    def _is_outdated(self, record: Record, workload: str) -> bool:
        """Whether a record used another reference of the workload than its calibration has now.

        On another device than the calibration's, than the first cell there used. False without a readable calibration.
        """
        calibration, device = record["calibration"], record["node"]["device"]
        used: dict[str, object] = {**(calibration or {}), **reference(calibration, workload)}
        current = self.calibrations[workload]
        if current is None:
            return False
        now: Mapping[str, object] = current
        if current["node"]["device"] != device:
            now = self.elsewhere.setdefault((workload, device), used)
        return any(now[key] != value for key, value in used.items() if key in now and value is not None)

    def records(self, cells: Iterable[Cell]) -> Iterator[Record]:
        """The sound records of these cells; why the others are refused goes into `refused`."""
        for cell in cells:
            path = self.data / cell.raw
            try:
                record = read(path)
                if not self.study.config["from"]:
                    check(record, self.study.spec(cell), self.study.code(cell.workload))
                self._note(path, record)
            except (RecordError, RecordMismatch) as error:
                self.refused[path] = str(error).removeprefix(f"{path}: ")
                continue
            components = self.study.components(cell)
            self.devices[path] = ([(record["cell"]["block"], name) for name in components], record["node"]["device"])
            if any(self._is_outdated(record, name) for name in components):
                self.refused[path] = (
                    "measured with another calibration than calibration/ holds now, or than its device's"
                )
                continue
            self.sound += 1
            self.units = max(self.units or 0, device_units(record) or 0) or None
            yield record

    def mixed(self) -> dict[Path, str]:
        """Why files cannot be in one table with the newest ones.

        Product, driver and frameworks must be those of the newest file that has any. The cells of one workload in one
        block must be on one device, since ratios are taken within these; different blocks and workloads may be on
        different devices of one product.
        """
        newest: Identity = {}
        devices: dict[Block, str] = {}
        for path in sorted(self.identities, key=lambda path: self.identities[path][0]):
            newest |= self.identities[path][1]
            blocks, device = self.devices[path]
            devices |= dict.fromkeys(blocks, device)
        of_cells = set(devices.values()) or {device for _, device in self.devices.values()}
        refused = {}
        for path, (_, identity) in self.identities.items():
            differences = [f"{key} {old} → {newest[key]}" for key, old in identity.items() if old != newest[key]]
            blocks, device = self.devices[path]
            others = [devices[block] for block in blocks if devices[block] != device]
            if others or device not in of_cells:
                differences.insert(0, f"device {device} → {(others or sorted(of_cells))[0]}")
            if differences:
                refused[path] = f"not the newest cell's: {', '.join(differences)}"
        device_file = self.data / "nodes" / "device.json"
        if newest and _node(self.data)["device"] not in of_cells:
            refused[device_file] = "not the newest cell's device"
        return refused


def refusal(refused: Mapping[Path, str], results: Path, measured_here: bool = True) -> str:
    """Which records are refused and why, and the command that re-measures exactly them, if they were measured here."""
    reasons = Counter(refused.values())
    lines = [f"refused: {len(refused)} record(s) cannot be in these tables:"]
    for reason, count in reasons.most_common(NAMED):
        first = next(path for path, why in refused.items() if why == reason)
        lines.append(f"  {first}{f' and {count - 1} more' if count > 1 else ''}: {reason}")
    if len(reasons) > NAMED:
        lines.append(f"  and {len(reasons) - NAMED} other reason(s)")
    if not measured_here:
        return "\n".join([*lines, "measure them again where this data set was made"])
    listed = run_record.state_folder(results).resolve() / "refused.txt"
    replace_atomically(listed, "".join(f"{path}\n" for path in refused))
    targets = " ".join(map(str, refused)) if len(refused) <= NAMED else f"$(cat {listed})"
    lines.append(f"measure them again: snakemake --forcerun {targets} (with the options of this run)")
    return "\n".join(lines)


def _node(data: Path) -> NodeFacts:
    node: NodeFacts = read_device(data / "nodes" / "device.json")["node"]
    return node


def published(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what is private to this host or cluster: paths, addresses, names, and which GPU it was."""
    nvidia = config["nvidia"]
    gpu = nvidia["gpu"] if nvidia["gpu"].isdecimal() else "0"
    workloads = {
        name: entry | {"command": entry["command"] and [dataset.portable(word) for word in entry["command"]]}
        for name, entry in config["workload_catalogue"].items()
    }
    cluster = config["kubernetes"] | NEUTRAL_CLUSTER | {"tolerations": []}
    prometheus = config["prometheus"]
    if prometheus_options.is_on(config):
        prometheus = prometheus | {"url": "http://prometheus", "folder": None, "labels": {}, "dcgm": None}
    return config | {
        "prometheus": prometheus,
        "workload_catalogue": workloads,
        "results": dataset.portable(config["results"]),
        "from": dataset.portable(config["from"]) if config["from"] else None,
        **{key: [dataset.portable(folder) for folder in config[key]] for key in ("datasets", "parts")},
        "nvidia": nvidia | {"python": dataset.portable(nvidia["python"]), "gpu": gpu},
        "kubernetes": cluster,
    }


def unnamed(argv: list[str], config: dict[str, Any]) -> list[str]:
    """The command without the names of a cluster's own and without the address of a Prometheus."""
    cluster, prometheus = config["kubernetes"], config["prometheus"]
    names = [cluster[key] for key, known in NEUTRAL_CLUSTER.items() if cluster[key] != known]
    names += [each[part] for each in cluster["tolerations"] for part in ("key", "value") if each[part] != "true"]
    names += [*prometheus["labels"].values(), *(prometheus["dcgm"] or {}).values()]
    names += [prometheus["url"], prometheus["folder"]]
    for name in sorted(filter(None, names), key=len, reverse=True):
        # A short name may be a part of other words.
        argv = [re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "…", word) for word in argv]
    return argv


def _manifest(study: Study, run: run_record.RunRecord, units: int | None) -> dict[str, Any]:
    return {
        "config": published(study.config),
        "node_kind": study.node_kind,
        "device_units": units,
        "order": study.order,
        "requested": {key: study.config[key] for key in dataset.MATRIX_KEYS},
        "not_shown": run["not_shown"],
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in PACKAGES}},
        "git_commit": run["git_commit"],
        "git_dirty": run["git_dirty"],
        "argv": unnamed(run["argv"], study.config),
        "run_id": run["run_id"],
        "created_epoch_seconds": run.get("created_epoch_seconds", time.time()),
    }


def aggregate(data: Path, results: Path, tabled: Path) -> None:
    """Write tables and manifest of the running run's study, and make the only file in its folder that `tabled` names.

    Raises Refused when the records do not belong together.
    """
    run = run_record.read_run(results)
    study = Study(run["config"])
    table(study, data, results, run)
    for name, is_there in _own_tables(study).items():
        # Those of another study in this folder.
        for leftover in () if is_there else (results / f"tables/{name}.csv", *results.glob(f"figures/{name}.*")):
            leftover.unlink(missing_ok=True)
    for outdated in (results / "partial", tabled.parent):
        shutil.rmtree(outdated, ignore_errors=True)
    tabled.parent.mkdir()
    tabled.touch()


def table(study: Study, data: Path, results: Path, run: run_record.RunRecord) -> None:
    """Write `results`/tables and manifest.json from the records under `data`; `run` says who did it and why.

    Raises Refused when the records do not belong together.
    """
    checker = Checker(study, data)
    tables = _tables(checker)
    refused = checker.refused | checker.mixed()
    if refused:
        raise Refused(refusal(refused, results, measured_here=not study.config["from"]))
    for line in (remark(tables["cells"]["device"].nunique()), dataset.short_windows_in_words(study)):
        if line not in run["not_shown"]:
            run = run | {"not_shown": f"{run['not_shown']} {line}".strip()}
    _write(tables, study, run, _node(data), results / "tables", "")
    write_json(results / "manifest.json", _manifest(study, run, checker.units))


def partial(results: Path) -> str:
    """Table the cells that a failed run did measure, under partial/; a line that says so, empty if there are none."""
    shutil.rmtree(results / "partial", ignore_errors=True)
    run = run_record.read_run(results)
    study = Study(run["config"])
    checker = Checker(study, results)
    tables = _tables(checker)
    sound = checker.sound
    if sound == 0 or checker.mixed():
        return ""
    note = f"PARTIAL: {sound} of {len(study.cells)} cells. {dataset.short_windows_in_words(study)}".strip()
    _write(tables, study, run, _node(results), results / "partial", note)
    return f"{sound} of {len(study.cells)} cells are measured; their tables are in {results / 'partial'}"


def _own_tables(study: Study) -> dict[str, bool]:
    """The tables that not every study has, each with a figure of the same name, and whether this study has them."""
    return {
        "interference": bool(study.interference),
        "jobs": has_jobs(study.config),
        "isolation": bool(study.faults),
        "prometheus": prometheus_options.is_on(study.config),
    }


def _tables(checker: Checker) -> dict[str, pd.DataFrame]:
    """The tables that come from the records, by name."""
    study = checker.study
    cells, by_tenants = [], []
    stages: list[TableRow] = []
    started: list[Start] = []
    victims: list[Case] = []
    jobs: list[JobCell] = []
    watched: list[TableRow] = []
    switches = _switches(checker)
    for record in checker.records(study.tabled()):
        key = record["cell"]
        cell = Cell(key["strategy"], key["workload"], key["replicas"], key["repeat"])
        cells.append(reduced(record))
        started += starts(record)
        switches.add(cell.strategy, record.get("switch"))
        watched += prometheus_rows(record)
        if cell.workload in study.faults:
            victims += cases(record)
        elif job := job_cell(record):
            jobs.append(job)
        if study.is_compared(cell):
            by_tenants += by_workload(record, cells[-1])
            stages += stage_rows(record)
    cells, by_tenants = (paired_by_device(some, study.baseline) for some in (cells, by_tenants))
    baseline = Baseline(cells, study.baseline)
    expected = [(cell, name) for cell in study.tabled() if study.is_compared(cell) for name in study.components(cell)]
    summary = summary_table(by_tenants, expected, baseline)
    tables = {
        "cells": cells_table(cells, baseline),
        "summary": summary,
        "contrasts": contrasts_table(by_tenants, study, baseline),
        "devices": devices_table(by_tenants, baseline, always_busy(study.config)),
        "stages": stages_table(stages),
        "startup": startup_table(started, switches, [(cell.strategy, name, cell.replicas) for cell, name in expected]),
    }
    if names := study.config["interference"]:
        tables["interference"] = interference_table(summary, names)
    if has_jobs(study.config):
        queues = [strategy.name for strategy in study.strategies.values() if strategy.is_queue]
        jobs = jobs_by_device(jobs, cells, queues)
        tables["jobs"] = jobs_table(jobs, (cell for cell in study.tabled() if study.is_job(cell.workload)), queues)
    if prometheus_options.is_on(study.config):
        tables["prometheus"] = prometheus_table(watched)
    if study.faults:
        faulty = [(cell.strategy, cell.workload) for cell in study.tabled() if cell.workload in study.faults]
        repeats = study.config["fault_repeats"]
        tables["isolation"] = isolation_table(victims, faulty, study.faults, repeats, baseline)
    return tables


def _switches(checker: Checker) -> Switches:
    """The switches of the node that no cell made: those of `nodes/` and of calibrations."""
    switches = Switches()
    for strategy in checker.study.strategies:
        gate = checker.data / "nodes" / f"{strategy}.json"
        if gate.exists():
            switches.add_gate(read_json(gate, "strategy", "configure_seconds"))
    for calibration in filter(None, checker.calibrations.values()):
        switches.add(calibration.get("strategy", ""), calibration.get("switch"))
    return switches


def _write(
    tables: dict[str, pd.DataFrame],
    study: Study,
    run: run_record.RunRecord,
    node: NodeFacts,
    folder: Path,
    note: str,
) -> None:
    confounded = CONFOUNDED if study.order == "strategy" else ""
    caption = text.caption(
        product=node["product"],
        label=node["label"],
        window_seconds=study.config["window_seconds"],
        repeats=study.config["repeats"],
        remarks=(note, run["not_shown"], confounded),
    )
    # A row that is copied elsewhere still says that it is not of a GPU.
    labelled = {name: tables[name].copy().assign(label=node["label"]) for name in ("cells", "summary")}
    for name, table in (tables | labelled).items():
        replace_atomically(folder / f"{name}.csv", table.to_csv(index=False))
    replace_atomically(folder / "summary.md", text.markdown(tables["summary"], caption))
    replace_atomically(folder / "summary.tex", text.latex(tables["summary"], caption))
