"""What a tenant runs. A workload is one module here, with a function `create(params, device) -> Workload`.

`device` is `cpu` or `cuda`. ParameterError is for a parameter that does not exist or is not possible, and for a device
that the module cannot run on. What it needs in addition to numpy it names
in `FRAMEWORKS`, a literal dictionary of device to packages, which a config is checked against without importing it.
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
def _naming_what_is_missing(name: str) -> Iterator[None]:
    try:
        yield
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

    with _naming_what_is_missing(name):
        module = importlib.import_module(f"{__name__}.{name}")
        for framework in getattr(module, "FRAMEWORKS", {}).get(device, ()):
            importlib.import_module(framework)
    return module


def create(module: ModuleType, params: Params, device: str) -> Workload:
    with _naming_what_is_missing(module.__name__.rpartition(".")[2]):
        workload: Workload = module.create(params, device)
    return workload
