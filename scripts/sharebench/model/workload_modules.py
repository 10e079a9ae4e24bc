"""Declarations in the workloads' modules, read without importing these or their frameworks."""

from __future__ import annotations

import ast
import contextlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sharebench.core.files import SCRIPTS
from sharebench.model.workload import Workload

WORKLOAD_MODULES = SCRIPTS / "tenant" / "workloads"


def module_names() -> list[str]:
    return sorted(path.stem for path in WORKLOAD_MODULES.glob("[a-z]*.py"))


def module_constant(module: str, name: str) -> Any:
    """The literal that the module assigns to `name` at its top, or imports; None without a readable one."""
    return _read_literal(WORKLOAD_MODULES / f"{module}.py", name)


def _read_literal(file: Path, name: str) -> Any:
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        for statement in ast.parse(file.read_text()).body:
            match statement:
                case ast.ImportFrom(module=str(origin), names=names) if name in (alias.name for alias in names):
                    return _read_literal(SCRIPTS / f"{origin.replace('.', '/')}.py", name)
                case ast.Assign(targets=[ast.Name(id=bound)], value=ast.expr() as value) if bound == name:
                    return ast.literal_eval(value)
                case ast.AnnAssign(target=ast.Name(id=bound), value=ast.expr() as value) if bound == name:
                    return ast.literal_eval(value)
    return None


def is_one_launch(workload: Workload) -> bool:
    """Whether an iteration of this workload is one launch on a GPU, so that tenants can share a process.

    A module may declare it (`ONE_LAUNCH`); otherwise it is one if it replays a captured graph.
    """
    declared = module_constant(str(workload.module), "ONE_LAUNCH")
    return bool(workload.params.get("graph") if declared is None else declared)


def cpu_obstacle(entry: Workload) -> str | None:
    """The reason why this interpreter cannot run an entry with a module without a GPU; None if none is known."""
    module, params = str(entry.module), entry.params
    if params.get("graph") is True:
        return "a CUDA graph needs a GPU"
    dtype, dtypes = params.get("dtype"), module_constant(module, "CPU_DTYPES")
    if dtype is not None and dtypes is not None and dtype not in dtypes:
        return f"without a GPU its dtype is {' or '.join(dtypes)}, not {dtype}"
    frameworks = (module_constant(module, "FRAMEWORKS") or {}).get("cpu", ())
    missing = [framework for framework in frameworks if find_spec(framework) is None]
    if missing:
        return f"it needs {' and '.join(missing)}, which {sys.executable} lacks"
    return None
