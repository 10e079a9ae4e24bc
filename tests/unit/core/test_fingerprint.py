"""An edit invalidates exactly what is made by code that imports the edited file."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharebench.model.capabilities import NODE_KINDS
from sharebench.study import fingerprint

CODE_FILES = {
    "cpu matmul": fingerprint.cell_files("cpu", "matmul"),
    "cpu memcopy": fingerprint.cell_files("cpu", "memcopy"),
    "cpu program": fingerprint.cell_files("cpu", has_programs=True),
    "cpu mix": fingerprint.cell_files("cpu", "memcopy", "matmul", "memcopy"),
    "cpu fault": fingerprint.cell_files("cpu", "matmul", "fault"),
    "cpu watched": fingerprint.cell_files("cpu", "memcopy", is_watched=True),
    "cpu node": fingerprint.node_files("cpu"),
    "nvidia node": fingerprint.node_files("nvidia"),
    "nvidia matmul": fingerprint.cell_files("nvidia", "matmul"),
    "kubernetes matmul": fingerprint.cell_files("kubernetes", "matmul"),
    "simulated": fingerprint.cell_files("simulated"),
    **{stage: fingerprint.stage_files(stage) for stage in fingerprint.STAGE_ROOTS},
}
CPU_CELLS = {name for name in CODE_FILES if name.startswith("cpu") and name != "cpu node"}
GPU_CELLS = {"nvidia matmul", "kubernetes matmul"}
MATMUL_CELLS = {"cpu matmul", "cpu mix", "cpu fault", *GPU_CELLS}
CELLS = CPU_CELLS | GPU_CELLS | {"simulated"}
NODES = {"cpu node", "nvidia node"}
PROBES = {"timeslice", "answers"}
TABLE_STAGES = {"export", "tables", "together"}


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of scripts/, of which fingerprints are taken."""
    copy = tmp_path / "scripts"
    shutil.copytree(fingerprint.SCRIPTS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "SCRIPTS", copy)
    clear_caches()
    yield copy
    clear_caches()


def clear_caches() -> None:
    for name in ("_source", "_parsed_before", "_module_files", "node_files", "cell_files", "stage_files"):
        getattr(fingerprint, name).cache_clear()


def simulated_fingerprint() -> str:
    """The current fingerprint of a simulated cell."""
    clear_caches()
    return fingerprint.cell_fingerprint("simulated")


def measuring_fingerprints() -> dict[str, str]:
    """The current fingerprints of every kind's node, and of its cells and calibrations with all that a cell may do."""
    clear_caches()
    modules = ("matmul", "http_client", *fingerprint.PROCEDURE_ROOTS)
    return {f"{kind} node": fingerprint.node_fingerprint(kind) for kind in NODE_KINDS} | {
        f"{kind} cell": fingerprint.cell_fingerprint(kind, *modules, has_programs=True, is_watched=True)
        for kind in NODE_KINDS
    }


@pytest.mark.parametrize(
    ("file", "stale"),
    [
        # tenant/
        ("tenant/loop.py", CPU_CELLS | GPU_CELLS),
        ("tenant/workloads/matmul.py", MATMUL_CELLS),
        ("tenant/workloads/fault.py", {"cpu fault"}),
        ("tenant/gpu/torch_device.py", GPU_CELLS),
        ("sharebench/measure/nodes/tenants/programs/endpoints.py", {"cpu program", *PROBES}),
        # sharebench/, from the lowest layer to the highest
        ("sharebench/core/file_lock.py", PROBES),
        (
            "sharebench/model/records/telemetry.py",
            CELLS | NODES | TABLE_STAGES | {"archive", "decisions", "figures", "report", *PROBES},
        ),
        ("sharebench/read/columns.csv", {"tables", "decisions"}),
        ("sharebench/read/gates/gates.py", TABLE_STAGES | {"decisions", "report"}),
        ("sharebench/study/study.py", {"archive", "decisions", "tables", "together", *PROBES}),
        ("sharebench/measure/nodes/contract.py", CELLS | NODES | PROBES),
        ("sharebench/measure/nodes/simulated/node.py", {"simulated"}),
        ("sharebench/measure/nodes/host/cpu.py", CPU_CELLS | {"cpu node"}),
        ("sharebench/measure/nodes/host/mps.py", {"nvidia matmul", "nvidia node", *PROBES}),
        ("sharebench/measure/nodes/metrics.py", {"cpu program", *PROBES}),
        ("sharebench/measure/nodes/kubernetes/access/dra/claims.py", {"kubernetes matmul"}),
        ("sharebench/measure/nodes/kubernetes/preflight/rights.py", set()),
        ("sharebench/measure/cell/window.py", CELLS | PROBES),
        ("sharebench/measure/cell/fault.py", {"cpu fault", *PROBES}),
        ("sharebench/measure/cell/prometheus/procedure.py", {"cpu watched", *PROBES}),
        ("sharebench/datasets/ro_crate.py", {"archive", "together"}),
        ("sharebench/read/figures/style.py", {"figures", "together"}),
        ("sharebench/measure/run/jobs.py", PROBES),
        ("sharebench/measure/run/timeslice/probe.py", {"timeslice"}),
        ("sharebench/read/tables/summary.py", {"tables"}),
        ("sharebench/read/decide/advice.py", {"decisions", "report", "together"}),
        ("sharebench/read/report/templates/report.css", {"report"}),
        ("publication/findings.py", {"together"}),
    ],
)
def test_an_edit_invalidates_what_the_file_is_part_of(file: str, stale: set[str]) -> None:
    assert (fingerprint.SCRIPTS / file).is_file()
    assert {name for name, files in CODE_FILES.items() if file in files} == stale


# These drive a run, ask a question, judge or publish.
ELSEWHERE = (
    *("study/", "read/", "datasets/", "measure/run/", "model/config/"),
    *("model/run_record", "model/study_config", "model/config_nodes", "model/question"),
)


def test_what_drives_asks_and_judges_is_in_no_cell_and_in_no_facts_of_a_node() -> None:
    files = {file for name in CELLS | NODES for file in CODE_FILES[name]}
    assert not {file for file in files if file.removeprefix("sharebench/").startswith(ELSEWHERE)}


def test_the_facts_of_a_node_do_not_depend_on_the_code_of_a_cell() -> None:
    assert "tenant/gpu/peaks.py" in CODE_FILES["nvidia node"]
    for name in NODES:
        assert not {file for file in CODE_FILES[name] if file.startswith(("sharebench/measure/cell/", "tenant/loop"))}


def add_statement(path: Path) -> None:
    path.write_text(path.read_text() + "\nEXTRA = 1\n")


def test_an_edit_of_a_meaning_and_of_what_drives_asks_and_judges_invalidates_no_cell(scripts: Path) -> None:
    before = measuring_fingerprints()
    for path in (scripts / "sharebench").rglob("*.py"):
        path.write_text(re.sub(r'"""(.*?)"""', r'"""In other words: \1"""', path.read_text(), flags=re.DOTALL))
        if str(path.relative_to(scripts / "sharebench")).startswith(ELSEWHERE):
            add_statement(path)
    assert measuring_fingerprints() == before


@pytest.mark.parametrize("file", ["measure/nodes/contract.py", "model/strategy.py", "model/values.py"])
def test_an_edit_of_what_all_that_measures_imports_invalidates_all(file: str, scripts: Path) -> None:
    before = measuring_fingerprints()
    add_statement(scripts / "sharebench" / file)
    assert not before.items() & measuring_fingerprints().items()


def test_what_was_parsed_is_kept_and_a_damaged_file_of_it_is_read_as_none(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = simulated_fingerprint()
    [kept] = fingerprint.PARSED_FOLDER.iterdir()
    with monkeypatch.context() as without_parser:
        without_parser.setattr(fingerprint, "_parse", lambda text: pytest.fail("parsed once more"))
        assert simulated_fingerprint() == before
    path = scripts / "sharebench/measure/cell/cell.py"
    path.write_text(path.read_text() + "\nEXTRA = 1\n")
    assert simulated_fingerprint() != before
    for damaged in ("", "[1]", "{", "null", '{"a": 5}', '{"a": ["x"]}', '{"a": ["x", 5]}'):
        kept.write_text(damaged)
        assert simulated_fingerprint() != before


def test_what_is_imported_for_types_only_is_not_followed(scripts: Path) -> None:
    (scripts / "sharebench/measure/cell/new.py").write_text("EXTRA = 1\n")
    cell = scripts / "sharebench/measure/cell/cell.py"
    cell.write_text(cell.read_text() + "\nif TYPE_CHECKING:\n    from sharebench.measure.cell import new\n")
    clear_caches()
    assert "sharebench/measure/cell/new.py" not in fingerprint.cell_files("simulated")


@pytest.mark.parametrize(
    ("old", "new"),
    [('"""', '"""In other words: '), ("import time", "# A remark.\nimport time"), ("\n\n\n", "\n\n\n\n\n")],
    ids=["docstring", "comment", "layout"],
)
def test_comments_docstrings_and_layout_invalidate_nothing(scripts: Path, old: str, new: str) -> None:
    path, before = scripts / "sharebench/measure/cell/cell.py", simulated_fingerprint()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert simulated_fingerprint() == before
    path.write_text(text + "\nEXTRA = 1\n")
    assert simulated_fingerprint() != before


def test_a_new_file_counts_once_it_is_imported(scripts: Path) -> None:
    new, cell, before = (
        scripts / "sharebench/measure/cell/new.py",
        scripts / "sharebench/measure/cell/cell.py",
        simulated_fingerprint(),
    )
    new.write_text("EXTRA = 1\n")
    assert simulated_fingerprint() == before
    cell.write_text(cell.read_text() + "\nfrom sharebench.measure.cell import new\n")
    assert (imported := simulated_fingerprint()) != before
    new.write_text("EXTRA = 2\n")
    assert simulated_fingerprint() not in (before, imported)


def test_every_version_of_python_computes_the_same_digests(scripts: Path) -> None:
    """The digest by 3.11 of a text whose trees differ in 3.12 and 3.13."""
    text = 'def f(*, a=None):\n    width = 3\n    return f"{a:>{width}}", f("")\n'
    (scripts / "tenant" / "versions.py").write_text(text)
    assert fingerprint._source("tenant/versions.py").digest.startswith("fe0befde12eefcfe")
    (scripts / "tenant" / "versions.py").write_text(text.replace('f("")', "f()"))
    clear_caches()
    assert not fingerprint._source("tenant/versions.py").digest.startswith("fe0befde12eefcfe")
