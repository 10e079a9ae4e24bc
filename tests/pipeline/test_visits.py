"""Visits to a host with two devices add up to studies: each measures the next blocks, and their archives are merged."""

import json
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml
from gpu.part import is_measured
from pipeline.harness import REPOSITORY, TIMEOUT_SECONDS, Checkout
from tables import rows

from sharebench.study.cells import Cell

pytestmark = pytest.mark.thorough

STUDY = """
node: simulated
simulated: {devices: 2}
strategies: [mps]
null_cells: false
replicas: [2]
workloads: [alpha]
repeats: 3
window_seconds: 0.5
workload_catalogue:
  alpha:
    min_window_seconds: 0.1
    simulated: {serial_seconds: 0.002, parallel_sm_seconds: 0.5}
"""
CELLS = 2
"""Of a block."""

HELD = f"""
import os, sys, time
is_held = sys.argv[1] == "run_cell" and any("/r2/" in word for word in sys.argv)
until = time.monotonic() + {TIMEOUT_SECONDS}
while is_held and not os.path.exists("tmp/go") and time.monotonic() < until:
    time.sleep(0.02)
"""
"""Holds the cells of the second block, at most as long as a run may take."""


@pytest.fixture
def checkout(untouched: Checkout) -> Checkout:
    folder = untouched.root / "published" / "two"
    folder.mkdir(parents=True)
    (folder / "modules.yaml").write_text("- {module: C, study: core, overhead_seconds: 0.1}")
    (folder / "core.yaml").write_text(STUDY)
    (untouched.root / "tests" / "gpu").mkdir(parents=True)
    for name in ("visit.py", "part.py", "probes.py"):
        shutil.copy(REPOSITORY / "tests/gpu" / name, untouched.root / "tests/gpu")
    return untouched


def start(checkout: Checkout, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """`more` are variables of its environment."""
    command = [sys.executable, "tests/gpu/visit.py", "--edition", "published/two", *arguments]
    environment = checkout.environment(checkout.root / "tmp/visit.ledger") | more
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=checkout.root, env=environment, text=True, stdout=pipe, stderr=pipe)


def visit(checkout: Checkout, *arguments: str, code: int = 0, **more: str) -> str:
    """The output of a command that ends with this code."""
    run = start(checkout, *arguments, **more)
    out, errors = run.communicate(timeout=TIMEOUT_SECONDS)
    assert run.returncode == code, out + errors
    return out + errors


def leave(checkout: Checkout) -> Path:
    """Keep only this visit's archive, as on a host that is given back; returns it."""
    (made,) = (checkout.root / "results/two").glob("*.zip")
    kept = checkout.root / "tmp" / made.name
    shutil.move(made, kept)
    shutil.rmtree(checkout.root / "results")
    shutil.rmtree(checkout.root / ".snakemake")
    return kept


def records(made: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(made).namelist() if name.endswith("raw.json")}


def whole(made: Path) -> set[str]:
    """The repeats of the records in whole blocks."""
    return {name.split("/")[-2] for name in records(made) if name.startswith("core/cells/")}


def test_visits_measure_the_next_blocks_with_the_frozen_code_and_are_merged(checkout: Checkout) -> None:
    visit(checkout, "--freeze")
    assert "nothing that is missing fits into 1 min" in visit(checkout, "--minutes", "1")
    assert "--only: no module X; there are C" in visit(checkout, "--only", "X", code=1)
    assert "C core: 4 cells, block 1, 2 of alpha" in visit(checkout, "--only", "C")
    first = leave(checkout)
    assert whole(first) == {"r1", "r2"}, "a second repeat on a device in one visit is no other device"
    frozen = checkout.root / "published/two/frozen.yaml"
    code_of = yaml.safe_load(frozen.read_text())
    for root, refused in (("core/alpha", True), ("answers", False)):
        frozen.write_text(yaml.safe_dump(code_of | {"roots": code_of["roots"] | {root: "another"}}))
        merged = visit(checkout, "--merge", str(first), code=int(refused))
        assert ("measured by other code" in merged) == refused
    frozen.write_text(yaml.safe_dump(code_of))
    assert "C core: 2 of 3 blocks" in merged and "next: C core: 2 cells, block 3 of alpha" in merged
    table = checkout.root / "published/a100/core/tables/cells.csv"
    assert len({row["device"] for row in rows(table)}) == 2 and {row["repeat"] for row in rows(table)} == {"1", "2"}

    code = checkout.root / "scripts/sharebench/measure/cell/cell.py"
    before = code.read_text()
    code.write_text(f"{before}\nCHANGED = 1\n")
    assert "frozen.yaml: the measuring code is another for core/alpha;" in visit(checkout, code=1)

    # After a defect, cells of the earlier code count where the design says so.
    earlier = yaml.safe_load(frozen.read_text())["roots"]["core/alpha"]
    visit(checkout, "--freeze")
    again = frozen.read_text()
    frozen.write_text(f"{again}before: {{core/alpha: [{earlier}]}}\n")
    shutil.rmtree(checkout.root / "results")
    visit(checkout)
    second = leave(checkout)
    assert whole(second) == {"r3"}
    assert "C core: 3 of 3 blocks" in visit(checkout, "--merge", str(second))
    assert {row["repeat"] for row in rows(table)} == set("123") and len({row["run_id"] for row in rows(table)}) == 2
    assert "4 cells were measured by earlier code" in (table.parents[1] / "manifest.json").read_text()
    checkout.run(config=["from=published/a100/core"]).ok()
    copy = shutil.copy(second, second.with_name("copy.zip"))
    assert "a visit before has core" in visit(checkout, "--merge", str(copy), code=1)

    # Else they are re-measured, and replaced.
    frozen.write_text(again)
    shutil.rmtree(checkout.root / "results")
    assert "C core: 4 cells, block 1, 2 of alpha" in visit(checkout)
    third = leave(checkout)
    assert "C core: 3 of 3 blocks" in visit(checkout, "--merge", str(third))
    runs = {(row["repeat"], row["run_id"]) for row in rows(table)}
    assert runs == {("1", third.stem), ("2", third.stem), ("3", second.stem)}


def test_a_visit_to_a_cluster_measures_the_modules_that_need_one_and_no_others(checkout: Checkout) -> None:
    folder = checkout.root / "published/two"
    modules = folder / "modules.yaml"
    alone = f"{modules.read_text()}\n- {{module: K, study: host, overhead_seconds: 0.1, in_cluster: true}}\n"
    (folder / "host.yaml").write_text(STUDY)
    # Of another kind of node than the first, which could not measure it.
    pods = {"node": "kubernetes", "strategies": ["mig"], "replicas": [8], "workloads": ["matmul"]}
    (folder / "pods.yaml").write_text(yaml.safe_dump(pods))
    modules.write_text(f"{alone}- {{module: K, study: pods, overhead_seconds: 0.1, in_cluster: true}}\n")
    out = visit(checkout, KUBECONFIG="")
    assert "K host: not measured without a cluster" in out and "K pods: not measured without a cluster" in out
    assert {name.split("/")[0] for name in records(leave(checkout))} == {"core"}
    modules.write_text(alone)
    assert "C core: not measured next to a cluster" in visit(checkout, KUBECONFIG="there")
    assert {name.split("/")[0] for name in records(leave(checkout))} == {"host"}


@pytest.mark.parametrize(
    ("status", "window", "counts"),
    [("ok", {}, True), ("crashed", None, True), ("hung", {}, True), ("hung", None, False), ("infeasible", None, False)],
)
def test_a_cell_whose_tenants_never_started_is_measured_again(
    tmp_path: Path, status: str, window: object, counts: bool
) -> None:
    cell = Cell("mps", "alpha", 2, 1)
    assert not is_measured(cell, tmp_path)
    (tmp_path / cell.folder).mkdir(parents=True)
    (tmp_path / cell.raw).write_text(json.dumps({"status": status, "window": window}))
    assert is_measured(cell, tmp_path) == counts


def test_ctrl_c_keeps_whole_blocks_and_the_next_call_goes_on(checkout: Checkout) -> None:
    job = checkout.root / "scripts/job.py"
    job.write_text(HELD + job.read_text())
    run = start(checkout)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(list((checkout.root / "results/two/now/core/cells").glob("*/*/*/r1/raw.json"))) < CELLS:
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None
    assert any("Will exit after finishing currently running jobs" in line for line in run.stderr)
    (checkout.root / "tmp/go").touch()
    out, errors = run.communicate(timeout=TIMEOUT_SECONDS)
    assert run.returncode == 1 and "interrupted; what is whole is in the archive" in errors, out + errors
    (made,) = (checkout.root / "results/two").glob("*.zip")
    assert len(records(made)) == CELLS + 1 and whole(made) == {"r1"}
    visit(checkout)
    assert len(records(made)) == 2 * CELLS and whole(made) == {"r1", "r2"}
    assert "a rehearsal, which is not published" in visit(checkout, "--merge", str(made), code=1)
