"""What a tenant runs. A workload is one module here, with a function `create(params) -> Workload`."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

from tenant.parameters import ParameterError
from tenant.usage import peak_resident_bytes


class RequestError(Exception):
    """One iteration failed; it is counted as an error and the loop goes on."""


class Work(NamedTuple):
    """Declared work of one iteration: operations, bytes moved at least (None where unknown), and items."""

    flop: float | None
    bytes: float | None
    items: float


class Workload(ABC):
    """One tenant's work, ready to run: a module's `create` has loaded everything."""

    work: Work

    @abstractmethod
    def step(self) -> None:
        """Run one iteration; returns when the device has finished it. Raises RequestError when it failed."""

    def synchronize(self) -> None:
        """Return when the device has nothing left to do for this workload; a CPU has nothing left anyway."""
        return

    @abstractmethod
    def output_digest(self) -> list[float]:
        """A few finite numbers that sum up the last iteration's output, well away from 0."""

    @abstractmethod
    def packages(self) -> dict[str, str]:
        """Versions of the packages that do the work."""

    def memory_bytes(self) -> int | None:
        """Peak memory on the device; here that of the process."""
        return peak_resident_bytes()


def load_module(name: str) -> ModuleType:
    """Import the workload module of that name. Raises ParameterError when there is none."""
    known = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in known:
        raise ParameterError(f"unknown workload module {name!r}; known: {', '.join(known)}")
    return importlib.import_module(f"{__name__}.{name}")


def create(module: ModuleType, params: Mapping[str, Any]) -> Workload:
    """The module's workload with these parameters. Raises ParameterError."""
    workload: Workload = module.create(params)
    return workload
