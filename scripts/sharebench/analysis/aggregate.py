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

from sharebench.analysis import text as publish
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
from sharebench.records.types import Record
from sharebench.study.cells import Cell
from sharebench.study.study import Study

PACKAGES = ("snakemake", "numpy", "pandas", "matplotlib", "seaborn", "scipy", "prometheus-client")
# So many files are named in a refusal; the rest is counted, and all of them are in the list that the command reads.
NAMED = 5
# What a config that is published says in place of a cluster's own names.
CLUSTER_OF_NOBODY = {"context": None, "node": "auto", "namespace": "sharebench", "priority_class": None}
CONFOUNDED = "Each strategy was set up once, so differences between strategies are also differences in time."


class Refused(Exception):
    """The records must not be tabled together; the message says which, why, and the command that mends it."""


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same in everything that a table comes from: the product, its driver, and the frameworks."""
    packages = {f"package {name}": text for name, text in record["provenance"]["packages"].items()}
    return {"product": record["node"]["product"], "driver": record["node"]["details"].get("driver"), **packages}


class Checker:
    """Reads calibrations at once and records one by one, and gathers what is wrong with them."""

    def __init__(self, study: Study, data: Path) -> None:
        self.study = study
        self.data = data
        self.sound = 0
        self.units: int | None = None
        """Of the device, as far as the sound records tell."""
        self.odd: dict[Path, str] = {}
        self.identities: dict[Path, tuple[float, dict[str, Any]]] = {}
        self.devices: dict[Path, tuple[list[tuple[int, str]], str]] = {}
        """Of each file the device, and the block and each workload of its cell, nothing of a calibration."""
        self.elsewhere: dict[tuple[str, str], dict[str, Any]] = {}
        """By workload and device what its first cell used, on devices that calibration/ is not of."""
        self.calibrations = {workload: self._calibration(workload) for workload in study.calibrated()}

    def _check(self, path: Path, record: Mapping[str, Any], spec: str, workload: str) -> None:
        if not self.study.config["from"]:
            check(record, spec, self.study.code(workload))
        self.identities[path] = (record["provenance"]["started_epoch_seconds"], _identity(record))
        self.devices[path] = ([], record["node"]["device"])

    def _calibration(self, workload: str) -> dict[str, Any]:
        path = self.data / "calibration" / f"{workload}.json"
        try:
            calibration: dict[str, Any] = read_json(path)
            self._check(path, calibration, self.study.calibration_spec(workload), workload)
            kept = {key: calibration[key] for key in ("output_digest", "capacity_hz", "roofs", "idle_power_watts")}
            own = {"device": calibration["node"]["device"]}
            return kept | own | {"strategy": calibration.get("strategy"), "switch": calibration.get("switch")}
        except RecordMismatch as mismatch:
            self.odd[path] = str(mismatch)
        except Damaged as damage:
            self.odd[path] = str(damage).removeprefix(f"{path}: ")
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.odd[path] = f"not a calibration, missing or damaged ({type(error).__name__}: {error})"
        return {}

    def _is_outdated(self, record: Record, workload: str) -> bool:
        """Whether a record used something else of the workload than is known of it on that device.

        That is what its calibration says now, if that is readable; of another device, what the first cell there used.
        """
        calibration, device = record["calibration"], record["node"]["device"]
        used = {**(calibration or {}), **reference(calibration, workload)}
        now = self.calibrations[workload]
        if now and now["device"] != device:
            now = self.elsewhere.setdefault((workload, device), used)
        return bool(now) and any(now[key] != value for key, value in used.items() if key in now and value is not None)

    def records(self, cells: Iterable[Cell]) -> Iterator[Record]:
        """The sound records of these cells; what is wrong with the others is noted."""
        for cell in cells:
            path = self.data / cell.raw
            try:
                record = read(path)
                self._check(path, record, self.study.spec(cell), cell.workload)
            except (RecordError, RecordMismatch) as error:
                self.odd[path] = str(error).removeprefix(f"{path}: ")
                continue
            components = self.study.components(cell)
            self.devices[path] = ([(record["cell"]["block"], name) for name in components], record["node"]["device"])
            if any(self._is_outdated(record, name) for name in components):
                self.odd[path] = "measured with another calibration than calibration/ holds now, or than its device's"
                continue
            self.sound += 1
            self.units = max(self.units or 0, device_units(record) or 0) or None
            yield record

    def mixed(self) -> dict[Path, str]:
        """The files whose product, driver or frameworks are not those of the newest file that has any.

        And those of another device than the newest cell of their workload in their block: blocks, and workloads within
        a block, may be on different devices of one product, as every ratio is within these; but not the cells of one.
        """
        newest: dict[str, Any] = {}
        devices: dict[tuple[int, str], str] = {}
        for path in sorted(self.identities, key=lambda path: self.identities[path][0]):
            newest |= self.identities[path][1]
            places, device = self.devices[path]
            devices |= dict.fromkeys(places, device)
        of_cells = set(devices.values()) or {device for _, device in self.devices.values()}
        odd = {}
        for path, (_, identity) in self.identities.items():
            differences = [f"{key} {old} → {newest[key]}" for key, old in identity.items() if old != newest[key]]
            places, device = self.devices[path]
            others = [devices[place] for place in places if devices[place] != device]
            if others or device not in of_cells:
                differences.insert(0, f"device {device} → {(others or sorted(of_cells))[0]}")
            if differences:
                odd[path] = f"not the newest cell's: {', '.join(differences)}"
        device_file = self.data / "nodes" / "device.json"
        if newest and _node(self.data)["device"] not in of_cells:
            odd[device_file] = "not the newest cell's device"
        return odd


def refusal(odd: dict[Path, str], results: Path, measured_here: bool = True) -> str:
    """Which records are odd and why, and the command that measures exactly them again, if this is the place for it."""
    reasons = Counter(odd.values())
    lines = [f"refused: {len(odd)} record(s) cannot be in these tables:"]
    for reason, count in reasons.most_common(NAMED):
        first = next(path for path, why in odd.items() if why == reason)
        lines.append(f"  {first}{f' and {count - 1} more' if count > 1 else ''}: {reason}")
    if len(reasons) > NAMED:
        lines.append(f"  and {len(reasons) - NAMED} other reason(s)")
    if not measured_here:
        return "\n".join([*lines, "measure them again where this data set was made"])
    listed = run_record.state_folder(results).resolve() / "refused.txt"
    replace_atomically(listed, "".join(f"{path}\n" for path in odd))
    targets = " ".join(map(str, odd)) if len(odd) <= NAMED else f"$(cat {listed})"
    lines.append(f"measure them again: snakemake --forcerun {targets} (with the options of this run)")
    return "\n".join(lines)


def _node(data: Path) -> dict[str, Any]:
    node: dict[str, Any] = read_device(data / "nodes" / "device.json")["node"]
    return node


def published(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what is only this host's business: paths and addresses out of here, and which GPU it was."""
    nvidia = config["nvidia"]
    gpu = nvidia["gpu"] if nvidia["gpu"].isdecimal() else "0"
    workloads = {
        name: entry | {"command": entry["command"] and [dataset.portable(word) for word in entry["command"]]}
        for name, entry in config["workload_catalogue"].items()
    }
    cluster = config["kubernetes"] | CLUSTER_OF_NOBODY | {"tolerations": []}
    watching = config["prometheus"]
    if prometheus_options.is_on(config):
        watching = watching | {"url": "http://prometheus", "folder": None, "labels": {}, "dcgm": None}
    return config | {
        "prometheus": watching,
        "workload_catalogue": workloads,
        "results": dataset.portable(config["results"]),
        "from": dataset.portable(config["from"]) if config["from"] else None,
        **{key: [dataset.portable(folder) for folder in config[key]] for key in ("datasets", "parts")},
        "nvidia": nvidia | {"python": dataset.portable(nvidia["python"]), "gpu": gpu},
        "kubernetes": cluster,
    }


def unnamed(argv: list[str], config: dict[str, Any]) -> list[str]:
    """The command without the names of a cluster's own, and without the way to a Prometheus."""
    cluster, watching = config["kubernetes"], config["prometheus"]
    names = [cluster[key] for key, known in CLUSTER_OF_NOBODY.items() if cluster[key] != known]
    names += [each[part] for each in cluster["tolerations"] for part in ("key", "value") if each[part] != "true"]
    names += [*watching["labels"].values(), *(watching["dcgm"] or {}).values()]
    names += [watching["url"], watching["folder"]]
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
    odd = checker.odd | checker.mixed()
    if odd:
        raise Refused(refusal(odd, results, measured_here=not study.config["from"]))
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
    """Whether the study has those tables, with a figure of the same name, that not every study has."""
    return {
        "interference": bool(study.interference),
        "jobs": has_jobs(study.config),
        "isolation": bool(study.faults),
        "prometheus": prometheus_options.is_on(study.config),
    }


def _tables(checker: Checker) -> dict[str, pd.DataFrame]:
    """The tables that come from the records, by name."""
    study = checker.study
    cells, apart = [], []
    stages: list[dict[str, Any]] = []
    started: list[Start] = []
    victims: list[Case] = []
    jobs: list[JobCell] = []
    watched: list[dict[str, Any]] = []
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
            apart += by_workload(record, cells[-1])
            stages += stage_rows(record)
    cells, apart = (paired_by_device(some, study.baseline) for some in (cells, apart))
    baseline = Baseline(cells, study.baseline)
    expected = [(cell, name) for cell in study.tabled() if study.is_compared(cell) for name in study.components(cell)]
    summary = summary_table(apart, expected, baseline)
    tables = {
        "cells": cells_table(cells, baseline),
        "summary": summary,
        "contrasts": contrasts_table(apart, study, baseline),
        "devices": devices_table(apart, baseline, always_busy(study.config)),
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
    """The switches of the node that no cell made: while strategies were tried, and by calibrations."""
    switches = Switches()
    for strategy in checker.study.strategies:
        gate = checker.data / "nodes" / f"{strategy}.json"
        if gate.exists():
            switches.add_gate(read_json(gate, "strategy", "configure_seconds"))
    for calibration in filter(None, checker.calibrations.values()):
        switches.add(calibration["strategy"], calibration["switch"])
    return switches


def _write(
    tables: dict[str, pd.DataFrame],
    study: Study,
    run: run_record.RunRecord,
    node: dict[str, Any],
    folder: Path,
    note: str,
) -> None:
    confounded = CONFOUNDED if study.order == "strategy" else ""
    caption = publish.caption(
        node["product"],
        node["label"],
        study.config["window_seconds"],
        study.config["repeats"],
        note,
        run["not_shown"],
        confounded,
    )
    # A row that is copied elsewhere still says what it is not.
    labelled = {name: tables[name].copy().assign(label=node["label"]) for name in ("cells", "summary")}
    for name, table in (tables | labelled).items():
        replace_atomically(folder / f"{name}.csv", table.to_csv(index=False))
    replace_atomically(folder / "summary.md", publish.markdown(tables["summary"], caption))
    replace_atomically(folder / "summary.tex", publish.latex(tables["summary"], caption))
