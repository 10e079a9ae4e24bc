"""The built-in workloads. Each is one module here with a function `create(params, device) -> Workload`.

`device` is `cpu` or `cuda`. `create` raises ParameterError for a parameter that is unknown or impossible, and for a
device that the workload cannot run on. A module lists the packages that it needs in addition to numpy in `FRAMEWORKS`,
a literal dictionary of device to package names, so that a config can be checked without importing the module.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tenant.parameters import ParameterError, Params
from tenant.workload import Workload


@contextmanager
def _report_missing_package(name: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        if package == "tenant":
            raise
        raise ParameterError(f"{name} needs {package}, which {sys.executable} lacks; run `make gpu-env`") from error


def load_module(name: str, device: str) -> ModuleType:
    """Import a workload module and its frameworks.

    Raises ParameterError if there is no such module or a framework is not installed.
    """
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in known:
        raise ParameterError(f"unknown workload module {name!r}; known: {', '.join(known)}")

    with _report_missing_package(name):
        module = importlib.import_module(f"{__name__}.{name}")
        for framework in getattr(module, "FRAMEWORKS", {}).get(device, ()):
            importlib.import_module(framework)
    return module


def create(module: ModuleType, params: Params, device: str) -> Workload:
    with _report_missing_package(module.__name__.rpartition(".")[2]):
        workload: Workload = module.create(params, device)
    return workload
