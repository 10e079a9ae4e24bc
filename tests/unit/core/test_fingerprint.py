"""What an edit makes stale: what is made by code that imports the edited file, and nothing else."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharebench.core import fingerprint

MADE_BY = {
    "cpu matmul": fingerprint.cell_files("cpu", "matmul"),
    "cpu memcopy": fingerprint.cell_files("cpu", "memcopy"),
    "cpu program": fingerprint.cell_files("cpu", has_programs=True),
    "cpu mix": fingerprint.cell_files("cpu", "memcopy", "matmul", "memcopy"),
    "cpu fault": fingerprint.cell_files("cpu", "matmul", "fault"),
    "cpu watched": fingerprint.cell_files("cpu", "memcopy", is_watched=True),
    "cpu node": fingerprint.node_files("cpu"),
    "nvidia matmul": fingerprint.cell_files("nvidia", "matmul"),
    "kubernetes matmul": fingerprint.cell_files("kubernetes", "matmul"),
    "simulated": fingerprint.cell_files("simulated"),
    **{stage: fingerprint.stage_files(stage) for stage in fingerprint.STAGE_ROOTS},
}
ON_CPU = {name for name in MADE_BY if name.startswith("cpu")}
ON_GPU = {"nvidia matmul", "kubernetes matmul"}
MATMUL = {"cpu matmul", "cpu mix", "cpu fault", *ON_GPU}
CELLS = ON_CPU | ON_GPU | {"simulated"}
DRAWN = {"figures", "report", "compare", "together"}
TABLED = {"export", "tables", "compare", "together"}


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of scripts/ that fingerprints are taken of."""
    copy = tmp_path / "scripts"
    shutil.copytree(fingerprint.SCRIPTS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "SCRIPTS", copy)
    forget()
    yield copy
    forget()


def forget() -> None:
    for name in ("_source", "_module_files", "node_files", "cell_files", "stage_files"):
        getattr(fingerprint, name).cache_clear()


def simulated() -> str:
    """The fingerprint of a simulated cell, by the files as they are now."""
    forget()
    return fingerprint.cell_fingerprint("simulated")


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        # tenant/
        ("tenant/loop.py", ON_CPU | ON_GPU),
        ("tenant/workloads/matmul.py", MATMUL),
        ("tenant/workloads/fault.py", {"cpu fault"}),
        ("tenant/gpu/torch_device.py", ON_GPU),
        ("sharebench/nodes/host/programs/endpoints.py", {"cpu program", "timeslice"}),
        # sharebench/, from the lowest layer to the highest
        ("sharebench/core/files.py", set()),
        (
            "sharebench/records/telemetry.py",
            CELLS | TABLED | {"archive", "decisions", "figures", "report", "timeslice"},
        ),
        ("sharebench/records/columns.csv", {"tables", "compare", "decisions"}),
        ("sharebench/gates/gates.py", CELLS | TABLED | {"decisions", "report"}),
        ("sharebench/study/study.py", set()),
        ("sharebench/nodes/contract.py", CELLS | {"timeslice"}),
        ("sharebench/nodes/simulated/node.py", {"simulated"}),
        ("sharebench/nodes/host/cpu.py", ON_CPU),
        ("sharebench/nodes/host/mps.py", {"nvidia matmul", "timeslice"}),
        ("sharebench/nodes/metrics.py", {"cpu program", "kubernetes matmul", "timeslice"}),
        ("sharebench/nodes/kubernetes/access/dra/claims.py", {"kubernetes matmul"}),
        ("sharebench/nodes/kubernetes/preflight/rights.py", set()),
        ("sharebench/cell/window.py", CELLS),
        ("sharebench/cell/fault.py", {"cpu fault"}),
        ("sharebench/cell/prometheus/procedure.py", {"cpu watched"}),
        ("sharebench/datasets/ro_crate.py", {"archive"}),
        ("sharebench/figures/style.py", DRAWN),
        ("sharebench/run/jobs.py", set()),
        ("sharebench/run/timeslice/probe.py", {"timeslice"}),
        ("sharebench/analysis/tables/summary.py", {"tables"}),
        ("sharebench/analysis/decide/advice.py", {"decisions"}),
        ("sharebench/report/templates/report.css", {"report"}),
        ("publication/findings.py", {"together"}),
    ],
)
def test_an_edit_makes_stale_what_the_file_makes(file: str, stale: set[str]) -> None:
    assert (fingerprint.SCRIPTS / file).is_file()
    assert {name for name, files in MADE_BY.items() if file in files} == stale


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""', '"""In other words: '),
        ("import time", "# A remark.\nimport time"),
        ("\n\n\n", "\n\n\n\n\n"),
    ],
    ids=["docstring", "comment", "layout"],
)
def test_what_is_not_in_the_syntax_tree_makes_nothing_stale(scripts: Path, old: str, new: str) -> None:
    path, before = scripts / "sharebench/cell/cell.py", simulated()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert simulated() == before
    path.write_text(text + "\nEXTRA = 1\n")
    assert simulated() != before


def test_a_new_file_counts_as_soon_as_it_is_imported(scripts: Path) -> None:
    new, cell, before = scripts / "sharebench/cell/new.py", scripts / "sharebench/cell/cell.py", simulated()
    new.write_text("EXTRA = 1\n")
    assert simulated() == before
    cell.write_text(cell.read_text() + "\nfrom sharebench.cell import new\n")
    assert (imported := simulated()) != before
    new.write_text("EXTRA = 2\n")
    assert simulated() not in (before, imported)


def test_each_version_of_python_has_the_same_digests(scripts: Path) -> None:
    """What 3.11 says of a text with all that 3.12 and 3.13 write otherwise."""
    text = 'def f(*, a=None):\n    width = 3\n    return f"{a:>{width}}", f("")\n'
    (scripts / "tenant" / "versions.py").write_text(text)
    assert fingerprint._source("tenant/versions.py").digest.startswith("fe0befde12eefcfe")
    (scripts / "tenant" / "versions.py").write_text(text.replace('f("")', "f()"))
    forget()
    assert not fingerprint._source("tenant/versions.py").digest.startswith("fe0befde12eefcfe")
