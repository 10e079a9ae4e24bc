"""What a tenant runs. A workload is one module here, with a function `create(params, device) -> Workload`.

`device` is `cpu` or `cuda`; a module that cannot run on one raises ParameterError. What it needs beside numpy it names
in `FRAMEWORKS`, a literal dictionary of device to packages, which a config is checked against without importing it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tenant.parameters import ParameterError, Params
from tenant.workload import Workload


def _naming_what_is_missing(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        if package == "tenant":
            raise
        raise ParameterError(f"{name} needs {package}, which {sys.executable} lacks; run `make gpu-env`") from error


def load_module(name: str, device: str) -> ModuleType:
    """Import the workload module of that name and its frameworks.

    Raises ParameterError when there is no such module or a framework is not installed.
    """
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in known:
        raise ParameterError(f"unknown workload module {name!r}; known: {', '.join(known)}")

    def load() -> ModuleType:
        module = importlib.import_module(f"{__name__}.{name}")
        for framework in getattr(module, "FRAMEWORKS", {}).get(device, ()):
            importlib.import_module(framework)
        return module

    loaded: ModuleType = _naming_what_is_missing(name, load)
    return loaded


def create(module: ModuleType, params: Params, device: str) -> Workload:
    """The module's workload with these parameters. Raises ParameterError."""
    name = module.__name__.rpartition(".")[2]
    workload: Workload = _naming_what_is_missing(name, lambda: module.create(params, device))
    return workload
