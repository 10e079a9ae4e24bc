"""Everything that is made from records takes what a record may hold: each null of its schema, each kind of node and
of tenant, each bad end."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unit import factories, measured
from unit.nullable import NULLABLE_KEYS, Key, with_all_null, with_null
from unit.studies import NO_SLO, QUESTION, W, study_with

from sharebench.core.files import read_json, write_json
from sharebench.model import capabilities, workload_modules
from sharebench.model.records.record import RecordError, read
from sharebench.read import aggregate, compare
from sharebench.read import text as publish
from sharebench.read.cells.gpu_columns import device_units
from sharebench.read.cells.rows import reduce_record
from sharebench.read.decide import decide
from sharebench.read.figures import compare as figure
from sharebench.read.figures import draw
from sharebench.read.figures.catalogue import ENTRIES
from sharebench.read.figures.style import theme
from sharebench.read.gates import gates
from sharebench.read.report import page
from sharebench.read.tables.cells import prometheus_rows, stage_rows
from sharebench.read.tables.checks import evidence_rows, gate_rows, outcome_rows, provenance
from sharebench.read.tables.isolation import victim_cases
from sharebench.read.tables.jobs import job_cell
from sharebench.read.tables.startup import cell_startups
from sharebench.study.study import Study

pytestmark = pytest.mark.thorough
Json = dict[str, Any]
PLAIN: Json = {"workloads": ["matmul"], "replicas": [1, 2], "repeats": 2, "null_cells": False, "window_seconds": 2}
SHARED: Json = PLAIN | {"strategies": ["exclusive", "time-slicing", "mps", "mig"]}
MISSING = re.compile(r".{0,40}\b(nan|NaN|NaT|inf|None(?![.:]| [a-z]))\b.{0,40}")
GPU: Json = {"node": "nvidia", "nvidia.python": sys.executable, "allow_faults": True}
HOST: Json = {"strategies": ["exclusive", "time-slicing", "mps"]}
SERVER: Json = {"kind": "http", "command": ["server", "{port}"], "request": {"path": "/"}, "ready": {"path": "/"}}
PROGRAM: Json = {"kind": "command", "command": ["program"], "port": 8000, "metrics": {"histogram": "seconds"}}


def program_changes(folder: Path) -> Json:
    return {f"{W}.server": SERVER, f"{W}.program": PROGRAM, "workloads": ["server", "program"]} | HOST


STUDIES: dict[str, Callable[[Path], Json]] = {
    "stand-in": lambda folder: SHARED | {"node": "cpu"},
    "GPU of this host": lambda folder: SHARED | GPU,
    "mock GPU in a cluster": lambda folder: SHARED | HOST | {"node": "kubernetes", "kubernetes.device": "cpu"},
    "GPU in a cluster": lambda folder: SHARED | {"node": "kubernetes", "kubernetes.access": "dra"},
    "simulated": lambda folder: SHARED | {"node": "simulated"},
    "programs": lambda folder: PLAIN | program_changes(folder) | {"node": "cpu"},
    "watched": lambda folder: (
        PLAIN | HOST | {"prometheus.url": "http://x", "prometheus.folder": str(folder), "window_seconds": 5}
    ),
    "jobs": lambda folder: PLAIN | {"workloads": ["batch-matmul"], "strategies": ["sequential", "time-slicing"]} | GPU,
    "faults and mixes": lambda folder: (
        PLAIN | HOST | GPU | {"interference": ["matmul", "detector"], "faults": ["killed"], "replicas": [2]}
    ),
}


@pytest.fixture(autouse=True)
def plant_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path)
    monkeypatch.setattr(workload_modules, "find_spec", lambda name: None)


def study(name: str, folder: Path, **changes: Any) -> Study:
    return study_with(STUDIES[name](folder) | changes)


def make_everything(root: Path, of: Study, change: Callable[[Json], Json], drawn: tuple[str, ...] = ()) -> pd.DataFrame:
    """Make everything from a data set, with some of its figures. Returns the summary."""
    folder = root / "results"
    run = measured.write_data_set(root, of, change)
    of.config["from"] = [str(root)]
    aggregate.write_tables(of, root, folder, dict(run))
    write_json(root / "manifest.json", read_json(folder / "manifest.json"))
    # The rest is made from tables.
    (root / "cells").rename(root / "cells-away")
    results = decide.read_results(root, folder)
    asked: dict[str, Any] = {"slo": NO_SLO | {"latency_ms": 8.0}, "tenants": 3, "isolation": "fault"}
    decide.write_answer(results, QUESTION | asked | {"price_per_hour": 2.0})  # type: ignore[arg-type]
    for name in drawn:
        # With the tables only that a figure declares.
        only = root / "drawn" / name
        for file in ("manifest.json", f"tables/{ENTRIES[name].table}.csv"):
            (only / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / file, only / file)
        draw.draw_figure(name, root, only, ("svg",), target=folder / "figures" / name)
    page.write_report(root, folder)
    explained(folder)
    return pd.read_csv(folder / "tables/summary.csv")


def taken(record: Json) -> None:
    """Make everything that needs one record only."""
    record["gates"] = gates.evaluate(record)
    json.dumps(record, allow_nan=False)
    for make in (reduce_record, job_cell):
        make(record)
    for rows in (cell_startups, prometheus_rows, victim_cases, stage_rows, gate_rows, evidence_rows, outcome_rows):
        list(rows(record))
    device_units(record), provenance(record)


def explained(folder: Path) -> None:
    """No text shows a value that is missing, and no row is blank without a reason."""
    for name in ("report.html", "tables/summary.md", "tables/advice.md"):
        text = re.sub(r"<(script|style).*?</\1>", "", (folder / name).read_text(), flags=re.S)
        shown = re.sub(r"<[^>]*>", " ", text)
        assert not (found := MISSING.search(shown)), (name, found)
    summary = pd.read_csv(folder / "tables/summary.csv")
    blank = summary[summary["latency_mean_seconds"].isna()]
    assert blank[["reason", "notes"]].notna().any(axis=1).all() or set(blank["status"]) <= {"infeasible"}, blank


@pytest.mark.parametrize("name", STUDIES)
def test_tables_are_made_from_whole_records(name: str, tmp_path: Path) -> None:
    of = study(name, tmp_path)
    summary = make_everything(tmp_path, of, lambda record: record)
    assert (summary["n"] > 0).all(), summary[["strategy", "workload", "replicas", "status", "reason", "notes"]]


# Keys that a cell with status `ok` must have.
NEVER_NULL = frozenset(
    {
        ("window",),
        ("fault",),
        ("tenants", "[]", "load"),
        ("tenants", "[]", "min_seconds"),
        ("tenants", "[]", "max_seconds"),
    }
)
DRAWN = ("latency", "progress")


# Keys without which no cell is valid.
FOR_VALIDITY = NEVER_NULL | {
    ("calibration",),
    ("calibration", "output_digest"),
    ("calibration", "workloads", "*", "output_digest"),
    ("tenants", "[]", "output_digest"),
    ("tenants", "[]", "output_digest", "[]"),
    ("prometheus",),
}


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("kept", [NEVER_NULL, FOR_VALIDITY], ids=["invalid", "valid"])
def test_tables_are_made_from_records_with_all_nulls(name: str, kept: frozenset[Key], tmp_path: Path) -> None:
    drawn = DRAWN if name in ("GPU of this host", "programs") else ()
    summary = make_everything(tmp_path, study(name, tmp_path), lambda record: with_all_null(record, but=kept), drawn)
    if kept is FOR_VALIDITY and name != "jobs":
        assert (summary["n"] > 0).any()


@pytest.mark.parametrize("name", STUDIES)
def test_each_null_alone_is_accepted(name: str, tmp_path: Path) -> None:
    """Each cell of a study lacks another value, until every value was missing once."""
    of = study(name, tmp_path, repeats=1)
    of.config["from"] = ["elsewhere"]
    paths = [path for path in NULLABLE_KEYS if path not in NEVER_NULL]
    for cell in of.cells:
        whole = measured.cell_record(of, cell)
        for path in paths:
            if (record := with_null(whole, path)) is not None:
                taken(record)


@pytest.mark.parametrize("path", sorted(NEVER_NULL - {("fault",)}))
def test_a_record_that_contradicts_itself_is_refused_in_one_line(path: Key, tmp_path: Path) -> None:
    of = study("stand-in", tmp_path)
    of.config["from"] = ["elsewhere"]
    record = with_null(measured.cell_record(of, of.cells[0]), path)
    assert record is not None
    write_json(tmp_path / "raw.json", record)
    with pytest.raises(RecordError, match=path[-1]) as refusal:
        read(tmp_path / "raw.json")
    assert "\n" not in str(refusal.value)


def ended(status: str, record: Json) -> Json:
    """The record, with this bad end if it has more than one tenant."""
    if record["cell"]["replicas"] == 1:
        return record
    bad = {"status": status, "reason": f"{status} on purpose"}
    if status == "infeasible":
        nothing = dict.fromkeys(("calibration", "window", "telemetry"))
        seen = {"prometheus": None} if "prometheus" in record else {}
        return record | bad | nothing | seen | {"tenants": [], "evidence": []}
    tenants = [factories.absent_tenant(each["index"], status, each["workload"]) for each in record["tenants"]]
    return record | bad | {"tenants": tenants}


def idle(record: Json) -> Json:
    """The record with a last tenant that finished nothing."""
    last = record["tenants"][-1]
    nothing = factories.tenant(last["index"], factories.back_to_back([]), workload=last["workload"])
    kept = {key: last[key] for key in ("measured_by", "generator", "scrape", "foreign_histogram") if key in last}
    if "foreign_histogram" in kept:
        kept |= {"foreign_histogram": None, "timeline": None}
    record["tenants"][-1] = nothing | kept
    return record


BAD = {
    "infeasible": ("watched", "jobs"),
    "crashed": ("stand-in", "programs"),
    "hung": ("jobs", "GPU in a cluster"),
    "oom": ("stand-in", "watched"),
    "idle": ("programs", "jobs", "GPU in a cluster"),
}


@pytest.mark.parametrize(("bad", "name"), [(bad, name) for bad, names in BAD.items() for name in names])
def test_failed_cells_are_reported(bad: str, name: str, tmp_path: Path) -> None:
    make_everything(tmp_path, study(name, tmp_path), idle if bad == "idle" else partial(ended, bad))


@pytest.mark.parametrize(
    "changes",
    [
        {"repeats": 1},
        {"baseline": "none"},
        {"strategies": ["exclusive"]},
        {"strategies": ["mps"], "baseline": "none", "replicas": [2], "repeats": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["stand-in", "GPU in a cluster"])
def test_small_studies_are_accepted(name: str, changes: Json, tmp_path: Path) -> None:
    make_everything(tmp_path, study(name, tmp_path, **changes), lambda record: record, DRAWN)


def test_data_sets_full_of_nulls_are_compared(tmp_path: Path) -> None:
    of = study("stand-in", tmp_path)
    make_everything(tmp_path, of, lambda record: with_all_null(record, but=FOR_VALIDITY))
    (tmp_path / "cells-away").rename(tmp_path / "cells")
    one, other = (compare.read_data(tmp_path, label) for label in ("one", "other"))
    table = compare.compare(one, other)
    assert not table.empty
    with theme():
        figure.draw(table, "one", "other", [one.facts["device"], other.facts["device"]])
    assert not MISSING.search(publish.compare_markdown(table, "one", "other", compare.changed_facts(one, other)))
