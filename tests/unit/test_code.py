"""Which files make what: no list forgets a file that its own files import."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sharebench import code, figures

# What measuring, tabling or drawing code imports and what is deliberately no part of its fingerprint: how files are
# written, what a failure says, who owns the node, and what the config means, which is in the spec.
INFRASTRUCTURE = {
    "sharebench/__init__.py",
    "sharebench/capabilities.py",
    "sharebench/code.py",
    "sharebench/config.py",
    "sharebench/config_checks.py",
    "sharebench/config_comparisons.py",
    "sharebench/config_nodes.py",
    "sharebench/config_paths.py",
    "sharebench/config_words.py",
    "sharebench/console.py",
    "sharebench/dataset.py",
    "sharebench/exclusions.py",
    "sharebench/files.py",
    "sharebench/fingerprint.py",
    "sharebench/join.py",
    "sharebench/matrix.py",
    "sharebench/ownership.py",
    "sharebench/programs.py",
    "sharebench/references.py",
    "sharebench/scraping.py",
}
# What tells figures and tables how to order strategies; the pipeline gives them the order's ingredients as params.
ORDER = {"sharebench/strategies.py", "sharebench/figures/__init__.py"}


def imported(path: Path) -> Iterator[str]:
    """The files under scripts/ that this one imports, wherever in its text."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    for name in names:
        module = code.SCRIPTS / Path(*name.split("."))
        for found in (module.with_suffix(".py"), module / "__init__.py"):
            if found.is_file():
                yield str(found.relative_to(code.SCRIPTS))


def closure(files: Iterable[str], stop: set[str]) -> set[str]:
    """These files and all that they import, directly or not; what is in `stop` is not looked into."""
    found, todo = set(), set(files)
    while todo:
        file = todo.pop()
        found.add(file)
        todo |= set(imported(code.SCRIPTS / file)) - found - stop
    return found


@pytest.mark.parametrize("kind", code.NODES)
def test_a_cells_code_is_complete(kind: str) -> None:
    known = set(code.CORE + code.NODES[kind])
    # the package of workloads comes with the workload's own file, and a CPU runs nothing that is for GPUs
    elsewhere = {"tenant/workloads/__init__.py", *code.PROGRAMS} | (code.GPU_ONLY if kind == "cpu" else set())
    assert closure(known, INFRASTRUCTURE | elsewhere) - elsewhere == known


@pytest.mark.parametrize("kind", ["cpu", "nvidia"])
def test_the_code_of_programs_is_complete(kind: str) -> None:
    known = set(code.CORE + code.NODES[kind] + code.PROGRAMS)
    elsewhere = {"tenant/workloads/__init__.py"} | (code.GPU_ONLY if kind == "cpu" else set())
    assert closure(known, INFRASTRUCTURE | elsewhere) - elsewhere == known


@pytest.mark.parametrize("kind", ["cpu", "nvidia", "kubernetes"])
def test_the_code_of_watched_cells_is_complete(kind: str) -> None:
    known = set(code.CORE + code.NODES[kind] + code.WATCHED)
    elsewhere = {"tenant/workloads/__init__.py", *code.PROGRAMS} | (code.GPU_ONLY if kind == "cpu" else set())
    assert closure(known, INFRASTRUCTURE | elsewhere) - elsewhere == known


@pytest.mark.parametrize("stage", ["export", "tables", "compare", "decisions", "figures", "report"])
def test_a_stages_code_is_complete(stage: str) -> None:
    known = set(code.STAGES[stage])
    assert closure(known, INFRASTRUCTURE | ORDER) == known


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_figures_code_is_complete(name: str) -> None:
    known = {*code.STAGES["figures"], f"sharebench/figures/{name}.py"}
    assert closure(known, INFRASTRUCTURE | ORDER) == known


def test_every_file_of_the_lists_exists_once() -> None:
    for files in (code.CORE, *code.NODES.values(), *code.STAGES.values()):
        assert [file for file in files if not (code.SCRIPTS / file).is_file()] == []
        assert len(files) == len(set(files))


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of scripts/ that fingerprints are taken of."""
    copy = tmp_path / "scripts"
    shutil.copytree(code.SCRIPTS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "SCRIPTS", copy)
    monkeypatch.setattr(code, "TEMPLATES", copy / "sharebench" / "templates")
    code._fingerprint.cache_clear()
    yield copy
    code._fingerprint.cache_clear()


WHAT = {
    "cpu matmul": lambda: code.of_cell("cpu", "matmul"),
    "cpu memcopy": lambda: code.of_cell("cpu", "memcopy"),
    "cpu program": lambda: code.of_cell("cpu", has_programs=True),
    "cpu mix": lambda: code.of_cell("cpu", "memcopy", "matmul", "memcopy"),
    "cpu fault": lambda: code.of_cell("cpu", "matmul", "fault"),
    "simulated": lambda: code.of_cell("simulated"),
    "cpu node": lambda: code.of_node("cpu"),
    "export": lambda: code.of_stage("export"),
    "tables": lambda: code.of_stage("tables"),
    "decisions": lambda: code.of_stage("decisions"),
    "figures": lambda: code.of_stage("figures"),
    "report": lambda: code.of_stage("report"),
}
ON_CPU = {"cpu matmul", "cpu memcopy", "cpu mix", "cpu fault", "cpu node", "cpu program"}
CELLS = ON_CPU | {"simulated"}


@pytest.mark.parametrize(
    "file, stale",
    [
        ("tenant/workloads/matmul.py", {"cpu matmul", "cpu mix", "cpu fault"}),
        ("tenant/workloads/fault.py", {"cpu fault"}),
        ("sharebench/fault_cell.py", {"cpu fault"}),
        ("tenant/workloads/detector.py", set()),
        ("tenant/loop.py", ON_CPU),
        ("sharebench/nodes/simulated.py", {"simulated"}),
        ("sharebench/tenants/processes.py", ON_CPU),
        ("sharebench/collect/metrics.py", {"cpu program"}),
        ("sharebench/tenants/programs.py", {"cpu program"}),
        ("tenant/door.py", {"cpu program"}),
        ("sharebench/programs.py", set()),
        ("sharebench/cell.py", CELLS),
        ("sharebench/calibration.py", CELLS),
        ("sharebench/window.py", CELLS),
        ("sharebench/collect/rows.py", CELLS),
        ("sharebench/gates.py", CELLS | {"export", "tables", "report"}),
        ("sharebench/analysis/summary.py", {"tables"}),
        ("sharebench/analysis/draws.py", {"tables", "decisions"}),
        ("sharebench/analysis/advice.py", {"decisions"}),
        ("sharebench/analysis/scaling.py", {"decisions"}),
        ("sharebench/templates/sections/advice.html.j2", {"report"}),
        ("sharebench/figures/style.py", {"figures", "report"}),
        ("sharebench/figures/timeline.py", {"figures", "report"}),
        ("sharebench/report.py", {"report"}),
        ("sharebench/templates/report.css", {"report"}),
        ("sharebench/lifecycle.py", set()),
        ("sharebench/ownership.py", set()),
        ("run_cell.py", set()),
    ],
)
def test_an_edit_stales_what_the_file_makes(scripts: Path, file: str, stale: set[str]) -> None:
    before = {name: digest() for name, digest in WHAT.items()}
    path = scripts / file
    path.write_text(
        path.read_text() + ("\n.extra { color: red }\n" if path.suffix in (".css", ".j2") else "\nEXTRA = 1\n")
    )
    code._fingerprint.cache_clear()
    assert {name for name, digest in WHAT.items() if digest() != before[name]} == stale


def test_a_comment_stales_nothing(scripts: Path) -> None:
    before = {name: digest() for name, digest in WHAT.items()}
    for path in scripts.rglob("*.py"):
        path.write_text(path.read_text() + "\n# a remark\n")
    code._fingerprint.cache_clear()
    assert {name: digest() for name, digest in WHAT.items()} == before


def test_the_code_of_a_mix_is_that_of_all_its_workloads_in_any_order() -> None:
    assert code.of_cell("cpu", "memcopy", "matmul", "memcopy") == code.of_cell("cpu", "matmul", "memcopy")
    assert code.of_cell("cpu", "matmul", "matmul") == code.of_cell("cpu", "matmul")


def test_stages_are_labelled() -> None:
    """Two of them are params of one rule; the label says which one a reader looks at."""
    assert code.of_stage("tables").startswith("tables code ")
    assert len({digest() for digest in WHAT.values()}) == len(WHAT)
