"""Fingerprints of code: a digest of all files that a root imports, directly or not.

There are three closures: the facts of a node, a cell with its calibrations, and a stage of reading. An edit that
changes a file's syntax tree invalidates what the roots that import it produce. Comments, docstrings and layout are not
in the tree. Every Python from 3.11 to 3.13 computes the same digests.
"""

import ast
import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sharebench.core.files import SCRIPTS, replace_atomically
from sharebench.model.capabilities import NODE_KINDS

DIGEST_CHARACTERS = 16
# What `_parse` says of each text, for the next process, next to Snakemake's other caches.
PARSED_FOLDER = Path(".snakemake/sharebench/parsed")
# A node's facts; its kind comes on top. The driver runs the tenant's modules by their names.
FACTS_ROOTS = ("tenant/gpu/peaks.py",)
# A cell and a calibration; the kind of node, the tenant and its workload come on top.
CELL_ROOTS = (
    "sharebench/measure/cell/sweep.py",
    "sharebench/measure/cell/queue.py",
    "sharebench/measure/cell/calibration.py",
)
# Procedures of cells in which a tenant runs the module of that name.
PROCEDURE_ROOTS = {name: f"sharebench/measure/cell/{name}.py" for name in ("fault", "conformance")}
PROMETHEUS_ROOTS = ("sharebench/measure/cell/prometheus/procedure.py",)
TENANT_ROOTS = ("tenant/__main__.py", "tenant/template.py")
# The columns of the tables.
COLUMNS = "sharebench/read/columns.csv"
STAGE_ROOTS = {
    "export": ("sharebench/read/tables/histograms.py",),
    "tables": ("sharebench/read/aggregate.py", COLUMNS),
    "decisions": ("sharebench/read/decide/decide.py", COLUMNS),
    "figures": ("sharebench/read/figures/draw.py", "sharebench/read/figures/answers.py"),
    "report": ("sharebench/read/report/page.py", "sharebench/read/report/templates/**/*"),
    "answers": ("sharebench/measure/run/answers.py", "tenant/gpu/answers.py"),
    "timeslice": ("sharebench/measure/run/timeslice/probe.py", "tenant/spin.py"),
    "archive": ("sharebench/datasets/archive.py", "sharebench/datasets/ro_crate.py"),
    "together": ("publication/build.py",),
}
# Only some cells need these: the code for a GPU, for user programs, and of other workloads.
GPU_FOLDER, WORKLOADS_FOLDER = "tenant/gpu/", "tenant/workloads/"
PROGRAMS_FOLDERS = ("sharebench/measure/nodes/host/programs/", "sharebench/measure/nodes/tenants/programs/")


def node_fingerprint(kind: str) -> str:
    return _fingerprint(node_files(kind))


def cell_fingerprint(kind: str, *modules: str, has_programs: bool = False, is_watched: bool = False) -> str:
    """Fingerprint of the code that measures workloads (`modules`, none if simulated) on a kind of node."""
    return _fingerprint(cell_files(kind, *modules, has_programs=has_programs, is_watched=is_watched))


def stage_fingerprint(stage: str) -> str:
    """Labelled fingerprint of the code of a stage, such as `tables`, `figures` or `report`."""
    return f"{stage} code {_fingerprint(stage_files(stage))}"


@cache
def node_files(kind: str) -> list[str]:
    facts = FACTS_ROOTS if NODE_KINDS[kind].has_gpus else ()
    return closure((_driver(kind), *facts), _skipped_folders(kind, has_programs=False))


@cache
def cell_files(kind: str, *modules: str, has_programs: bool = False, is_watched: bool = False) -> list[str]:
    workloads = [f"{WORKLOADS_FOLDER}{module}.py" for module in ("__init__", *modules)] if modules else []
    procedures = [root for module, root in PROCEDURE_ROOTS.items() if module in modules]
    optional = *procedures, *(PROMETHEUS_ROOTS if is_watched else ())
    tenant = () if NODE_KINDS[kind].is_virtual else TENANT_ROOTS
    return closure((*CELL_ROOTS, _driver(kind), *tenant, *workloads, *optional), _skipped_folders(kind, has_programs))


@cache
def stage_files(stage: str) -> list[str]:
    return closure(STAGE_ROOTS[stage])


def _driver(kind: str) -> str:
    """The file with the class of that kind of node."""
    module = NODE_KINDS[kind].driver.rpartition(".")[0].replace(".", "/")
    return f"sharebench/measure/nodes/{module}.py"


def _skipped_folders(kind: str, has_programs: bool) -> tuple[str, ...]:
    return (
        WORKLOADS_FOLDER,
        *(() if NODE_KINDS[kind].has_gpus else (GPU_FOLDER,)),
        *(() if has_programs else PROGRAMS_FOLDERS),
    )


def closure(roots: Iterable[str], skipped: tuple[str, ...] = ()) -> list[str]:
    """Sorted files below scripts/: the roots, which may be patterns, and all that they import, directly or not."""
    reached: set[str] = set()
    todo = {str(path.relative_to(SCRIPTS)) for root in roots for path in SCRIPTS.glob(root) if path.is_file()}
    while todo:
        file = todo.pop()
        reached.add(file)
        imported = {other for name in _source(file).imported for other in _module_files(name)}
        todo |= {other for other in imported if not other.startswith(skipped)} - reached
    _parsed_before().keep()
    return sorted(reached)


class _Source(NamedTuple):
    """The digest of a file's syntax tree without docstrings, and the modules that it imports."""

    digest: str
    imported: list[str]


@cache
def _source(file: str) -> _Source:
    text = (SCRIPTS / file).read_bytes()
    if not file.endswith(".py"):
        return _Source(hashlib.sha256(text).hexdigest(), [])
    return _parsed_before().source(text)


class _Parsed:
    """Sources by the digest of their text, in a file whose name has the digest of this module, which parses."""

    def __init__(self) -> None:
        parser = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        self._file = PARSED_FOLDER / f"{parser[:DIGEST_CHARACTERS]}.json"
        self._sources: dict[str, _Source] = {}
        with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
            kept = json.loads(self._file.read_bytes()).items()
            self._sources = {key: _Source(digest, list(imported)) for key, (digest, imported) in kept}
        self._kept = len(self._sources)

    def source(self, text: bytes) -> _Source:
        key = hashlib.sha256(text).hexdigest()
        if key not in self._sources:
            self._sources[key] = _parse(text)
        return self._sources[key]

    def keep(self) -> None:
        """Write what was parsed since, where the folder can be written."""
        if len(self._sources) > self._kept:
            self._kept = len(self._sources)
            with contextlib.suppress(OSError):
                replace_atomically(self._file, json.dumps(self._sources))


_parsed_before = cache(_Parsed)


def _parse(text: bytes) -> _Source:
    tree = ast.parse(text)
    names: set[str] = set()
    for node in _statements(tree):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                node.body = [statement for statement in node.body if not _is_docstring(statement)]
    return _Source(hashlib.sha256(_text(tree).encode()).hexdigest(), sorted(names))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The tree and every statement in it, at any depth; walking the expressions too would take much longer."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            # What is imported for types only does not run.
            continue
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, part, ())


def _text(node: object) -> str:
    """`ast.dump` without the differences between Python versions: empty fields, and empty ends of f-strings."""
    match node:
        case ast.JoinedStr(values=parts):
            return f"JoinedStr({_text([part for part in parts if getattr(part, 'value', None) != ''])})"
        case ast.AST():
            fields = [f"{name}={_text(value)}" for name, value in ast.iter_fields(node) if value not in (None, [])]
            return f"{type(node).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(_text, node))}]"
    return repr(node)


def _is_docstring(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


@cache
def _module_files(name: str) -> tuple[str, ...]:
    """The non-empty file of a module or package below scripts/; none for other names."""
    if not all(part.isidentifier() for part in name.split(".")):
        return ()
    path = SCRIPTS.joinpath(*name.split("."))
    existing = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return tuple(str(file.relative_to(SCRIPTS)) for file in existing if file.stat().st_size and file.parent != SCRIPTS)


def _fingerprint(files: Iterable[str]) -> str:
    digests = "\n".join(f"{file} {_source(file).digest}" for file in files)
    return hashlib.sha256(digests.encode()).hexdigest()[:DIGEST_CHARACTERS]
