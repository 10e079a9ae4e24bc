"""Cost of the pipeline at 1 000 and 10 000 cells: `python benchmarks/scale.py`, about ten minutes.

Simulated cells of zero length show the workflow's own time; cells of the CPU stand-in show the time beyond warm-up and
window. Everything runs in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import yaml

from sharebench.core.files import write_json
from sharebench.datasets import dataset
from sharebench.measure.cell.cell import CellRun
from sharebench.measure.nodes.contract import Settings
from sharebench.measure.nodes.kinds import open_node
from sharebench.measure.run import lifecycle
from sharebench.measure.run.placement import open_nodes
from sharebench.model.config import load as configuration
from sharebench.model.records import record
from sharebench.model.records.types import Calibration, Conditions, Record
from sharebench.model.study_config import StudyConfig
from sharebench.read.figures.catalogue import names_for
from sharebench.read.tables.histograms import export_histograms
from sharebench.study.cells import Cell
from sharebench.study.study import Study

ROOT = Path(__file__).resolve().parents[1]
SNAKEMAKE = Path(sys.executable).with_name("snakemake")
SCRIPTS = ROOT / "scripts"
# Cells per repeat of `study_file`'s matrix.
PER_REPEAT = 40
DRY_RUN_CELLS = (1_000, 10_000)
RUN_CELLS = 1_000
DATA_CELLS = 10_000
STAND_IN = {"node": "cpu", "replicas": [1, 2, 4], "repeats": 2, "window_seconds": 1}
VIRTUAL_WINDOW_SECONDS = 5
# Also virtual, so it costs no time; calibration needs some iterations.
SHORT_WINDOW_SECONDS = 0.2


PROVENANCE = {
    "run_id": "bench",
    "started_epoch_seconds": 0.0,
    "python": "none",
    "platform": "simulated",
    "packages": {},
    "git_commit": None,
    "git_dirty": None,
}


class Run(NamedTuple):
    """A finished command: wall seconds and peak memory of its largest process."""

    seconds: float
    peak_gib: float


def study_file(folder: Path, cells: int, window_seconds: float) -> Path:
    """Write the config of a simulated study with this number of cells."""
    config = {
        "node": "simulated",
        "strategies": ["time-slicing", "mps", "mps-limited", "streams"],
        "replicas": [1, 2, 3, 4, 5],
        "workloads": ["yolos", "matmul"],
        "repeats": cells // PER_REPEAT,
        "window_seconds": window_seconds,
        "baseline": "none",
        "workload_catalogue": {name: {"min_window_seconds": 0} for name in ("yolos", "matmul")},
    }
    path = folder / f"study-{cells}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def run(folder: Path, command: Sequence[str | Path]) -> Run:
    """Run a command in the folder, with its output in a log there. Raises SystemExit if it fails."""
    with (folder / "bench.log").open("ab") as log:
        began = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], cwd=folder, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command} failed; see {folder / 'bench.log'}:\n{(folder / 'bench.log').read_text()[-2000:]}")
    return Run(time.monotonic() - began, usage.ru_maxrss / (1 << 20))


def snakemake(folder: Path, *arguments: str | Path) -> Run:
    """Run snakemake on this checkout with its results in the folder."""
    here: list[str | Path] = [
        "--snakefile",
        ROOT / "Snakefile",
        "--directory",
        folder,
        "--workflow-profile",
        ROOT / "profiles/default",
    ]
    return run(folder, [SNAKEMAKE, *here, *arguments])


def fabricate(job: tuple[StudyConfig, str, list[Cell]]) -> None:
    """Measure cells of a simulated study in this process, without Snakemake."""
    config, results, cells = job
    study, root = Study(config), Path(results)
    # One device per process, because all fabricate at the same time.
    node = open_node(study.node_kind, study.node_options(), root / f".node-{os.getpid()}")
    calibrations: dict[str, Calibration] = {
        workload: {
            "node": node.facts(),
            "workload": workload,
            "capacity_hz": 1.0,
            "output_digest": [1.0],
            "conditions": cast(Conditions, dict.fromkeys(Conditions.__annotations__)),
            "roofs": None,
            "idle_power_watts": None,
        }
        for workload in study.calibrated_workloads()
    }
    for cell in cells:
        strategy = study.strategies[cell.strategy]
        settings: Settings = {"timeouts": config["timeouts"], "cell_folder": cell.folder}
        measured, _ = CellRun(node, strategy, study.spec(cell), study.block(cell), settings, calibrations).measure()
        whole = {key: value for key, value in measured.items() if key != "environment"}
        whole |= {"code": study.code(cell.workload), "provenance": PROVENANCE}
        record.write(root / cell.raw, cast(Record, whole))


def large_data_set(folder: Path, cells: int) -> Path:
    """Fabricate a results root with this number of finished cells and their exports, as a run would leave it."""
    merged: dict[str, Any] = {}
    for name in ("strategies", "workloads", "config"):
        merged |= yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text())
    own = yaml.safe_load(study_file(folder, cells, VIRTUAL_WINDOW_SECONDS).read_text())
    for name, entry in own.pop("workload_catalogue").items():
        merged["workload_catalogue"][name] |= entry
    study = Study(configuration.load(merged | own))
    results = folder / dataset.results_root(study.config)
    claim = lifecycle.begin(study, results, {}, ["bench"], "")
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        parts = [[c for c in study.cells if c.strategy == s][k::10] for s in study.strategies for k in range(10)]
        list(pool.map(fabricate, [(study.config, str(results), part) for part in parts if part]))
    node = open_nodes(study, results)[0]
    write_json(results / "nodes/device.json", {"node": node.facts(), **node.characterise()})
    for workload in study.workloads():
        calibration = {
            "spec": study.calibration_spec(workload).text,
            "code": study.code(workload),
            "capacity_hz": 1.0,
            "roofs": None,
            "idle_power_watts": None,
            "output_digest": [1.0],
            "node": node.facts(),
            "provenance": PROVENANCE,
        }
        write_json(results / f"calibration/{workload}.json", calibration)
    for strategy, workload in study.strategy_workload_pairs():
        raw = [results / c.raw for c in study.cells if (c.strategy, c.workload) == (strategy, workload)]
        export_histograms(raw, results / f"cells/{strategy}/{workload}/histograms.csv")
    claim.release()
    return results


def stand_in_overheads(folder: Path) -> list[tuple[str, float]]:
    """Seconds beyond warm-up and window of each cell on the stand-in, from its start to that of the next cell."""
    study = folder / "stand-in.yaml"
    study.write_text(yaml.safe_dump(STAND_IN))
    snakemake(folder, "--configfile", study)
    records = [json.loads(path.read_text()) for path in folder.glob("results/cells/*/*/*/*/raw.json")]
    records.sort(key=lambda each: each["provenance"]["started_epoch_seconds"])
    overheads = []
    for one, following in pairwise(records):
        if one["status"] == "ok" and one["cell"]["strategy"] == following["cell"]["strategy"]:
            started = [each["provenance"]["started_epoch_seconds"] for each in (one, following)]
            warm_up = max(tenant["startup"]["warmup_seconds"] for tenant in one["tenants"])
            known = json.loads(one["spec"])["window_seconds"] + warm_up + one["timing"]["settle_seconds"]
            name = f"{one['cell']['strategy']} × {one['cell']['replicas']}"
            overheads.append((name, started[1] - started[0] - known))
    return overheads


def main() -> None:
    """Run all cases and print them as a table."""
    argparse.ArgumentParser(description=__doc__).parse_args()

    def report(what: str, value: str, limit: str = "") -> None:
        print(f"{what:58} {value:>22}  {limit}", flush=True)

    print(f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}, load average {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory(prefix="sharebench-scale-") as name:
        folder = Path(name)
        overheads = stand_in_overheads(folder)
        worst = max(overheads, key=lambda pair: pair[1])
        report("stand-in cell beyond warm-up and window, median", f"{median(o for _, o in overheads):.2f} s", "≤ 1.5 s")
        report(f"  the longest ({worst[0]})", f"{worst[1]:.2f} s", "≤ 1.5 s")
    for cells in DRY_RUN_CELLS:
        with tempfile.TemporaryDirectory(prefix="sharebench-scale-") as name:
            folder = Path(name)
            done = snakemake(
                folder, "--dry-run", "--quiet", "--configfile", study_file(folder, cells, SHORT_WINDOW_SECONDS)
            )
            report(f"dry run of {cells} cells", f"{done.seconds:.1f} s, {done.peak_gib:.2f} GiB")
    with tempfile.TemporaryDirectory(prefix="sharebench-scale-") as name:
        folder = Path(name)
        study = study_file(folder, RUN_CELLS, SHORT_WINDOW_SECONDS)
        done = snakemake(folder, "--configfile", study)
        report(f"run of {RUN_CELLS} zero-length cells", f"{done.seconds:.1f} s, {done.peak_gib:.2f} GiB", "≤ 120 s")
        done = snakemake(folder, "--configfile", study)
        report(f"nothing to do, {RUN_CELLS} cells", f"{done.seconds:.1f} s, {done.peak_gib:.2f} GiB", "≤ 2 s")
    with tempfile.TemporaryDirectory(prefix="sharebench-scale-") as name:
        folder = Path(name)
        results = large_data_set(folder, DATA_CELLS)
        there: list[str | Path] = ["--data", results, "--results", results]
        done = run(
            folder,
            [sys.executable, SCRIPTS / "job.py", "aggregate", *there, "--tabled", results / ".sharebench/tabled/x"],
        )
        report(f"aggregate {DATA_CELLS} cells", f"{done.seconds:.1f} s, {done.peak_gib:.2f} GiB", "≤ 30 s, 2 GiB")
        question = json.dumps(
            {
                "slo": {"latency_ms": 200.0, "ttft_ms": None, "itl_ms": None, "tpot_ms": None},
                "tenants": 4,
                "isolation": "none",
                "price_per_hour": 4.0,
                "margin_percent": 5.0,
                "deploy": "auto",
                "one_process": False,
            }
        )
        decided = results / ".sharebench/decided/x"
        answer = ["decide", *there, "--question", question, "--decided", decided, "--others"]
        done = run(folder, [sys.executable, SCRIPTS / "job.py", *answer])
        spent = f"{done.seconds:.1f} s, {done.peak_gib:.2f} GiB"
        report(f"advice from {DATA_CELLS} cells", spent, "≤ 60 s, 2 GiB, with aggregate")
        no_pairs = cast(StudyConfig, {"interference": [], "faults": [], "workloads": []})
        for figure in names_for(no_pairs, "simulated"):
            done = run(folder, [sys.executable, SCRIPTS / "job.py", "figures", *there, "--figures", figure])
            report(
                f"figure {figure}, {DATA_CELLS} cells",
                f"{done.seconds:.1f} s, {done.peak_gib:.2f} GiB",
                "≤ 30 s, 2 GiB",
            )
        done = run(folder, [sys.executable, SCRIPTS / "job.py", "report", *there])
        mib = (results / "report.html").stat().st_size / (1 << 20)
        size = f"{done.seconds:.1f} s, {done.peak_gib:.2f} GiB, {mib:.1f} MiB"
        report(f"report.html of {DATA_CELLS} cells", size, "≤ 60 s, 2 GiB, 5 MiB")


if __name__ == "__main__":
    main()
